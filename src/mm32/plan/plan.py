"""A `Plan` is data: what was asked, the card, the launches and the workspace that they share, and how it explains itself.

The launcher runs it, `Plan.explain` prints it, `mm32.export` writes it out as C++. Nothing here calls CUDA or torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mm32 import activations
from mm32.gemm import Gemm
from mm32.plan import card as cards
from mm32.plan.card import OLDEST, Card

KERNELS = ("naive", "dot", "tiled", "simt", "mma", "direct", "tensorcore")
EMULATED_KERNELS = ("mma", "tensorcore")  # fp32 emulated by fp16 products on the tensor cores

Constants = tuple[tuple[str, int], ...]
ACCUMULATE = "common/accumulate.cu"  # adds a block's sums to C
NO_EPILOGUE: Constants = (("BIAS", 0), ("ACTIVATION", 0))


class Unplannable(ValueError):
    """No kernel can do this, or the one that was asked for cannot; the message says why."""


def epilogue(gemm: Gemm) -> Constants:
    """The constants of `gemm`'s bias and activation."""
    return (("BIAS", int(gemm.bias is not None)), ("ACTIVATION", activations.number(gemm.activation)))


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `entry` of `source` (relative to cuda/kernels), compiled with the MM32_... definitions of `constants`,
    `block` threads a block and `shared` bytes of dynamic shared memory.

    Kernels use a grid-stride loop over tiles, so any grid size is correct, except for simt with stream-K: there it must be
    `Workspace.parts`. `blocks` is how many blocks to start. If it is None, the number follows from `unit`, what a block computes:
    (e,) consecutive output elements or a (rows, columns) tile.

    `takes_workspace`: the kernel's argument is struct Params (workspace.cuh), else struct Problem (problem.cuh).
    `dependent`: the launch may start while the one before it runs (programmatic dependent launch).
    `cluster`: blocks of a thread block cluster; `blocks` is a multiple of it.
    `fallback`: it recomputes by multiply-adds what, if anything, the tensor cores cannot represent.
    `lower`: it belongs to the lower tier (bf16x6), and does something only if the card chose that tier.
    """

    source: str
    entry: str
    constants: Constants
    block: int
    shared: int
    unit: tuple[int, ...] = ()
    blocks: int | None = None
    takes_workspace: bool = False
    dependent: bool = False
    cluster: int = 1
    fallback: bool = False
    lower: bool = False

    def grid(self, gemm: Gemm) -> int:
        """Blocks to start for `gemm`."""
        if self.blocks is not None:
            return self.blocks
        if len(self.unit) == 1:
            units = -(-gemm.batches * gemm.m * gemm.n // self.unit[0])
        else:
            units = gemm.batches * -(-gemm.m // self.unit[0]) * -(-gemm.n // self.unit[1])
        return min(units, cards.MAX_GRID)

    def grid_in_cpp(self) -> str:
        """`grid` as a C++ expression of long long m and n, for one matrix; ceil_div is from common/problem.cuh."""
        if self.blocks is not None:
            return str(self.blocks)
        axes = ("m * n",) if len(self.unit) == 1 else ("m", "n")
        units = " * ".join(f"ceil_div({axis}, {size})" for axis, size in zip(axes, self.unit, strict=True))
        return f"min({units}, {cards.MAX_GRID}LL)"


@dataclass(frozen=True)
class Field:
    """A field of struct Params: an attribute of `Workspace`, its type in C++, and whether it is an array of two, A's and B's.

    For a pointer, the Workspace has an offset in bytes; for a number, the number itself.
    """

    name: str
    type: str
    pair: bool

    @property
    def pointer(self) -> bool:
        return self.type.endswith("*")


# struct Params of common/workspace.cuh after its first field, the problem `p`: the launcher's struct and the C++ of an exported
# file are made from it.
PARAMS = (
    Field("panels", "char*", True),
    Field("stats", "RowStats*", True),
    Field("ready", "unsigned*", True),
    Field("decision", "Decision*", False),
    Field("partial_sums", "float*", False),
    Field("matrices", "long long", True),
    Field("parts", "long long", False),
    Field("early", "long long", False),
    Field("first_rows", "long long", True),
)


@dataclass(frozen=True)
class Workspace:
    """Device memory in addition to the operands, `bytes` long, as struct Params (PARAMS) describes it to the kernels.

    Offsets in bytes from its start: `panels`, `stats` and `ready` counters of A and of B, the accept test's `decision`, and
    `partial_sums` (with stream-K, partial tiles).

    `matrices`: how many matrices of A and of B are packed.
    `parts`: how many blocks share K (split-K) or, with stream-K, how many share the last tiles.
    `first_rows`: the rows of A and of B to pack first; 0 if the multiply waits for all of them.
    `early`: 1 if the card may leave everything to the lower tier before it packs.
    `prepacked`: whether A and B were packed before. Such an operand has memory of its own, and its offsets count from there.
    `own_panels`: the panels of a prepacked operand are in this memory nevertheless, because it is packed again.
    `lower`: the workspace that the launches of the lower tier use, in the same memory.
    """

    bytes: int
    panels: tuple[int, int]
    stats: tuple[int, int]
    ready: tuple[int, int]
    decision: int
    partial_sums: int
    matrices: tuple[int, int]
    parts: int
    first_rows: tuple[int, int]
    early: int = 0
    prepacked: tuple[bool, bool] = (False, False)
    own_panels: bool = False
    lower: Workspace | None = None


class Step(NamedTuple):
    """One of the calls that a product in blocks is made of, in their order: it runs plan number `part` of `Blocks.parts`.

    `a`, `b`, `c`, `bias`: the first elements of its operands, of its block of C and of its bias, counted in elements from the
    first element of the whole. `reads_sums`: it adds the block's sums to C, and its A is the sums. `writes_sums`: its result
    goes to the sums, and not to C.
    """

    part: int
    a: int
    b: int
    c: int
    bias: int
    reads_sums: bool = False
    writes_sums: bool = False


@dataclass(frozen=True)
class Blocks:
    """A product as a sequence of smaller ones, because its workspace would be larger than `limit` bytes otherwise.

    `matrices`, `rows`, `columns`: how many matrices, rows of A and columns of B a block has, except for the last blocks.
    `spans`: into how many spans K is cut. The products of all but the first go to the sums, a block-sized part of the workspace
    that begins at its `partial_sums`, and are added to C from there.
    `parts`: the plans of the different products and additions. All share one workspace.
    `steps`: the calls, in their order.
    """

    limit: int
    matrices: int
    rows: int
    columns: int
    spans: int
    parts: tuple[Plan, ...]
    steps: tuple[Step, ...]

    @property
    def products(self) -> int:
        """How many steps multiply; the others add."""
        return sum(not step.reads_sums for step in self.steps)

    @property
    def count(self) -> int:
        """How many blocks C has."""
        return self.products // self.spans

    @property
    def depths(self) -> tuple[int, int]:
        """The shortest and the longest span of K."""
        depths = [part.gemm.k for part in self.parts if not part.adds]
        return min(depths), max(depths)


@dataclass(frozen=True)
class Plan:
    """How one `Gemm` runs on one `Card`: the launches, in their order, and the workspace that they share. Or `blocks`, which have
    plans of their own: then there are no launches here. Kernel "torch" is torch's own product, without launches.

    `estimates`: the planner's predictions in seconds, not measurements, of the kernels that it compared, the least first.
    `refused`: the kernels that it did not compare, each with the reason.
    """

    gemm: Gemm
    card: Card
    kernel: str
    launches: tuple[Launch, ...]
    reason: str = ""
    workspace: Workspace | None = None
    estimates: tuple[tuple[str, float], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    blocks: Blocks | None = None

    @property
    def adds(self) -> bool:
        """Whether it is the part of a product in blocks that adds a block's sums to C, and multiplies nothing."""
        return any(launch.source == ACCUMULATE for launch in self.launches)

    def workspace_of(self, launch: Launch) -> Workspace | None:
        """The workspace in the launch's argument; None if the argument is the problem alone."""
        if self.workspace is None or not launch.takes_workspace:
            return None
        return self.workspace.lower if launch.lower else self.workspace

    @property
    def scheme(self) -> str | None:
        """How an emulated kernel computes fp32: "fp16x3" (fp16 hi and lo, three products), "bf16x6" (bf16 hi, mid and lo, six)
        or "fp16" (one); None for others."""
        launches = self.launches if self.blocks is None else self.blocks.parts[0].launches
        if not any(launch.source.startswith("emulated/") for launch in launches):  # simt computes what has no products
            return None
        if self.kernel == "direct":
            return "bf16x6"
        return {"tf32": "fp16", "bf16x6": "bf16x6"}.get(self.gemm.precision, "fp16x3")

    def explain(self) -> str:
        """The plan as a page: what was asked, what was chosen and why, what will be launched."""
        g, card = self.gemm, self.card
        fused = ["bias"] * (g.bias is not None) + ([g.activation] if g.activation else [])
        batch = f", batch {'x'.join(map(str, g.batch))}" if g.batch else ""
        seen = "" if card.fitted else "; estimates were not fitted on this card"
        scheme = f" ({self.scheme})" if self.scheme else ""
        lines = [
            f"gemm       M={g.m} N={g.n} K={g.k}{batch}, layout {g.layout}, epilogue {' + '.join(fused) or 'none'}, "
            f"precision {g.precision}",
            f"card       {card.name} ({card.arch}, {card.sms} multiprocessors){seen}",
        ]
        if g.empty:
            return "\n".join(
                [*lines, "kernel     none: the result has no elements, so nothing is computed or launched"]
            )
        lines.append(f"kernel     {self.kernel}{scheme}: {self.reason}")
        shown = [self] if self.blocks is None else self._examples()
        if self.blocks is not None:
            lines += self._blocks()
        for plan in shown:
            lines += [line for launch in plan.launches for line in _launched(launch, plan.gemm)]
        limit = f", limited to {self.blocks.limit}" if self.blocks else ""
        lines.append(f"workspace  {self.workspace.bytes if self.workspace else 0} bytes{limit}")
        if self.kernel == "torch":
            lines.append("           torch's own product by cuBLAS, then bias and activation as passes of their own")
        if self.estimates:
            lines.append("estimates  " + ", ".join(f"{name} {_time(t)}" for name, t in self.estimates))
        lines += [f"not taken  {name}: {why}" for name, why in self.refused]
        return "\n".join(lines)

    def _blocks(self) -> list[str]:
        """What `explain` says about the blocks."""
        assert self.blocks is not None
        assert self.workspace is not None
        g, blocks = self.gemm, self.blocks
        least, most = blocks.depths
        of = f"{blocks.matrices} of {g.batches} matrices, " if g.batches > blocks.matrices else ""
        depth = f"{least} to {most}" if least != most else str(most)
        spans = f"{blocks.spans} spans of {depth} of K" if blocks.spans > 1 else "K whole"
        added = len(blocks.steps) - blocks.products
        sums = self.workspace.bytes - self.workspace.partial_sums
        lines = [
            f"blocks     {blocks.count} of {of}{min(blocks.rows, g.m)} x {min(blocks.columns, g.n)} of C, {spans}: "
            f"{blocks.products} products, because all at once would need a larger workspace"
        ]
        if added:
            lines.append(
                f"           {added} additions of the {sums} bytes of a block's sums to C, the epilogue with the last ones"
            )
        first = blocks.parts[blocks.steps[0].part].gemm
        lines.append(
            f"           the launches of the first product, M={first.m} N={first.n} K={first.k}"
            + (", and of the last addition:" if added else ":")
        )
        return lines

    def _examples(self) -> list[Plan]:
        """The first product, and the last addition."""
        assert self.blocks is not None
        parts, steps = self.blocks.parts, self.blocks.steps
        return [parts[steps[0].part]] + ([parts[steps[-1].part]] if steps[-1].reads_sums else [])


def _launched(launch: Launch, gemm: Gemm) -> list[str]:
    how = ", while the one before it runs" if launch.dependent else ""
    how += f", in clusters of {launch.cluster}" if launch.cluster > 1 else ""
    how += ", only for what fails the accept test (fallback)" if launch.fallback else ""
    how += ", only if much fails the accept test (bf16x6)" if launch.lower else ""
    return [
        f"launch     {launch.entry} ({launch.source}): {launch.grid(gemm)} blocks of {launch.block} threads, "
        f"{launch.shared} bytes of dynamic shared memory{how}",
        f"           {', '.join(f'{k}={v}' for k, v in launch.constants)}",
    ]


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def unsupported(kernel: str, card: Card) -> str | None:
    """Return why `kernel` cannot run on `card`, or None if it can."""
    major, minor = card.capability
    if card.capability < OLDEST:
        return f"mm32's kernels are compiled for compute capability 8.0 and later; {card.name} has {major}.{minor}"
    if kernel in ("direct", "tensorcore") and card.capability != (9, 0):
        instead = ": kernel 'mma' is the same scheme for it" if kernel == "tensorcore" else ""
        return f"it is made of Hopper's wgmma instructions, compute capability 9.0; {card.name} has {major}.{minor}{instead}"
    return None


def check_kernel(kernel: str) -> None:
    """Raise ValueError unless `kernel` is "auto" or one of KERNELS."""
    if kernel != "auto" and kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: mm32 has 'auto', {', '.join(map(repr, KERNELS))}")
