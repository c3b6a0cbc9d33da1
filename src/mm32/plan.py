"""What is done: `plan(gemm, device)` chooses a kernel and says why. The only place that chooses.

A `Plan` is data: kernel source, constants, launch. The launcher runs it, `Plan.explain()` prints it, `mm32.export` writes it
out as C++. Nothing here calls CUDA or torch, so a plan can be made for a card that is not present.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mm32.gemm import ACTIVATIONS, Gemm, Matrix

KERNELS = ("naive", "dot", "tiled", "simt")
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


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `unit` is what a block computes: (e,) consecutive output elements or a (rows, columns) tile; a block
    takes further units a grid apart, so any grid is right and `MAX_GRID` is no limit on the problem."""

    entry: str
    block: int
    shared: int
    unit: tuple[int, ...]

    def grid(self, gemm: Gemm) -> int:
        if len(self.unit) == 1:
            units = -(-gemm.batches * gemm.m * gemm.n // self.unit[0])
        else:
            units = gemm.batches * -(-gemm.m // self.unit[0]) * -(-gemm.n // self.unit[1])
        return min(units, MAX_GRID)


@dataclass(frozen=True)
class Plan:
    """How one `Gemm` runs. `constants` are the MM32_… definitions `source` is compiled with; `workspace` is bytes of device
    memory beyond the operands; `estimates` are the planner's own predictions in seconds, not measurements."""

    gemm: Gemm
    device: Device
    kernel: str
    source: str
    constants: tuple[tuple[str, int], ...]
    launch: Launch
    workspace: int
    reason: str
    estimates: tuple[tuple[str, float], ...] = ()

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
            f"launch     {self.launch.grid(g)} blocks of {self.launch.block} threads, {self.launch.shared} bytes of dynamic "
            f"shared memory, {self.launch.entry} in {self.source}",
            f"constants  {', '.join(f'{k}={v}' for k, v in self.constants)}",
            f"workspace  {self.workspace} bytes",
        ]
        if self.estimates:
            lines.append("estimates  " + ", ".join(f"{name} {_time(t)}" for name, t in self.estimates))
        return "\n".join(lines)


class Unplannable(ValueError):
    """No kernel, or not the one that was asked for, can do this; the message says why."""


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def _epilogue(gemm: Gemm) -> tuple[tuple[str, int], ...]:
    activation = 0 if gemm.activation is None else 1 + ACTIVATIONS.index(gemm.activation)
    return (("BIAS", int(gemm.bias is not None)), ("ACTIVATION", activation))


# ---------------------------------------------------------------------------------------------------------------------
# The kernels: each planner returns the plan without a reason, and its estimate of the time in seconds.
# The rates were measured on an H200 (docs/kernels.md); they order the kernels, they do not predict a run to the per cent.


def _naive(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    along_m = gemm.b.col != 1 and gemm.a.row == 1
    constants = (*_epilogue(gemm), ("ALONG_M", int(along_m)))
    made = Plan(gemm, device, "naive", "naive.cu", constants, Launch("mm32_naive", 128, 0, (128,)), 0, "")
    coalesced = (gemm.b.col in (0, 1)) if not along_m else True
    busy = min(1.0, gemm.batches * gemm.m * gemm.n / (device.sms * 1024))
    rate = (4.0e12 if coalesced else 0.7e12) * busy * device.sms / 132
    return made, gemm.flops / max(rate, 1.0) + LAUNCH


def _dot(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    made = Plan(gemm, device, "dot", "dot.cu", _epilogue(gemm), Launch("mm32_dot", 256, 0, (1,)), 0, "")
    elements = gemm.batches * gemm.m * gemm.n
    # A block pays its reduction and start, and its reads: a strided one costs a 32-byte sector for each 4-byte element.
    sectors = (1 if gemm.a.col == 1 else 8) + (1 if gemm.b.row == 1 else 8)
    waves = -(-elements // (device.sms * 8))
    reads = elements * gemm.k * 4.0 * sectors / (5.0e12 * min(1.0, elements / (device.sms * 4)) * device.sms / 132)
    return made, max(waves * 1.5e-6, reads) + LAUNCH


def _tiled(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    constants = (*_epilogue(gemm), ("A_ALONG_K", int(gemm.a.col == 1)), ("B_ALONG_K", int(gemm.b.row == 1)))
    made = Plan(gemm, device, "tiled", "tiled.cu", constants, Launch("mm32_tiled", 1024, 0, (32, 32)), 0, "")
    tiles = gemm.batches * -(-gemm.m // 32) * -(-gemm.n // 32)
    waves = -(-tiles // (device.sms * 2))
    return made, waves * gemm.k * TILED_STEP + LAUNCH


LAUNCH = 3e-6
TILED_STEP = 2 * 32 * 32 * 2 / (7.0e12 / 132)  # seconds for a step of K of the two tiles that a multiprocessor holds


@dataclass(frozen=True)
class SimtTile:
    """A block tile of the simt kernel; `rate` is the share of the card's FMA peak it sustains when all blocks are busy."""

    m: int
    n: int
    k: int
    thread_m: int
    thread_n: int
    stages: int
    blocks: int  # resident on a multiprocessor
    rate: float

    @property
    def threads(self) -> int:
        return 32 * (self.m // (8 * self.thread_m)) * (self.n // (4 * self.thread_n))

    @property
    def shared(self) -> int:
        return 4 * self.stages * self.k * (self.m + self.n)


SIMT_TILES = (
    SimtTile(256, 128, 16, 8, 16, 4, 1, 0.74),
    SimtTile(128, 128, 16, 8, 8, 4, 2, 0.70),
    SimtTile(64, 64, 16, 4, 8, 4, 4, 0.50),
)
FMA_PEAK = 66.9e12 / 132  # FLOP/s of a multiprocessor at 1.98 GHz


def _load_mode(matrix: Matrix, rows: str) -> int:
    """How the simt kernel brings an operand in (see simt.cu); `rows` names its M or N axis in the Matrix."""
    if matrix.vectorizable(rows):
        return 0
    return 2 if (matrix.col if rows == "row" else matrix.row) == 1 else 1


def _simt(gemm: Gemm, device: Device) -> tuple[Plan, float]:
    def estimate(tile: SimtTile) -> float:
        tiles = gemm.batches * -(-gemm.m // tile.m) * -(-gemm.n // tile.n)
        waves = -(-tiles // (device.sms * tile.blocks))
        step = 2.0 * tile.m * tile.n * tile.blocks / (FMA_PEAK * tile.rate)
        return waves * max(gemm.k, tile.k) * step + 2e-6 + LAUNCH

    fitting = [t for t in SIMT_TILES if t.shared <= device.shared]
    tile = min(fitting, key=estimate)
    made = Plan(gemm, device, "simt", "simt.cu", _simt_constants(gemm, tile), _simt_launch(tile), 0, "")
    return made, estimate(tile)


def _simt_constants(gemm: Gemm, tile: SimtTile) -> tuple[tuple[str, int], ...]:
    return (
        *_epilogue(gemm),
        ("A_LOAD", _load_mode(gemm.a, "row")),
        ("B_LOAD", _load_mode(gemm.b, "col")),
        ("C_VECTOR", int(gemm.out.vectorizable("col"))),
        ("TILE_M", tile.m),
        ("TILE_N", tile.n),
        ("TILE_K", tile.k),
        ("THREAD_M", tile.thread_m),
        ("THREAD_N", tile.thread_n),
        ("STAGES", tile.stages),
    )


def _simt_launch(tile: SimtTile) -> Launch:
    return Launch("mm32_simt", tile.threads, tile.shared, (tile.m, tile.n))


_PLANNERS: dict[str, Callable[[Gemm, Device], tuple[Plan, float]]] = {
    "naive": _naive,
    "dot": _dot,
    "tiled": _tiled,
    "simt": _simt,
}


def unsupported(kernel: str, device: Device) -> str | None:
    """Why `kernel` cannot run on `device`, or None if it can."""
    if device.capability < (8, 0):
        return (
            f"mm32's kernels are compiled for compute capability 8.0 and later; {device.name} has "
            f"{device.capability[0]}.{device.capability[1]}"
        )
    return None


def plan(gemm: Gemm, device: Device, kernel: str = "auto") -> Plan:
    """The plan for `gemm` on `device`: the kernel that was named, or with "auto" the one that is estimated to be fastest.

    Raises ValueError for a kernel that does not exist, `Unplannable` for one that cannot run on the device.
    """
    check_kernel(kernel)
    names = KERNELS if kernel == "auto" else (kernel,)
    refused = {name: why for name in names if (why := unsupported(name, device)) is not None}
    if len(refused) == len(names):
        raise Unplannable(f"kernel {kernel!r} cannot run here: {next(iter(refused.values()))}")
    options = sorted((_PLANNERS[name](gemm, device) for name in names if name not in refused), key=lambda o: o[1])
    chosen = options[0][0]
    estimates = tuple((p.kernel, t) for p, t in options)
    if kernel != "auto":
        return replace(chosen, reason="asked for by name", estimates=estimates)
    reason = f"least estimated time of {len(options)} IEEE fp32 kernels"
    return replace(chosen, reason=reason, estimates=estimates)


def check_kernel(kernel: str) -> None:
    if kernel != "auto" and kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: mm32 has 'auto', {', '.join(map(repr, KERNELS))}")


def variants() -> Iterator[tuple[str, str, tuple[tuple[str, int], ...], int]]:
    """Every compiled form that plans differ in, as (kernel, source, constants, threads a block). Epilogues multiply the
    forms without touching the main loop: they are covered by the empty one and the heaviest on every form, and each
    activation once a kernel."""
    light = (("BIAS", 0), ("ACTIVATION", 0))
    heavy = (("BIAS", 1), ("ACTIVATION", 1 + ACTIVATIONS.index("gelu_tanh")))
    each = [(("BIAS", i % 2), ("ACTIVATION", 1 + i)) for i in range(len(ACTIVATIONS))]

    def forms(name: str) -> list[tuple[tuple[tuple[str, int], ...], int]]:
        if name == "naive":
            return [((("ALONG_M", v),), 128) for v in (0, 1)]
        if name == "dot":
            return [((), 256)]
        if name == "tiled":
            return [((("A_ALONG_K", i), ("B_ALONG_K", j)), 1024) for i in (0, 1) for j in (0, 1)]
        return [
            (
                (
                    ("A_LOAD", i),
                    ("B_LOAD", j),
                    ("C_VECTOR", int(i != 1)),
                    ("TILE_M", t.m),
                    ("TILE_N", t.n),
                    ("TILE_K", t.k),
                    ("THREAD_M", t.thread_m),
                    ("THREAD_N", t.thread_n),
                    ("STAGES", t.stages),
                ),
                t.threads,
            )
            for t in SIMT_TILES
            for i in (0, 1, 2)
            for j in (0, 1, 2)
        ]

    for name in KERNELS:
        for number, (form, threads) in enumerate(forms(name)):
            for epilogue in [light, heavy] + (each if number == 0 else []):
                yield name, f"{name}.cu", (*epilogue, *form), threads
