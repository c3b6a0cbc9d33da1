"""Times implementations of one product against each other, interleaved, and measures the error of each.

Each round runs every implementation once, in turn, on the same inputs, with a cold L2 and work queued ahead so that the host's
time is hidden behind the device's. Times are of CUDA events, in seconds. A ratio's interval is of the medians, 95 %, from
order statistics of the rounds' own ratios.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

import mm32
from mm32 import plan as planning
from mm32.cuda import launch

U = 2.0**-24
FLUSH_BYTES = 512 * 2**20
Call = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """One product: sizes, layout (nn, nt, tn, tt), how inputs are drawn ("randn" or "rand"), epilogue."""

    m: int
    n: int
    k: int
    layout: str = "nn"
    distribution: str = "randn"
    bias: bool = False
    activation: str | None = None
    batch: int = 1

    @property
    def name(self) -> str:
        size = f"{self.m}x{self.k}x{self.n}" + (f" batch {self.batch}" if self.batch > 1 else "")
        epilogue = "+bias" * self.bias + (f"+{self.activation}" if self.activation else "")
        return f"{size} {self.layout}{epilogue} {self.distribution}"

    def inputs(self, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """A, B as views in the layout, and the bias; on the current CUDA device."""
        generator = torch.Generator("cuda").manual_seed(seed)
        draw = {"randn": torch.randn, "rand": torch.rand}[self.distribution]
        batch = (self.batch,) if self.batch > 1 else ()

        def stored(rows: int, columns: int, transposed: bool) -> torch.Tensor:
            shape = (columns, rows) if transposed else (rows, columns)
            x = draw(*batch, *shape, generator=generator, device="cuda")
            return x.mT if transposed else x

        a = stored(self.m, self.k, self.layout[0] == "t")
        b = stored(self.k, self.n, self.layout[1] == "t")
        return a, b, draw(self.n, generator=generator, device="cuda") if self.bias else None


@contextlib.contextmanager
def torch_precision(tf32: bool) -> Iterator[None]:
    """torch's own fp32 products as IEEE or as TF32, for the time of a measurement."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def by_torch(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, tf32: bool) -> Call:
    def call() -> torch.Tensor:
        with torch_precision(tf32):
            c = torch.matmul(a, b)
        if bias is not None:
            c = c + bias
        return mm32.cpu.activate(c, activation)

    return call


def calls(case: Case, names: list[str], inputs: tuple) -> dict[str, Call]:
    """The implementations by name: "torch", "torch-tf32", "mm32" (auto), "mm32-packed" (B packed beforehand, which is not timed),
    "mm32-tf32", "mm32-ieee", or a kernel's name."""
    a, b, bias = inputs

    def ours(**options: Any) -> Call:
        return lambda: mm32.matmul(a, b, bias=bias, activation=case.activation, **options)

    known: dict[str, Call] = {
        "torch": by_torch(a, b, bias, case.activation, tf32=False),
        "torch-tf32": by_torch(a, b, bias, case.activation, tf32=True),
        "mm32": ours(),
        "mm32-tf32": ours(precision="tf32"),
        "mm32-ieee": ours(precision="ieee"),
        **{kernel: ours(kernel=kernel) for kernel in planning.KERNELS},
    }
    if "mm32-packed" in names:
        packed = mm32.pack(b)
        known["mm32-packed"] = lambda: mm32.matmul(a, packed, bias=bias, activation=case.activation)
    return {name: known[name] for name in names}


def interleave(functions: dict[str, Call], rounds: int, budget: float = 20.0) -> dict[str, list[float]]:
    """Seconds of each function in each round; at least 3 rounds, then until `rounds` or `budget` seconds are over."""
    flush = torch.empty(FLUSH_BYTES // 4, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    torch.cuda.synchronize()
    start = time.monotonic()
    for done in range(rounds):
        if done >= 3 and time.monotonic() - start > budget:
            break
        for name, function in functions.items():
            for _ in range(4):  # ~1 ms of queue: longer than a host needs to launch what follows
                flush.zero_()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            function()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e-3)
    return times


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def interval(values: list[float]) -> tuple[float, float]:
    """A 95 % interval of the median by order statistics (binomial); the extremes where there are few values."""
    ordered, count = sorted(values), len(values)
    rank = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return ordered[rank], ordered[count - 1 - rank]


def errors(c: torch.Tensor, truth: torch.Tensor, gauge: torch.Tensor) -> tuple[float, float]:
    """‖C−C64‖/‖C64‖ and max |C−C64| / (u·gauge); NaN if anything is."""
    difference = c.double() - truth
    norm = float(difference.norm() / truth.norm())
    part = difference.abs_().div_(gauge.mul(U))
    part[gauge == 0] = 0.0
    return norm, float(part.max())


@dataclass(frozen=True)
class Result:
    """One implementation in one case: seconds (median, 95 % interval), torch's time over its own, and errors."""

    seconds: float
    low: float
    high: float
    speedup: float
    speedup_low: float
    speedup_high: float
    error: float
    gauge: float
    kernel: str


def measure(case: Case, names: list[str], rounds: int = 15, against: str = "torch") -> dict[str, Any]:
    """A row of a record: what was run, and a Result for each name; `against` must be among the names."""
    inputs = case.inputs()
    a, b, bias = inputs
    functions = calls(case, names, inputs)
    truth = torch.matmul(a.double(), b.double())
    gauge = torch.matmul(a.double().abs(), b.double().abs())
    if bias is not None:
        truth += bias.double()
        gauge += bias.double().abs()
    truth = mm32.cpu.activate(truth, case.activation)
    judged = {name: errors(function(), truth, gauge) for name, function in functions.items()}
    del truth, gauge
    torch.cuda.empty_cache()
    times = interleave(functions, rounds)
    row: dict[str, Any] = {"case": case.name, **asdict(case), "rounds": len(times[against]), "results": {}}
    for name in names:
        low, high = interval(times[name])
        ratios = [x / y for x, y in zip(times[against], times[name], strict=True)]
        ratio_low, ratio_high = interval(ratios)
        row["results"][name] = asdict(
            Result(
                median(times[name]), low, high, median(ratios), ratio_low, ratio_high, *judged[name],
                kernel=_kernel(case, name, inputs),
            )
        )  # fmt: skip
    return row


def _kernel(case: Case, name: str, inputs: tuple) -> str:
    """Which kernel a name came down to."""
    if name.startswith("torch"):
        return "torch"
    if not name.startswith("mm32"):
        return name
    a, b, bias = inputs
    precision = {"mm32-tf32": "tf32", "mm32-ieee": "ieee"}.get(name, "fp32")
    out = torch.empty(mm32.gemm.result_shape(a.shape, b.shape), device="meta")
    problem = mm32.gemm.describe(a, b, bias, out, case.activation, precision)
    before = (False, name == "mm32-packed" and mm32.pack(b).reason is None)
    return planning.plan(problem, launch.device_of(a.device.index), before=before).kernel
