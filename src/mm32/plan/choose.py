"""The only place that chooses: `plan(gemm, card)` compares the kernels' best candidates and says why it took one.

Nothing here calls CUDA or torch, so a plan can be made for a card that is not present.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

from mm32.gemm import Gemm, Matrix
from mm32.plan import blocks, cost, direct, emulated, fma
from mm32.plan.card import OLDEST, Card
from mm32.plan.cost import Work
from mm32.plan.plan import EMULATED_KERNELS, KERNELS, Plan, Unplannable, check_kernel, unsupported

_RUNGS: dict[str, Callable[[Work, cost.Model], float]] = {"naive": fma.naive, "dot": fma.dot, "tiled": fma.tiled}
_seconds = itemgetter(0)
# Estimates of torch's time scatter by 15 %, since cuBLAS chooses among many kernels. Where they are below SHORT seconds, mm32's
# kernel must be estimated to be faster by the factor CLEARLY. Of 759 random products (H200), 25 were then more than 5 % slower
# than torch's, and 54 without it, at the same mean gain. For longer products it would cost gain, and for a matrix and a vector,
# whose estimates are within 3 %, up to a tenth.
CLEARLY, SHORT = 1.05, 50e-6


@dataclass(frozen=True)
class Option:
    """A kernel's best candidate. `seconds`: its estimate. `assemble`: makes its plan."""

    kernel: str
    seconds: float
    assemble: Callable[[], Plan]


def plan(
    gemm: Gemm,
    card: Card,
    kernel: str = "auto",
    prepacked: tuple[bool, bool] = (False, False),
    *,
    torch: str | None = None,
    passes: int = 0,
    drop_in: bool = False,
    limit: int | None = None,
) -> Plan:
    """The plan for `gemm` on `card`.

    Args:
        kernel: the kernel to use, or "auto" for the one that is estimated to be fastest.
        prepacked: whether A and B were packed beforehand. The plan then has an emulated kernel, unless none suits the product,
            which is then computed without the packed operands.
        torch: the precision ("fp32" or "tf32") of torch's own product, where "auto" may choose that product: the plan then has
            kernel "torch" and no launches. None forbids it.
        passes: element-wise passes over the result that mm32 would need after its product and torch would not.
        drop_in: whether torch's product is a call that the user made, with operands of any strides and its own addition of the
            bias. Otherwise mm32 would make it, of operands that cuBLAS takes as they lie, with bias and activation as passes.
        limit: the most bytes that the workspace may have; an emulated kernel computes what needs more in blocks. None: no limit.
            A plan for prepacked operands is not limited: their panels are of whole operands.

    Raises ValueError for a kernel or a precision that does not exist, `Unplannable` for one that cannot run here.
    """
    check_kernel(kernel)
    if torch not in (None, "fp32", "tf32"):
        raise ValueError(f"torch's own product has precision 'fp32' or 'tf32', got {torch!r}")
    names = KERNELS if kernel == "auto" else (kernel,)
    refused = {name: why for name in names if (why := unsupported(name, card) or _unsuited(name, gemm))}
    work = Work(gemm)
    if any(prepacked) and kernel in ("auto", *EMULATED_KERNELS):
        name = emulated.emulated_kernel(card) if kernel == "auto" else kernel
        if name not in refused:
            option = _emulated(name, work, card, prepacked)
            which = " and ".join(side for side, done in zip("AB", prepacked, strict=True) if done)
            return replace(option.assemble(), reason=f"{which} packed beforehand", estimates=((name, option.seconds),))
    if kernel == "auto":
        refused |= {name: why for name in names if name not in refused and (why := _left_out(name, gemm, card))}
    options: list[Option] = []
    short: set[str] = set()  # the kernels without room in the limit, which the user can raise
    for name in names:
        if name not in refused:
            try:
                options.append(_option(name, work, card, limit))
            except _NoRoom as error:
                refused[name] = str(error)
                short.add(name)
    if not options:
        why = next((why for name, why in refused.items() if name in short), next(iter(refused.values())))
        if kernel == "auto" and gemm.precision == "bf16x6" and OLDEST <= card.capability != (9, 0):
            major, minor = card.capability
            raise Unplannable(
                "precision 'bf16x6' cannot run here: kernels 'tensorcore' and 'direct' alone have it, on compute capability 9.0; "
                f"{card.name} has {major}.{minor}: precision 'ieee' is fp32 multiply-adds on every card"
            )
        if torch is None or kernel != "auto":
            raise Unplannable(f"kernel {kernel!r} cannot run here: {why}")
        return Plan(gemm, card, "torch", (), why)
    after = cost.of(card).passes(work, passes, 3) if passes else 0.0
    estimates = [(option.kernel, option.seconds + after) for option in options]
    if torch is not None and kernel == "auto" and _torch_may(gemm, torch, drop_in):
        options.append(_torch(work, card, torch, drop_in))
        estimates.append(("torch", options[-1].seconds))
    fastest = min(range(len(options)), key=lambda i: _compared(*estimates[i], work))
    own = sum(option.kernel != "torch" for option in options)
    beside = " and torch's" if own < len(options) else ""
    if kernel != "auto":
        reason = "asked for by name"
    elif options[fastest].kernel == "torch" and estimates[fastest][1] > min(seconds for _, seconds in estimates):
        reason = f"none of {own} kernels is estimated to be {CLEARLY - 1:.0%} faster than torch's"
    else:
        reason = f"least estimated time of {own} kernels{beside}"
    if gemm.k == 0 and options[fastest].kernel in ("direct", *EMULATED_KERNELS):
        reason += "; K is 0, and simt computes what is left, the epilogue"
    return replace(
        options[fastest].assemble(),
        reason=reason,
        estimates=tuple(sorted(estimates, key=itemgetter(1))),
        refused=tuple(refused.items()) if card.capability >= OLDEST else (),
    )


def without_workspace(gemm: Gemm, card: Card, kernel: str = "auto") -> Plan:
    """The fastest plan that takes no memory beyond the operands. `kernel`: "auto" or "simt"."""
    work = Work(gemm)
    chosen = min(fma.candidates(work, card, workspace=False), key=_seconds)
    plan = fma.assemble(chosen, gemm, card)
    fits = unsupported("direct", card) is None and direct.unsuited(gemm) is None and gemm.k > 0 and not gemm.empty
    if kernel == "auto" and fits:
        option = _option("direct", work, card)
        if option.seconds < chosen.seconds:
            plan = option.assemble()
    return replace(plan, reason="it needs no workspace")


def candidates(gemm: Gemm, card: Card, kernel: str, torch: str = "fp32") -> list[tuple[str, float, Callable[[], Plan]]]:
    """The ways of one kernel to compute a product that is not empty, as (label, estimated seconds, function that makes the
    plan), for benchmarks/fit.py. `kernel` is one of KERNELS that runs on the card and takes the product; or "torch", in
    precision `torch`.
    """
    work = Work(gemm)
    if kernel == "simt":
        return [(c.label, c.seconds, partial(fma.assemble, c, gemm, card)) for c in fma.candidates(work, card)]
    if kernel == "direct":
        return [(d.label, d.seconds, partial(direct.assemble, d, gemm, card)) for d in direct.candidates(work, card)]
    if kernel in EMULATED_KERNELS:
        listed = emulated.candidates(kernel, work, card)
        return [(c.label, c.seconds, partial(emulated.assemble, c, gemm, card)) for c in listed]
    option = _torch(work, card, torch, drop_in=False) if kernel == "torch" else _option(kernel, work, card)
    return [(kernel, option.seconds, option.assemble)]


# ---------------------------------------------------------------------------------------------------------------------


def _compared(kernel: str, seconds: float, work: Work) -> float:
    """Return the estimate that is compared with those of other kernels."""
    clearly = kernel == "torch" and seconds < SHORT and min(work.m, work.n) > 1
    return seconds / CLEARLY if clearly else seconds


def _unsuited(kernel: str, gemm: Gemm) -> str | None:
    """Why a kernel cannot compute `gemm`, or None if it can."""
    return direct.unsuited(gemm) if kernel == "direct" else emulated.unsuited(kernel, gemm)


def _left_out(kernel: str, gemm: Gemm, card: Card) -> str | None:
    """Why "auto" does not consider a kernel that could run, or None."""
    if kernel in _RUNGS and not card.fitted:
        return "simt computes all that it does, and its estimates were not fitted on this card"
    if kernel in _RUNGS and gemm.flops > fma.TRIVIAL:
        return f"above {fma.TRIVIAL:.3g} FLOP simt is at least as fast"
    if kernel in EMULATED_KERNELS and (why := emulated.too_short(kernel, gemm)):
        return why
    if kernel == "mma" and unsupported("tensorcore", card) is None:
        return "tensorcore is the same scheme, by wgmma"
    return None


class _NoRoom(Unplannable):
    """A kernel can compute a product, but not with a workspace within the limit."""


def _option(kernel: str, work: Work, card: Card, limit: int | None = None) -> Option:
    gemm = work.gemm
    if kernel in _RUNGS:
        seconds = _RUNGS[kernel](work, cost.of(card))
        return Option(kernel, seconds, lambda: fma.assemble_rung(kernel, gemm, card))
    if kernel == "simt":
        return _simt(work, card, limit)
    if kernel == "direct" and gemm.k > 0 and not gemm.empty:
        best = min(direct.candidates(work, card), key=_seconds)
        return Option(kernel, best.seconds, lambda: direct.assemble(best, gemm, card))
    return _emulated(kernel, work, card, limit=limit)


def _simt(work: Work, card: Card, limit: int | None) -> Option:
    gemm, listed = work.gemm, fma.candidates(work, card)
    chosen = min(listed, key=_seconds)
    if limit is not None and not _within(fma.assemble(chosen, gemm, card), limit):
        # There is one: a candidate whose blocks do not share K takes no workspace.
        chosen = next(c for c in sorted(listed, key=_seconds) if _within(fma.assemble(c, gemm, card), limit))
    return Option("simt", chosen.seconds, lambda: fma.assemble(chosen, gemm, card))


def _within(plan: Plan, limit: int) -> bool:
    return plan.workspace is None or plan.workspace.bytes <= limit


def _emulated(
    kernel: str,
    work: Work,
    card: Card,
    prepacked: tuple[bool, bool] = (False, False),
    limit: int | None = None,
) -> Option:
    gemm = work.gemm
    if gemm.k == 0 or gemm.empty:
        return Option(kernel, 2 * card.launch, lambda: replace(without_workspace(gemm, card), kernel=kernel))
    chosen = min(emulated.candidates(kernel, work, card, prepacked), key=_seconds)
    if any(prepacked):
        chosen = emulated.with_prepacked(chosen, work, card, prepacked)
    elif limit is not None and not _within(whole := emulated.assemble(chosen, gemm, card), limit):
        best = blocks.best(kernel, work, card, limit)
        if best is None:
            assert whole.workspace is not None
            raise _NoRoom(
                f"it wants a workspace of {whole.workspace.bytes} bytes, and computes no blocks of this product within the "
                f"limit of {limit}: mm32.set_workspace_limit raises it"
            )
        return Option(kernel, best.seconds, best.plan)
    return Option(kernel, chosen.seconds, lambda: emulated.assemble(chosen, gemm, card, prepacked))


def _torch(work: Work, card: Card, precision: str, drop_in: bool) -> Option:
    gemm, model = work.gemm, cost.of(card)
    own = 0 if drop_in else (gemm.bias is not None) + (gemm.activation is not None)
    seconds = model.torch(work, precision) + model.passes(work, own, 2)
    return Option("torch", seconds, lambda: Plan(gemm, card, "torch", ()))


def _torch_may(gemm: Gemm, precision: str, drop_in: bool) -> bool:
    """Return whether torch's product is one of the choices.

    It never is where bf16x6 was asked for, and otherwise always is for `drop_in`. A product that mm32 would make must not be
    empty, and must have at most one batch dimension. Where TF32 was asked for it must be TF32, because its fp32 never pays there.
    And cuBLAS must take the operands and the result as they lie.
    """
    if gemm.precision == "bf16x6":
        return False
    if drop_in:
        return True
    if gemm.empty or gemm.k == 0 or (gemm.precision == "tf32" and precision == "fp32") or len(gemm.batch) > 1:
        return False

    def lies(matrix: Matrix, rows: int, cols: int) -> bool:
        along_cols = (matrix.col == 1 or cols == 1) and (matrix.row >= cols or rows == 1)
        return along_cols or ((matrix.row == 1 or rows == 1) and (matrix.col >= rows or cols == 1))

    sides = ((gemm.a, gemm.m, gemm.k), (gemm.b, gemm.k, gemm.n), (gemm.out, gemm.m, gemm.n))
    return all(lies(*side) for side in sides)
