"""Times calls inside a worker. Every function used here is bound before the code under test is loaded.

On a GPU a call is timed by CUDA events on the current stream. Before it, more than twice the L2 cache is written, so that
inputs come from memory and the host is ahead of the device. On a CPU it is timed by `time.perf_counter_ns`. Code in the
same process can still change what is measured here; the tool compares with its own clock (timing.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

_now = time.perf_counter_ns
_synchronize = torch.cuda.synchronize
_stream = torch.cuda.current_stream
_Event = torch.cuda.Event
_record = torch.cuda.Event.record
_elapsed = torch.cuda.Event.elapsed_time


class Clock:
    """Times calls on one device."""

    def __init__(self, device: torch.device):
        self.cuda = device.type == "cuda"
        self.device = device
        self._flushed: torch.Tensor | None = None

    def synchronize(self) -> None:
        if self.cuda:
            _synchronize(self.device)

    def flush(self) -> None:
        """Empty the L2 cache of other data by writing a buffer of more than twice its size."""
        if not self.cuda:
            return
        if self._flushed is None:
            size = max(2 * torch.cuda.get_device_properties(self.device).L2_cache_size, 64 << 20)
            self._flushed = torch.empty(size + (8 << 20), dtype=torch.uint8, device=self.device)
        self._flushed.zero_()

    def measure(
        self,
        calls: list[int | None],
        prepare: Callable[[int], None],
        call: Callable[[], Any],
        keep: Callable[[Any], Any],
        kept_call: int | None,
        flush: bool,
    ) -> tuple[list[float], Any]:
        """Seconds of each of `calls`, and what `keep` returned for the output of call number `kept_call`.

        An entry of `calls` is the argument that `prepare` gets before that call; None: `prepare` is not called. `keep`
        runs right behind the call, on the same stream, so that work left running on another stream is not waited for.
        """
        kept = None
        times: list[float] = []
        events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self.synchronize()
        for i, argument in enumerate(calls):
            if argument is not None:
                prepare(argument)
            if flush:
                self.flush()
            if self.cuda:
                start, end = _Event(enable_timing=True), _Event(enable_timing=True)
                _record(start, _stream(self.device))
                output = call()
                _record(end, _stream(self.device))
                events.append((start, end))
            else:
                begin = _now()
                output = call()
                times.append((_now() - begin) * 1e-9)
            if i == kept_call:
                kept = keep(output)
            del output
        self.synchronize()
        if self.cuda:
            times = [_elapsed(start, end) * 1e-3 for start, end in events]
        return times, kept
