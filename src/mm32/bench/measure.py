"""Times implementations of one product against each other, interleaved, and measures the error of each.

Each round runs every implementation once on the same inputs, with a cold L2, behind enough queued work to hide the host's time.
Times are of CUDA events, in seconds. Intervals are 95 % intervals of the median, by order statistics; a ratio's is that of the
rounds' own ratios.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

import mm32
from mm32 import gemm, settings, torch_product
from mm32 import plan as planning
from mm32.bench import peers, sensors
from mm32.cuda import launch
from mm32.errors import CompileError, LaunchError
from mm32.options import Activation

U = 2.0**-24
FLUSH_BYTES = 512 * 2**20
ROUNDS, SECONDS = 15, 120.0
# Products of more FLOP are compared with float64 in some rows only. 2^43 are 0.15 s on an H200, 7 s with few fp64 units.
JUDGED = 2**42

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]

# Errors of one implementation, which is then left out with the reason, while the others are measured.
Refusals = (peers.Unavailable, planning.Unplannable, CompileError, LaunchError, torch.OutOfMemoryError)


@dataclass(frozen=True)
class Case:
    """One product: sizes, layout (nn, nt, tn, tt), how inputs are drawn ("randn" or "rand"), epilogue."""

    m: int
    n: int
    k: int
    layout: str = "nn"
    distribution: str = "randn"
    bias: bool = False
    activation: Activation | None = None
    batch: int = 1

    @property
    def name(self) -> str:
        size = f"{self.m}x{self.k}x{self.n}" + (f" batch {self.batch}" if self.batch > 1 else "")
        epilogue = "+bias" * self.bias + (f"+{self.activation}" if self.activation else "")
        return f"{size} {self.layout}{epilogue} {self.distribution}"

    @property
    def flops(self) -> int:
        """Multiplications and additions, 2·M·N·K for each batch."""
        return 2 * self.m * self.n * self.k * self.batch

    def inputs(self, seed: int = 0, device: str = "cuda") -> Inputs:
        """A, B as views in the layout, and the bias."""
        generator = torch.Generator(device).manual_seed(seed)
        draw = {"randn": torch.randn, "rand": torch.rand}[self.distribution]
        batch = (self.batch,) if self.batch > 1 else ()

        def stored(rows: int, columns: int, transposed: bool) -> torch.Tensor:
            shape = (columns, rows) if transposed else (rows, columns)
            x = draw(*batch, *shape, generator=generator, device=device)
            return x.mT if transposed else x

        a = stored(self.m, self.k, self.layout[0] == "t")
        b = stored(self.k, self.n, self.layout[1] == "t")
        return a, b, draw(self.n, generator=generator, device=device) if self.bias else None


def interleave(
    functions: dict[str, peers.Call], rounds: int, budget: float, look: Callable[[str], None] | None = None
) -> dict[str, list[float]]:
    """Seconds of each function in each round; at least 3 rounds, then until `rounds` or `budget` seconds are over. `look` gets
    the function's name as soon as the card is at its call, which is queued whole by then."""
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
            for _ in range(4):  # about half a millisecond of queued work, longer than the host needs to launch the call
                flush.zero_()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            function()
            end.record()
            if look is not None:
                while not begin.query():  # the card still writes
                    pass
                look(name)
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e-3)
    return times


def interval(values: list[float]) -> tuple[float, float]:
    """A 95 % interval of the median by order statistics (binomial); the extremes where there are few values."""
    ordered, count = sorted(values), len(values)
    rank = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return ordered[rank], ordered[count - 1 - rank]


def timed(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """What a record says of the seconds of interleaved rounds, by implementation: their median and its 95 % interval, and
    peers.BASELINE's time over its own, by rounds, likewise. BASELINE must be among them."""
    figures = {}
    for name, seconds in times.items():
        ratios = [x / y for x, y in zip(times[peers.BASELINE], seconds, strict=True)]
        (low, high), (ratio_low, ratio_high) = interval(seconds), interval(ratios)
        figures[name] = {
            "seconds": median(seconds), "low": low, "high": high,
            "speedup": median(ratios), "speedup_low": ratio_low, "speedup_high": ratio_high,
        }  # fmt: skip
    return figures


def judged_rows(case: Case) -> torch.Tensor | None:
    """Which rows of the result to compare with float64: None for all. Of a large product as many as JUDGED allows, one drawn at
    random from each of as many equal spans of rows, so that every tile of at least that height is looked at."""
    if case.flops <= JUDGED:
        return None
    count = max(1, case.m * JUDGED // case.flops)
    generator = torch.Generator().manual_seed(0)
    return torch.arange(count) * case.m // count + torch.randint(case.m // count, (count,), generator=generator)


def truth_of(case: Case, inputs: Inputs, rows: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 result and |A||B| + |bias|, (batch, M, N) each, of all rows or of those given."""
    a, b, bias = inputs
    a64 = (a if rows is None else a[..., rows, :]).double()
    b64 = b.double()
    truth = torch.matmul(a64, b64)
    gauge = torch.matmul(a64.abs_(), b64.abs_())  # in place: a64 and b64 are copies, since A and B are float32
    if bias is not None:
        truth += bias.double()
        gauge += bias.double().abs()
    return torch_product.activate(truth, case.activation), gauge


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


def measure(
    case: Case,
    names: Sequence[str],
    rounds: int = ROUNDS,
    budget: float = 20.0,
    sensor: sensors.Sensor | None = None,
    energy: bool = False,
) -> dict[str, Any]:
    """A row of a record: the case, a Result for each name, and the reason for each that could not run. peers.BASELINE must be
    among the names. At most `rounds` rounds; after the third, none begins once `budget` seconds are over.

    With a sensor, a result also has "clock_mhz", "power_w" and "throttled" (`sensors.Watch.of`), and with `energy` "joules",
    those of a call, None where they could not be counted."""
    inputs = case.inputs()
    rows = judged_rows(case)
    truth, gauge = truth_of(case, inputs, rows)
    functions: dict[str, peers.Call] = {}
    judged: dict[str, tuple[float, float]] = {}
    unavailable: dict[str, str] = {}
    for name in names:
        try:
            function = peers.call(name, *inputs, case.activation)
            c = function()
            judged[name] = errors(c if rows is None else c[..., rows, :], truth, gauge)
            functions[name] = function
        except Refusals as error:
            if name == peers.BASELINE:
                raise
            unavailable[name] = reason(error)
    del truth, gauge, c
    torch.cuda.empty_cache()
    watch = sensors.Watch(sensor)
    times = interleave(functions, rounds, budget, look=None if sensor is None else watch.look)
    results = {}
    for name, figures in timed(times).items():
        normwise, componentwise = judged[name]
        kernel = kernel_of(case, name, inputs)
        results[name] = asdict(Result(**figures, error=normwise, gauge=componentwise, kernel=kernel)) | watch.of(name)
        if energy and sensor is not None:
            used = sensors.joules(functions[name], figures["seconds"], sensor, torch.cuda.synchronize)
            results[name]["joules"] = used
    count, taken = case.m if rows is None else len(rows), len(times[peers.BASELINE])
    return _row(case, rounds=taken, judged_rows=count, results=results, unavailable=unavailable)


def measure_all(
    cases: Sequence[Case],
    names: Sequence[str],
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    sensor: sensors.Sensor | None = None,
    energy: bool = False,
) -> Iterator[dict[str, Any]]:
    """The rows, one by one. The rounds of all cases together take at most about `seconds`, shared equally; energy comes on top.
    A case that does not fit the card's memory is a row without results."""
    for case in cases:
        try:
            row = measure(case, names, rounds, seconds / len(cases), sensor, energy)
        except torch.OutOfMemoryError as error:
            row = _row(case, rounds=0, judged_rows=0, results={}, unavailable=dict.fromkeys(names, reason(error)))
        torch.cuda.empty_cache()  # not in the handler: there the exception still holds the tensors of its frames
        yield row


def reason(error: Exception) -> str:
    """An error's first sentence, for a table."""
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory on the card"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _row(case: Case, **measured: Any) -> dict[str, Any]:
    return {"case": case.name, **asdict(case), **measured}


def kernel_of(case: Case, name: str, inputs: Inputs) -> str:
    """The kernel that an implementation ran: mm32's choice or the name asked for; for others the library, such as "torch"."""
    if not name.startswith("mm32"):
        return name if name in planning.KERNELS else name.partition("-")[0]
    a, b, bias = inputs
    out = torch.empty(gemm.result_shape(a.shape, b.shape), device="meta")
    problem = gemm.describe(a, b, bias, out, case.activation, peers.options(name)["precision"])
    before = (False, name == "mm32-packed" and mm32.pack(b).reason is None)
    limit = settings.read_limit()
    return planning.plan(problem, launch.card_of(a.device.index), prepacked=before, torch="fp32", limit=limit).kernel
