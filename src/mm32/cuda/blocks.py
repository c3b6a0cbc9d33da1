"""Runs a plan in blocks: its parts are executables of their own, called one after another with addresses inside the operands,
inside C and inside one workspace."""

from __future__ import annotations

from mm32.cuda import launch
from mm32.plan import Plan


class BlockedExecutable(launch.Executable):
    """A plan in blocks made ready for one device. It is called like `launch.Executable`; packed operands are ignored."""

    def __init__(self, plan: Plan, index: int) -> None:
        assert plan.blocks is not None
        assert plan.workspace is not None
        self.plan, self.index = plan, index
        parts = [launch.Executable(part, index) for part in plan.blocks.parts]
        self._calls = [
            (parts[s.part]._start, 4 * s.a, 4 * s.b, 4 * s.bias, 4 * s.c, s.reads_sums, s.writes_sums)
            for s in plan.blocks.steps
        ]  # offsets in bytes
        self._size = (plan.workspace.bytes,)
        self._sums = plan.workspace.partial_sums
        self._prepacked = (False, False)

    def _start(self, a: int, b: int, bias: int, out: int, bases: launch._Bases | None) -> None:
        assert bases is not None
        base = bases[0]
        sums, inside = base + self._sums, (base, base, base)
        for start, in_a, in_b, in_bias, in_c, reads_sums, writes_sums in self._calls:
            start(
                sums if reads_sums else a + in_a,
                b + in_b,
                bias and bias + in_bias,
                sums if writes_sums else out + in_c,
                inside,
            )


def executable(plan: Plan, index: int) -> launch.Executable:
    """Return what runs a plan that has launches on CUDA device `index`, with its kernels compiled and loaded."""
    return launch.Executable(plan, index) if plan.blocks is None else BlockedExecutable(plan, index)
