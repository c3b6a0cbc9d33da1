"""Times implementations of one product against each other, interleaved, and measures the error of each.

Each round runs every implementation once on the same inputs, with a cold L2, behind enough queued work to hide the host's time.
Times are of CUDA events, in seconds. Intervals are 95 % intervals of the median, by order statistics; the interval of a ratio is
taken over the ratios of the single rounds.
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
# Products of more FLOP are compared with float64 in some rows only. The comparison computes two products in float64: 2^43 FLOP
# take 0.15 s on an H200, 7 s on a card with few fp64 units.
JUDGED = 2**42

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]

# On these errors one implementation is left out, with the reason, while the others are measured.
Refusals = (peers.Unavailable, planning.Unplannable, CompileError, LaunchError, torch.OutOfMemoryError)


@dataclass(frozen=True)
class Case:
    """One product: its sizes, layout (nn, nt, tn, tt), how its inputs are drawn ("randn" or "rand"), and its epilogue."""

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
        """Return A and B, as views in the layout, and the bias."""
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
    """Return the seconds of each function in each round. There are at most `rounds` rounds; after the third, none begins once
    `budget` seconds are over. `look` is called with a function's name as soon as the card starts its call, all of which
    is queued by then."""
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
                while not begin.query():  # the card is still writing zeros
                    pass
                look(name)
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e-3)
    return times


def interval(values: list[float]) -> tuple[float, float]:
    """Return a 95 % interval of the median by order statistics (binomial), or the extremes if there are few values."""
    ordered, count = sorted(values), len(values)
    rank = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return ordered[rank], ordered[count - 1 - rank]


def timed(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return, by implementation, what a record says of the seconds of interleaved rounds: their median with its 95 % interval,
    and the same of the ratio of peers.BASELINE's time to its own in each round. BASELINE must be among them."""
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
    """Return which rows of the result to compare with float64, or None for all. A large product has as many as JUDGED allows: its
    rows are divided into that many equal spans, and one row is drawn from each, so that every tile of at least a span's height
    is looked at."""
    if case.flops <= JUDGED:
        return None
    count = max(1, case.m * JUDGED // case.flops)
    generator = torch.Generator().manual_seed(0)
    return torch.arange(count) * case.m // count + torch.randint(case.m // count, (count,), generator=generator)


def truth_of(case: Case, inputs: Inputs, rows: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the float64 result and |A||B| + |bias|, (batch, M, N) each, of all rows or of those given."""
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
    """Return ‖C−C64‖/‖C64‖ and max |C−C64| / (u·gauge), or NaN if anything is NaN. What is exact has an error of 0, also where
    |A||B| is 0."""
    difference = c.double() - truth
    norm = float(difference.norm() / truth.norm())
    exact = difference == 0
    part = difference.abs_().div_(gauge.mul(U))
    part[exact] = 0.0
    return norm, float(part.max())


@dataclass(frozen=True)
class Result:
    """The result of one implementation in one case.

    `seconds`, `low`, `high`: its median time and the 95 % interval. `speedup` and its interval: the ratio of torch's time to its
    own. `error`, `gauge`: its normwise and componentwise errors (`errors`). `kernel`: what ran.
    """

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
    """Return a row of a record: the case, a Result for each name, and the reason for each name that could not run.

    peers.BASELINE must be among the names. There are at most `rounds` rounds; after the third, none begins once `budget` seconds
    are over. With a sensor, a result also has "clock_mhz", "power_w" and "throttled" (`sensors.Watch.of`); with `energy` it has
    "joules", the energy of a call, which is None if it could not be counted.
    """
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
    """Yield the rows, one by one. The rounds of all cases together take at most about `seconds`, shared equally; measuring energy
    comes on top. A case that does not fit the card's memory gives a row without results."""
    for case in cases:
        try:
            row = measure(case, names, rounds, seconds / len(cases), sensor, energy)
        except torch.OutOfMemoryError as error:
            row = _row(case, rounds=0, judged_rows=0, results={}, unavailable=dict.fromkeys(names, reason(error)))
        torch.cuda.empty_cache()  # not in the handler: there the exception still holds the tensors of its frames
        yield row


def reason(error: Exception) -> str:
    """Return the first line of an error's message, for a table."""
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory on the card"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _row(case: Case, **measured: Any) -> dict[str, Any]:
    return {"case": case.name, **asdict(case), **measured}


def kernel_of(case: Case, name: str, inputs: Inputs) -> str:
    """Return the kernel that an implementation ran: mm32's choice, or the kernel asked for by name. For others it is the library,
    such as "torch"."""
    if not name.startswith("mm32"):
        return name if name in planning.KERNELS else name.partition("-")[0]
    a, b, bias = inputs
    out = torch.empty(gemm.result_shape(a.shape, b.shape), device="meta")
    problem = gemm.describe(a, b, bias, out, case.activation, peers.options(name)["precision"])
    before = (False, name == "mm32-packed" and mm32.pack(b).reason is None)
    limit = settings.read_limit()
    return planning.plan(problem, launch.card_of(a.device.index), prepacked=before, torch="fp32", limit=limit).kernel
