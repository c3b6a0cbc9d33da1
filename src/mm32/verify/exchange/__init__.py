"""What both sides of the border import, the tool and the worker's process (worker/__init__.py): how values pass between them.

    wire      the format of the messages: JSON and raw tensor bytes
    stacked   a model's buffers, as few tensors
    memory    memory that two processes map
    handover  large tensors of a card, without a way through the host

`memory` imports nothing else of `mm32.verify`, `wire` imports `memory`, and `handover` imports both.
"""
