"""What a plan is made of: the card, launches, workspace, and the Plan itself, which can say what it is."""

from __future__ import annotations

from dataclasses import dataclass

from mm32 import activations
from mm32.gemm import Gemm

KERNELS = ("naive", "dot", "tiled", "simt", "mma", "tensorcore")
SPLIT_KERNELS = ("mma", "tensorcore")  # operands split for the tensor cores
MAX_GRID = 2**31 - 1


@dataclass(frozen=True)
class Device:
    """What a planner needs to know of a card. `shared` is the most shared memory a block may take, in bytes."""

    name: str
    capability: tuple[int, int]
    sms: int
    shared: int

    @property
    def arch(self) -> str:
        """The NVRTC target: architecture-specific ("a") from sm_90 on."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


H200 = Device("NVIDIA H200", (9, 0), 132, 232448)


Constants = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `source` compiled with the MM32_… definitions of `constants`, and how many blocks of it.

    Kernels take further work a grid apart, so any grid is right, but simt's with stream-K: there it is the number of
    `Workspace.splits`. `blocks` says how many to start; where it is None they follow from `unit`, what a block computes: (e,)
    consecutive output elements or a (rows, columns) tile. `argument` is what the kernel takes, a "problem" (problem.cuh) or a
    "split" (split.cuh). `early`: it may start while the launch before it runs (programmatic dependent launch). `careful`: it
    does nothing but where the inputs do not suit the split.
    """

    source: str
    entry: str
    constants: Constants
    block: int
    shared: int
    unit: tuple[int, ...] = ()
    blocks: int | None = None
    argument: str = "problem"
    early: bool = False
    careful: bool = False

    def grid(self, gemm: Gemm) -> int:
        if self.blocks is not None:
            return self.blocks
        if len(self.unit) == 1:
            units = -(-gemm.batches * gemm.m * gemm.n // self.unit[0])
        else:
            units = gemm.batches * -(-gemm.m // self.unit[0]) * -(-gemm.n // self.unit[1])
        return min(units, MAX_GRID)


@dataclass(frozen=True)
class Workspace:
    """Device memory beyond the operands, in bytes, and what struct Split (split.cuh) says of it: offsets from its start of A's
    and B's panels, stats and ready counters, of the verdict and of the partial sums (with stream-K, pieces of tiles); how
    many matrices of each operand are packed; how many blocks share K (with stream-K, tiles); and the rows to pack first, none
    where the multiply waits for all of them. An operand that was packed `before` is in memory of its own: its offsets are
    from the start of that."""

    bytes: int
    panels: tuple[int, int]
    stats: tuple[int, int]
    ready: tuple[int, int]
    verdict: int
    partial: int
    matrices: tuple[int, int]
    splits: int
    first: tuple[int, int]
    before: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class Plan:
    """How one `Gemm` runs: launches, in their order, and the workspace they share. `estimates` are the planner's own
    predictions in seconds, not measurements."""

    gemm: Gemm
    device: Device
    kernel: str
    launches: tuple[Launch, ...]
    reason: str = ""
    workspace: Workspace | None = None
    estimates: tuple[tuple[str, float], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def explain(self) -> str:
        """The plan as a page: what was asked, what was chosen and why, what will be launched."""
        g = self.gemm
        epilogue = (
            " + ".join((["bias"] if g.bias is not None else []) + ([g.activation] if g.activation else [])) or "none"
        )
        batch = f", batch {'x'.join(map(str, g.batch))}" if g.batch else ""
        lines = [
            f"gemm       M={g.m} N={g.n} K={g.k}{batch}, layout {g.layout}, epilogue {epilogue}, precision {g.precision}",
            f"device     {self.device.name} ({self.device.arch}, {self.device.sms} multiprocessors)",
            f"kernel     {self.kernel}: {self.reason}",
        ]
        for launch in self.launches:
            how = ", while the one before it runs" if launch.early else ""
            how += ", only if the inputs do not suit the split (careful path)" if launch.careful else ""
            lines.append(
                f"launch     {launch.entry} ({launch.source}): {launch.grid(g)} blocks of {launch.block} threads, "
                f"{launch.shared} bytes of dynamic shared memory{how}"
            )
            lines.append(f"           {', '.join(f'{k}={v}' for k, v in launch.constants)}")
        lines.append(f"workspace  {self.workspace.bytes if self.workspace else 0} bytes")
        if not self.launches:
            lines.append("           torch's own product, fp32 multiply-adds of cuBLAS, then bias and activation")
        if self.estimates:
            lines.append("estimates  " + ", ".join(f"{name} {_time(t)}" for name, t in self.estimates))
        lines += [f"not taken  {name}: {why}" for name, why in self.refused]
        return "\n".join(lines)


class Unplannable(ValueError):
    """No kernel, or not the one that was asked for, can do this; the message says why."""


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def epilogue(gemm: Gemm) -> Constants:
    return (("BIAS", int(gemm.bias is not None)), ("ACTIVATION", activations.number(gemm.activation)))


NO_EPILOGUE: Constants = (("BIAS", 0), ("ACTIVATION", 0))


def unsupported(kernel: str, device: Device) -> str | None:
    """Why `kernel` cannot run on `device`, or None if it can."""
    major, minor = device.capability
    if device.capability < (8, 0):
        return f"mm32's kernels are compiled for compute capability 8.0 and later; {device.name} has {major}.{minor}"
    if kernel == "tensorcore" and device.capability != (9, 0):
        return (
            f"it is made of Hopper's wgmma instructions, compute capability 9.0; {device.name} has {major}.{minor}: "
            "kernel 'mma' is the same scheme for it"
        )
    return None
