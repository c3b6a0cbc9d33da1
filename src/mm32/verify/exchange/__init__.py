"""How values pass between the tool and the processes of the scripts: what both sides of the border (worker/__init__.py) import.

    wire      the format of the messages: JSON and raw tensor bytes
    stacked   a model's buffers, as a few tensors (only between the tool and the reference's process)
    memory    memory that two processes map
    handover  large tensors on a card, passed without a copy through the host

`memory` imports nothing else of `mm32.verify`, `wire` imports `memory`, and `handover` imports both.
"""
