"""Families of data, and how fast and how accurate mm32 is on each beside torch.

Which tier computes a product on tensor cores depends on its data (docs/numerics.md): on how far the elements of a row differ in
size, and on how many terms make up a sum. A family is a formula for A and B; `measure` times torch, torch's TF32 and mm32 on it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import mm32
from mm32.bench import measure as measuring
from mm32.bench import peers, summary
from mm32.bench.measure import ROUNDS, Case, U

JUDGED_ROWS, FIRST_ROWS = 512, 16
METHOD = (
    "interleaved rounds, cold L2, medians of CUDA events, everything included; errors in units of u = 2^-24 against float64 on "
    f"the same inputs, of at most {JUDGED_ROWS} rows of the result: the first {FIRST_ROWS}, where single bad rows lie, and rows "
    "evenly spread; NaN and Inf must be float64's, or the error is inf; tiers of one call after a warm-up"
)
IMPLEMENTATIONS = ("torch", "torch-tf32", "mm32")
GAUGES = ("normwise", "componentwise")
FLOOR = 4.0  # in units of u: a smaller error keeps the promise, whatever torch's is

KINDS = {
    "fits": "22 bits, and the range of a row, should suffice",
    "needs more": "Rows of a wide range, or sums of so few terms that roundings do not average out",
    "bad": "Single elements or a single row that tensor cores cannot compute",
    "ends": "All of an operand at the ends of the range of fp32, or beyond",
    "cancels": "Sums that are much smaller than their terms",
}


# ---------------------------------------------------------------------------------------------------------------------
# What families are made of


@dataclass(frozen=True)
class Draw:
    """The sizes of a product, A (m, k) and B (k, n), and the random numbers of one draw."""

    m: int
    k: int
    n: int
    generator: torch.Generator
    device: str

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def uniform(self, *shape: int) -> Tensor:
        """Return numbers uniform in [0, 1)."""
        return torch.rand(*shape, generator=self.generator, device=self.device)

    def poisson(self, rate: float, *shape: int) -> Tensor:
        return torch.poisson(torch.full(shape, rate, device=self.device), generator=self.generator)

    def integers(self, end: int, count: int) -> Tensor:
        """Return `count` of 0 … end - 1, with repetition."""
        return torch.randint(0, end, (count,), generator=self.generator, device=self.device)

    def places(self, count: int) -> Tensor:
        """Return `count` places of K, without repetition if K has as many."""
        if count > self.k:
            return self.integers(self.k, count)
        return torch.randperm(self.k, generator=self.generator, device=self.device)[:count]

    def index(self, count: int) -> Tensor:
        """Return 0 … count - 1, float64."""
        return torch.arange(count, device=self.device, dtype=torch.float64)

    def identity(self) -> Tensor:
        return torch.eye(self.k, device=self.device)


Pair = tuple[Tensor, Tensor]
Formula = Callable[[Draw], Pair]
Part = Callable[[Draw, int, int], Tensor]
"""(draw, rows, columns) -> an operand."""


def both(part: Part) -> Formula:
    """Return the formula that makes both A and B by `part`."""
    return lambda d: (part(d, d.m, d.k), part(d, d.k, d.n))


def with_noise(part: Part) -> Formula:
    """Return the formula that makes A by `part`, and B of normal numbers."""
    return lambda d: (part(d, d.m, d.k), d.normal(d.k, d.n))


def cycled(x: Tensor, rows: int) -> Tensor:
    """Return the first `rows` rows of x, starting again from the top if it has fewer."""
    return x[torch.arange(rows, device=x.device) % len(x)]


def one_hot(places: Tensor, columns: int) -> Tensor:
    return functional.one_hot(places, columns).float()


# ---------------------------------------------------------------------------------------------------------------------
# Random numbers of other distributions


def heavy_tailed(phi: float) -> Part:
    return lambda d, *shape: (d.uniform(*shape) - 0.5) * torch.exp(phi * d.normal(*shape))


def log_uniform(decades: float) -> Part:
    return lambda d, *shape: 10 ** (-decades * d.uniform(*shape)) * torch.sign(d.normal(*shape))


def student_t2(d: Draw, *shape: int) -> Tensor:
    return d.normal(*shape) / (1 - d.uniform(*shape)) ** 0.5  # 1 - U is never 0


def cauchy(d: Draw, *shape: int) -> Tensor:
    return d.normal(*shape) / d.normal(*shape).abs().clamp(min=1e-8)  # some generators draw zeros


def outliers(d: Draw, *shape: int) -> Tensor:
    return torch.where(d.uniform(*shape) < 0.001, 1000.0, 1.0) * d.normal(*shape)


def six_channels(d: Draw) -> Pair:
    channels = torch.isin(torch.arange(d.k, device=d.device), d.places(6))
    return d.normal(d.m, d.k) * torch.where(channels, 300.0, 1.0), d.normal(d.k, d.n) * 0.02


def scaled_gradient(d: Draw) -> Pair:
    a = d.normal(d.m, d.k) * torch.exp(2 * d.normal(d.m, 1)) * torch.exp(d.normal(1, d.k))
    return a, d.normal(d.k, d.n) * torch.exp(2 * d.normal(1, d.n))


def counts(d: Draw) -> Pair:
    return d.poisson(3.0, d.m, d.k), d.poisson(0.5, d.k, d.n)


def sparse(share: float) -> Part:
    return lambda d, *shape: torch.where(d.uniform(*shape) < share, d.normal(*shape), 0.0)


def sparse_relu(d: Draw, *shape: int) -> Tensor:
    return torch.where(d.uniform(*shape) < 0.1, d.normal(*shape).abs(), 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Learning


def softmax(scale: float) -> Part:
    return lambda d, *shape: torch.softmax(scale * d.normal(*shape), 1)


def logit_gradient(d: Draw) -> Pair:
    """Return A and B of the gradient of the last layer's weights: K tokens, M words, N features."""
    logits = torch.softmax(2 * d.normal(d.k, d.m), 1) - one_hot(d.integers(d.m, d.k), d.m)
    return logits.T / d.k, torch.relu(d.normal(d.k, d.n))


def tf_idf(d: Draw, *shape: int) -> Tensor:
    terms = torch.where(d.uniform(*shape) < 0.01, d.poisson(1.0, *shape) + 1, 0.0)
    return terms * torch.log(1 + d.k / (1 + d.index(d.k))).float()


# ---------------------------------------------------------------------------------------------------------------------
# Matrices of numerical mathematics


def rbf(x: Tensor, z: Tensor, length: float) -> Tensor:
    """Return exp(-|x - z|² / 2 length²) of the rows of x and of z, float32."""
    return torch.exp(-(torch.cdist(x.double(), z.double()) ** 2) / (2 * length**2)).float()


def gram(length: float, both_sides: bool = False) -> Formula:
    """Return the formula with A the RBF kernel of M of K points in 8 dimensions with all K points. B is the kernel of all with N
    of them if `both_sides`, else noise."""

    def make(d: Draw) -> Pair:
        x = d.normal(d.k, 8)
        a = rbf(x[d.places(d.m)], x, length)
        return a, rbf(x, x[d.places(d.n)], length) if both_sides else d.normal(d.k, d.n)

    return make


def inverse_of_gram(d: Draw, rows: int, columns: int) -> Tensor:
    x = d.normal(d.k, 8)
    return cycled(torch.linalg.inv(rbf(x, x, 1.0).double() + 0.1 * d.identity()), rows)


def inverse(d: Draw, rows: int, columns: int) -> Tensor:
    return cycled(torch.linalg.inv((d.normal(d.k, d.k) / d.k**0.5 + 2 * d.identity()).double()), rows)


def graded(d: Draw) -> Pair:
    scale = 10 ** (-6 * d.index(d.k) / d.k)
    return d.normal(d.m, d.k) * scale, d.normal(d.k, d.n) * scale[:, None]


def spectrum(power: int) -> Part:
    return lambda d, *shape: d.normal(*shape) / (1 + d.index(d.k)) ** power


def hilbert(d: Draw, rows: int, columns: int) -> Tensor:
    return 1 / (d.index(rows)[:, None] + d.index(columns) + 1)


def vandermonde(d: Draw, rows: int, columns: int) -> Tensor:
    nodes = torch.linspace(-1, 1, rows, device=d.device, dtype=torch.float64)
    return nodes[:, None] ** d.index(columns)


def cosines(d: Draw, rows: int, columns: int) -> Tensor:
    return torch.cos(2 * torch.pi * d.index(rows)[:, None] * d.index(columns) / columns)


def lower_rows(d: Draw, rows: int, columns: int) -> Tensor:
    """Return the last rows of a square lower triangle."""
    lower = torch.tril(d.normal(d.k, d.k))
    return lower[torch.arange(d.k - rows, d.k, device=d.device) % d.k]


def diagonal_scaling(d: Draw) -> Pair:
    scale = 10 ** (12 * d.uniform(d.k) - 6)
    return d.normal(d.m, d.k) * scale, d.normal(d.k, d.n) / scale[:, None]


def near_identity(distance: float) -> Formula:
    def make(d: Draw) -> Pair:
        e = d.identity() + distance * d.normal(d.k, d.k)
        return cycled(e, d.m), cycled(e.T, d.n).T

    return make


def banded(d: Draw, rows: int, columns: int) -> Tensor:
    from_diagonal = d.index(rows)[:, None] * (columns / rows) - d.index(columns)
    return torch.where(from_diagonal.abs() <= 8, d.normal(rows, columns), 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Bad rows, NaN and Inf, cancellation


def bad_row(d: Draw) -> Pair:
    a = d.normal(d.m, d.k)
    a[5] = d.normal(d.k) * torch.exp(20 * d.normal(d.k))
    return a, d.normal(d.k, d.n)


def nan_and_inf(d: Draw) -> Pair:
    a, b = d.normal(d.m, d.k), d.normal(d.k, d.n)
    a[7, 9], b[11, 13] = torch.nan, torch.inf
    return a, b


def cancelling(d: Draw) -> Pair:
    signs = torch.where(torch.arange(d.k, device=d.device) % 2 == 0, 1.0, -1.0)
    return 1 + 1e-3 * d.normal(d.m, d.k), (1 + 1e-3 * d.normal(d.k, d.n)) * signs[:, None]


# ---------------------------------------------------------------------------------------------------------------------
# The families


@dataclass(frozen=True)
class Family:
    """A formula for A and B. `kind` is one of KINDS."""

    name: str
    what: str
    formula: Formula
    kind: str = "fits"

    def make(self, m: int, k: int, n: int, generator: torch.Generator, device: str) -> Pair:
        """Return A (m, k) and B (k, n), float32 and contiguous."""
        a, b = self.formula(Draw(m, k, n, generator, device))
        return a.float().contiguous(), b.float().contiguous()

    def inputs(self, m: int, k: int, n: int, batch: int = 1, device: str = "cuda") -> Pair:
        """Return A and B, the same at every call, for sizes of 16 or more. If batch > 1 they are (batch, m, k) and (batch, k, n),
        and each matrix is another draw."""
        generator = torch.Generator(device).manual_seed(zlib.crc32(self.name.encode()))
        pairs = [self.make(m, k, n, generator, device) for _ in range(batch)]
        if batch == 1:
            return pairs[0]
        a, b = (torch.stack(matrices) for matrices in zip(*pairs, strict=True))
        return a, b


FAMILIES = (
    Family("randn", "normal numbers", both(Draw.normal)),
    Family("rand", "uniform in [0, 1)", both(Draw.uniform)),
    Family("phi0.5", "(U - ½)·exp(φN), φ = 0.5", both(heavy_tailed(0.5))),
    Family("phi1", "the same, φ = 1", both(heavy_tailed(1))),
    Family("phi2", "the same, φ = 2", both(heavy_tailed(2))),
    Family("loguni4", "magnitudes log-uniform over 4 decades", both(log_uniform(4))),
    Family("loguni8", "magnitudes log-uniform over 8 decades", both(log_uniform(8))),
    Family("t2", "Student's t, 2 degrees of freedom", both(student_t2)),
    Family("cauchy", "Cauchy numbers", both(cauchy)),
    Family("outl1000", "A: one in 1000 elements ×1000", with_noise(outliers)),
    Family("outl1000both", "A and B: one in 1000 ×1000", both(outliers)),
    Family("6ch300", "activations, six channels ×300; weights", six_channels),
    Family("gradlogn", "log-normal scales of rows and columns", scaled_gradient),
    Family("exp_neg", "exp(-20U) by noise", with_noise(lambda d, *shape: torch.exp(-20 * d.uniform(*shape)))),
    Family("poisson", "counts, means 3 and 0.5", counts),
    Family("relu.5", "ReLU of noise, by noise", with_noise(lambda d, *shape: torch.relu(d.normal(*shape)))),
    Family("relu.1", "ReLU, one in 10 positive, by noise", with_noise(sparse_relu)),
    Family("relu.1both", "ReLU, one in 10 positive, both", both(sparse_relu)),
    Family("gelu", "GELU of noise, by noise", with_noise(lambda d, *shape: functional.gelu(d.normal(*shape)))),
    Family("softmax1", "softmax(N) by noise", with_noise(softmax(1))),
    Family("softmax2", "softmax(2N) by noise", with_noise(softmax(2))),
    Family("softmax4", "softmax(4N) by noise", with_noise(softmax(4))),
    Family("logitgrad", "gradient of logits, by ReLU", logit_gradient),
    Family("rbf1xnoise", "RBF kernel, length 1, by noise", gram(1)),
    Family("rbf2xnoise", "RBF kernel, length 2, by noise", gram(2)),
    Family("rbf5xnoise", "RBF kernel, length 5, by noise", gram(5)),
    Family("rbf1xrbf", "RBF kernel, length 1, by itself", gram(1, both_sides=True)),
    Family("rbf2xrbf", "RBF kernel, length 2, by itself", gram(2, both_sides=True)),
    Family("inv_rbf", "inverse of an RBF kernel matrix", with_noise(inverse_of_gram)),
    Family("inverse", "inverse of noise + 2I, by noise", with_noise(inverse)),
    Family("graded", "six decades along K, both", graded),
    Family("spectrum1", "A's columns / k, by noise", with_noise(spectrum(1))),
    Family("spectrum2", "A's columns / k², by noise", with_noise(spectrum(2))),
    Family("hilbert", "Hilbert matrices", both(hilbert)),
    Family("hilbxnoise", "Hilbert matrix by noise", with_noise(hilbert)),
    Family("vander", "Vandermonde matrix of [-1, 1], by noise", with_noise(vandermonde)),
    Family("dft", "cosines of a DFT, by noise", with_noise(cosines)),
    Family("tril", "lower triangle by noise", with_noise(lambda d, *shape: torch.tril(d.normal(*shape)))),
    Family("trilsq", "last rows of a square lower triangle", with_noise(lower_rows)),
    Family("trilxtriu", "lower by upper triangle", lambda d: (d.normal(d.m, d.k).tril(), d.normal(d.k, d.n).triu())),
    Family("phi4", "(U - ½)·exp(φN), φ = 4", both(heavy_tailed(4)), "needs more"),
    Family("diag12", "A·D by D⁻¹·B, D over 12 decades", diagonal_scaling, "needs more"),
    Family("nearI1e-3", "I + 1e-3·N, by itself", near_identity(1e-3), "needs more"),
    Family("nearI1e-6", "I + 1e-6·N, by itself", near_identity(1e-6), "needs more"),
    Family(
        "onehot",
        "one-hot rows by noise",
        lambda d: (one_hot(d.integers(d.k, d.m), d.k), d.normal(d.k, d.n)),
        "needs more",
    ),
    Family("banded", "band of 17 by noise", with_noise(banded), "needs more"),
    Family("1%", "1 % dense by noise", with_noise(sparse(0.01)), "needs more"),
    Family("1%both", "1 % dense, both", both(sparse(0.01)), "needs more"),
    Family("tfidf", "tf-idf, 1 % dense, by noise", with_noise(tf_idf), "needs more"),
    Family("onebadrow", "one row of exp(20N), by noise", bad_row, "bad"),
    Family("naninf", "one NaN in A, one Inf in B", nan_and_inf, "bad"),
    Family("subnormal", "A subnormal, 1e-41", with_noise(lambda d, *shape: d.normal(*shape) * 1e-41), "ends"),
    Family("allnan", "A all NaN", with_noise(lambda d, *shape: torch.full(shape, torch.nan, device=d.device)), "ends"),
    Family("allinf", "A all Inf", with_noise(lambda d, *shape: torch.full(shape, torch.inf, device=d.device)), "ends"),
    Family("cancel", "1 + 1e-3·N, signs of B alternating", cancelling, "cancels"),
)

# Some families of each kind, for shapes at which not all are measured.
SOME = (
    "randn", "phi1", "loguni8", "softmax4", "logitgrad", "rbf1xnoise", "phi4", "diag12", "nearI1e-3", "1%", "onebadrow", "naninf",
    "subnormal", "cancel",
)  # fmt: skip


def named(names: Sequence[str]) -> list[Family]:
    """Return the families of these names, in their order. Raises ValueError for an unknown name."""
    known = {family.name: family for family in FAMILIES}
    for name in names:
        if name not in known:
            raise ValueError(f"unknown family {name!r}: there are {', '.join(known)}")
    return [known[name] for name in names]


# ---------------------------------------------------------------------------------------------------------------------
# Errors


def judged_rows(m: int) -> Tensor | None:
    """Return which rows of the result to compare with float64, at most JUDGED_ROWS; None for all."""
    if m <= JUDGED_ROWS:
        return None
    spread = torch.arange(JUDGED_ROWS - FIRST_ROWS) * m // (JUDGED_ROWS - FIRST_ROWS)
    return torch.cat([torch.arange(FIRST_ROWS), spread]).unique()


def errors(c: Tensor, truth: Tensor, size: Tensor) -> dict[str, float]:
    """Return, by name, the two gauges of docs/numerics.md, both in units of u = 2^-24: ‖C − C64‖ / ‖C64‖ and max |C − C64| /
    |A||B|. The arguments are C, C64 and |A||B|, of one shape, the last two float64.

    Only entries count whose C64, rounded to fp32, is finite. C must have NaN and Inf exactly where this rounded C64 has the same,
    otherwise both errors are inf. An error of one spacing below the normal range is no error, and 0/0 is 0.
    """
    expected = truth.float()
    if not all(torch.equal(kind(c), kind(expected)) for kind in (torch.isnan, torch.isposinf, torch.isneginf)):
        return dict.fromkeys(GAUGES, torch.inf)
    finite = expected.isfinite()
    exact = truth[finite]
    error = (c[finite].double() - exact).abs()
    error[error <= 2.0**-148] = 0
    by_component = torch.where(error == 0, 0.0, error / size[finite])
    norm = error.norm()
    normwise = float(norm / exact.norm()) if norm else 0.0
    componentwise = float(by_component.max()) if len(exact) else 0.0
    return {"normwise": normwise / U, "componentwise": componentwise / U}


def keeps(ours: dict[str, float], torchs: dict[str, float]) -> bool:
    """Return whether mm32's errors are as docs/numerics.md promises: by each gauge at most torch's on the same data, or FLOOR."""
    return all(ours[gauge] <= max(torchs[gauge], FLOOR) for gauge in GAUGES)


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def measure(
    family: Family,
    m: int,
    k: int,
    n: int,
    batch: int = 1,
    rounds: int = ROUNDS,
    budget: float = 2.0,
    device: str = "cuda",
) -> dict[str, Any]:
    """Return a row of a record.

    Each of IMPLEMENTATIONS has the seconds (median, 95 % interval), the ratio of torch's time to its own, and both `errors`. The
    row also says which tiers computed mm32's result ("tiers", calls by tier: `mm32.stats`; none if the planner chose a kernel
    without tiers) and whether the promise holds ("keeps"). There are at most `rounds` rounds; after the third, none begins once
    `budget` seconds are over.
    """
    a, b = family.inputs(m, k, n, batch, device)
    case = Case(m, n, k, distribution=family.name, batch=batch)
    rows = judged_rows(m)
    truth, size = measuring.truth_of(case, (a, b, None), rows)
    functions = {name: peers.call(name, a, b) for name in IMPLEMENTATIONS}
    tiers = _tiers(functions["mm32"])
    judged = {}
    for name, function in functions.items():
        c = function()
        judged[name] = errors(c if rows is None else c[..., rows, :], truth, size)
    del truth, size, c
    times = measuring.interleave(functions, rounds, budget)
    results = {
        name: {**figures, **judged[name], "kernel": measuring.kernel_of(case, name, (a, b, None))}
        for name, figures in measuring.timed(times).items()
    }
    return {
        "case": case.name, "family": family.name, "what": family.what, "kind": family.kind,
        "m": m, "k": k, "n": n, "batch": batch,
        "rounds": len(times[peers.BASELINE]), "judged_rows": m if rows is None else len(rows),
        "tiers": tiers, "keeps": keeps(judged["mm32"], judged[peers.BASELINE]), "results": results,
    }  # fmt: skip


def _tiers(function: peers.Call) -> dict[str, int]:
    function()  # compiles
    before = mm32.stats().tiers
    function()
    return dict(Counter(mm32.stats().tiers) - Counter(before))


# ---------------------------------------------------------------------------------------------------------------------
# Rows, for a person


def shape(row: dict[str, Any]) -> str:
    """Return M×K×N of a row's product, and its batch if it has one."""
    return f"{row['m']}x{row['k']}x{row['n']}" + (f" batch {row['batch']}" if row["batch"] > 1 else "")


def by_shape(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each shape, in the order of the record."""
    shapes: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        shapes.setdefault(shape(row), []).append(row)
    return shapes


def geometric_means(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return, for each shape, the geometric mean over its families of the ratio of torch's time to each implementation's."""
    return {
        of: {name: summary.geometric_mean([r["results"][name]["speedup"] for r in some]) for name in IMPLEMENTATIONS}
        for of, some in by_shape(rows).items()
    }


def computed_by(row: dict[str, Any]) -> str:
    """Return the tiers that computed mm32's result, or the kernel if it has no tiers."""
    return ", ".join(row["tiers"]) or row["results"]["mm32"]["kernel"]


def both_errors(result: dict[str, Any]) -> str:
    return f"{result['normwise']:.3g} / {result['componentwise']:.3g}"


def line(row: dict[str, Any]) -> str:
    """Return a row as one line: torch's time and the speedups over it, both errors in units of u, the tiers, and whether the
    promise is broken."""
    torchs, tf32, ours = (row["results"][name] for name in IMPLEMENTATIONS)
    return (
        f"{row['family']:12}  {summary.time(torchs['seconds']):>9}  mm32 ×{ours['speedup']:.2f}  TF32 ×{tf32['speedup']:.2f}  "
        f"torch {both_errors(torchs)}  mm32 {both_errors(ours)}  {computed_by(row)}"
        + ("" if row["keeps"] else "  LARGER THAN TORCH'S")
    )
