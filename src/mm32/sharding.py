"""mm32's operators on DTensors (torch.distributed.tensor): which shards of operands make which shards of the result.

`cases` is the only table of this, for one dimension of a mesh; torch combines it over the dimensions. It has two readers. The
operators are registered with torch's `register_sharding`, and torch then chooses the case that moves the least. Where an operand
or the result may not move (packed operands, `out=`), `_pinned` chooses here and multiplies the local tensors.

A sum over K that is spread over ranks is `Partial`: nothing is added up until somebody needs the sum. A bias takes part in the
open sum; an activation has to wait until it is added up. torch keeps its choice for later calls with the same placements, and
tells calls apart by integer arguments but not by strings. So DTensors have an operator of their own, `mm32::sharded_matmul`,
whose activation is a number. `mm32::matmul` itself, called on DTensors past autograd, never leaves a sum open.

Importing this module does not import torch.distributed.tensor: that is done when the first DTensor comes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from mm32 import activations, gemm, torch_product
from mm32.options import Activation, Kernel, Precision
from mm32.packed import PackedOperand, local_of, ready, unwrap


def among(*operands: object) -> bool:
    """Return whether one of the operands is a DTensor, packed or not."""
    return any(gemm.is_dtensor(t.source if isinstance(t, PackedOperand) else t) for t in operands)


# ---------------------------------------------------------------------------------------------------------------------
# The table


class Case(NamedTuple):
    """Placements on one dimension of a mesh that fit together. `bias` is for calls that have one."""

    name: str
    out: Any
    a: Any
    b: Any
    bias: Any


def cases(a: Sequence[Any], b: Sequence[Any], sums: bool) -> list[Case]:
    """The cases of one dimension of a mesh, for operands of global shapes `a` and `b`: what is sharded is nothing, the rows, the
    columns, a batch dimension or, with `sums`, K."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    whole, shape = Replicate(), gemm.result_shape(a, b)
    found = [Case("replicated", whole, whole, whole, whole)]  # first: it is taken where others are equally cheap
    if len(a) > 1:
        rows = len(shape) - (2 if len(b) > 1 else 1)
        found.append(Case("rows", Shard(rows), Shard(len(a) - 2), whole, whole))
    if len(b) > 1:
        found.append(Case("columns", Shard(len(shape) - 1), whole, Shard(len(b) - 1), Shard(0)))
    rank = max(len(a), len(b), 2) - 2
    for i in range(rank):
        own = [i - (rank - max(len(operand) - 2, 0)) for operand in (a, b)]
        of_a, of_b = (
            Shard(d) if d >= 0 and not gemm.known(operand[d] == 1) else whole
            for operand, d in zip((a, b), own, strict=True)
        )
        if (of_a, of_b) != (whole, whole):
            found.append(Case(f"batch {i}", Shard(i), of_a, of_b, whole))
    if sums:
        found.append(Case("K", Partial(), Shard(len(a) - 1), Shard(max(len(b) - 2, 0)), Partial()))
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The operators' strategies

torch.library.define(
    "mm32::sharded_matmul",
    "(Tensor a, Tensor b, Tensor? bias, int activation, str precision, str kernel) -> Tensor",
    tags=(torch.Tag.needs_exact_strides,) if hasattr(torch.Tag, "needs_exact_strides") else (),
)


@torch.library.register_fake("mm32::sharded_matmul")
def _sharded_matmul_fake(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: int, precision: str, kernel: str
) -> torch.Tensor:
    return a.new_empty(gemm.check_inputs(a, b, bias, activations.name(activation), precision))


def _strategies_of_sharded_matmul(a: Any, b: Any, bias: Any, activation: int, precision: str, kernel: str) -> list:
    return [
        ([case.out], [case.a, case.b, None if bias is None else case.bias, None, None, None])
        for case in cases(a.shape, b.shape, sums=activation == 0)
    ]


def _strategies_of_matmul(
    a: Any, b: Any, bias: Any, activation: Any, precision: Any, kernel: Any, packed_a: Any = None, packed_b: Any = None
) -> list:
    """The strategies of mm32::matmul. Its activation is a string, by which torch does not tell calls apart, so no sum is left
    open. Panels are of a whole operand, so nothing is sharded if an operand comes packed."""
    table = cases(a.shape, b.shape, sums=False)
    if not (packed_a is None and packed_b is None):
        table = table[:1]
    return [
        (
            [case.out],
            [
                *(case.a, case.b, None if bias is None else case.bias, None, None, None),
                *(None if t is None else case.out for t in (packed_a, packed_b)),
            ],
        )
        for case in table
    ]


def _strategies_of_matmul_out(
    a: Any,
    b: Any,
    bias: Any,
    activation: Any,
    precision: Any,
    kernel: Any,
    out: Any,
    packed_a: Any = None,
    packed_b: Any = None,
) -> list:
    """The strategies of mm32::matmul_out. `out` may not be moved, because what is written to a copy of it would be lost. That
    can be expressed here only if `out` has one placement for all dimensions of the mesh; `mm32.matmul(out=)` takes any but
    Partial."""
    found: list[tuple] = []
    if len(set(out.placements)) == 1:
        for (wanted,), operands in _strategies_of_matmul(a, b, bias, activation, precision, kernel, packed_a, packed_b):
            if wanted == out.placements[0]:
                found.append(([], [*operands[:6], wanted, *operands[6:]]))
    if not found:
        raise RuntimeError(
            f"mm32::matmul_out cannot write to an out of placements {tuple(out.placements)}: call mm32.matmul(..., out=out), "
            "which takes any but Partial"
        )
    return found


def _strategies_of_pack(operand: Any, side: Any, precision: Any) -> list:
    """The strategies of mm32::pack. A packed form cannot be sharded: `mm32.pack` packs each rank's own shard, and the operator
    packs the whole operand."""
    from torch.distributed.tensor import Replicate

    return [([Replicate()], [Replicate(), None, None])]


@functools.cache
def register() -> None:
    """Register the operators with torch.distributed.tensor, once in a process."""
    from torch.distributed.tensor.experimental import register_sharding

    own = torch.ops.mm32
    register_sharding(own.sharded_matmul.default)(_strategies_of_sharded_matmul)
    register_sharding(own.matmul.default)(_strategies_of_matmul)
    register_sharding(own.matmul_out.default)(_strategies_of_matmul_out)
    register_sharding(own.pack.default)(_strategies_of_pack)


def product(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, precision: str, kernel: str
) -> torch.Tensor:
    """Compute mm32::matmul of DTensors, below autograd; `transforms.autograd` calls this."""
    register()
    run = torch.ops.mm32.sharded_matmul
    if activation is not None and _sums_over_ranks(a, b):
        return torch_product.activate(
            run(a, b, bias, 0, precision, kernel), activation
        )  # torch adds up before the activation
    return run(a, b, bias, activations.number(activation), precision, kernel)


def _sums_over_ranks(a: Any, b: Any) -> bool:
    """Return whether K is sharded in one operand, and the other one can be sharded alike without communication. The sum is
    communicated then, not the operands."""
    if not (gemm.is_dtensor(a) and gemm.is_dtensor(b)):
        return False
    k_a, k_b = a.dim() - 1, max(b.dim() - 2, 0)
    for p, q in zip(a.placements, b.placements, strict=True):
        of_k = p.is_shard(k_a), q.is_shard(k_b)
        if any(of_k) and (of_k[0] or p.is_replicate()) and (of_k[1] or q.is_replicate()):
            return True
    return False


def splits_rows(*tensors: Any) -> bool:
    """Return whether the dimensions before the last are sharded so that they cannot be merged without moving data: one after the
    first is, or the first is in parts of different sizes."""
    for t in tensors:
        if not gemm.is_dtensor(t):
            continue
        parts = math.prod(t.device_mesh.size(axis) for axis, p in enumerate(t.placements) if p.is_shard(0))
        if t.shape[0] % parts or any(p.is_shard(d) for p in t.placements for d in range(1, t.dim() - 1)):
            return True
    return False


# ---------------------------------------------------------------------------------------------------------------------
# What mm32.matmul does with DTensors


def matmul(
    a: Any,
    b: Any,
    bias: Any,
    activation: Activation | None,
    precision: Precision,
    kernel: Kernel,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Compute mm32.matmul where an operand is a DTensor, for options that were checked before."""
    packed = [t for t in (a, b) if isinstance(t, PackedOperand)]
    sources: Any = unwrap(a, b, precision, kernel)[:2] if packed else (a, b)
    gemm.check_tensors("mm32.matmul", a=sources[0], b=sources[1], bias=bias, out=out)
    named = {"a": sources[0], "b": sources[1], "bias": bias, "out": out}
    named = {name: t for name, t in named.items() if t is not None}
    tensors = list(named.values())
    if packed or out is not None:
        _check_all_sharded(named, {name for name, t in (("a", a), ("b", b)) if isinstance(t, PackedOperand)})
        if out is not None:
            x, y = sources
            if any(p.is_partial() for p in tensors[-1].placements):
                raise RuntimeError(
                    f"mm32.matmul cannot write to an out of placements {tuple(tensors[-1].placements)}: a result is not a sum "
                    "that is still to be added up; give an out that is sharded or replicated"
                )
            gemm.check_out_form(out, gemm.check_inputs(x, y, bias, activation, precision), x)
            # A rank whose shard is empty would not see by the memory that they are the same, and wait for the others.
            for name, t in (("a", x), ("b", y), ("bias", bias)):
                if t is out:
                    raise RuntimeError(f"out overlaps {name} in memory: give mm32.matmul an out of its own")
        recorded = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if recorded and out is not None:
            raise RuntimeError(
                "matmul(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
                "requires grad. (mm32.matmul)"
            )
        # While gradients are recorded or a program is traced, the source of a packed operand is read.
        if not (recorded or torch.compiler.is_dynamo_compiling()):
            done = _pinned(a, b, bias, activation, precision, kernel, out)
            if done is not None:
                return done
    x, y = sources
    # mm32::matmul finds the operator of DTensors by autograd's key, which inference mode leaves out.
    if not torch.compiler.is_dynamo_compiling() and torch.is_inference_mode_enabled():
        result = product(x, y, bias, activation, precision, kernel)
    else:
        result = torch.ops.mm32.matmul(x, y, bias, activation, precision, kernel)
    if out is None:
        return result
    target: Any = out
    moved: Any = result
    return target.copy_(moved.redistribute(placements=target.placements))


def _check_all_sharded(tensors: dict[str, Any], packed: set[str]) -> None:
    """`packed`: the names of those that are the sources of packed operands."""
    mesh = None
    for name, t in tensors.items():
        if not gemm.is_dtensor(t):
            what = (
                "mm32.pack of the DTensor packs each rank's shard"
                if name in packed
                else "distribute_tensor makes a DTensor of it"
            )
            raise RuntimeError(
                f"mm32.matmul got mixed torch.Tensor and DTensor: all tensors have to be DTensors, and {name}, of shape "
                f"{tuple(t.shape)}, is a plain tensor: {what}"
            )
        mesh = mesh or t.device_mesh
        if t.device_mesh != mesh:
            raise RuntimeError(
                f"mm32.matmul: DTensors on two meshes, {mesh} and {t.device_mesh}: distribute both over one "
                "mesh, with distribute_tensor(t.full_tensor(), mesh, placements)"
            )


class _Choice(NamedTuple):
    """The placements of a product's tensors, for each dimension of the mesh. `summed`: the dimensions over which the result is
    still a sum. `shape`, `strides`: those of the result."""

    a: tuple[Any, ...]
    b: tuple[Any, ...]
    bias: tuple[Any, ...]
    out: tuple[Any, ...]
    summed: tuple[int, ...]
    shape: torch.Size
    strides: tuple[int, ...]


def _pinned(
    a: Any, b: Any, bias: Any, activation: Activation | None, precision: Precision, kernel: Kernel, out: Any
) -> torch.Tensor | None:
    """Compute the product from local tensors, with packed operands and `out` left where they are. Returns None if no case leaves
    `out` where it is and moves nothing else: the result is then made on its own, and copied."""
    from torch.distributed.tensor import DTensor

    from mm32 import functions

    packed = isinstance(a, PackedOperand), isinstance(b, PackedOperand)
    x, y = a.source if packed[0] else a, b.source if packed[1] else b
    mesh = x.device_mesh
    given = (x.placements, y.placements, None if bias is None else bias.placements)
    choice = _choose(tuple(x.shape), tuple(y.shape), given, packed, None if out is None else out.placements)
    if choice is None:
        if out is not None:
            return None
        raise RuntimeError(
            f"mm32.matmul: operands of placements {tuple(x.placements)} and {tuple(y.placements)} do not go together on this "
            "mesh, and a packed operand does not move: pack them as they are to be multiplied"
        )
    with torch.no_grad():
        local_a = a.shard if packed[0] else _local(a, choice.a)
        local_b = b.shard if packed[1] else _local(b, choice.b)
        own_bias = None if bias is None else _local(bias, choice.bias)
        if own_bias is not None and choice.summed:  # this rank's share, as torch divides a replicated tensor into a sum
            own_bias = own_bias / math.prod(mesh.size(dim) for dim in choice.summed)
        local = functions.matmul(
            local_a,
            local_b,
            bias=own_bias,
            activation=None if choice.summed else activation,
            precision=precision,
            kernel=kernel,
            out=None if out is None else local_of(out),
        )
        if out is not None:
            if not out.is_inference():
                torch.autograd.graph.increment_version(out)  # the DTensor's: its local tensor has another one
            return out
        result = DTensor.from_local(
            ready(local), mesh, choice.out, run_check=False, shape=choice.shape, stride=choice.strides
        )
        return torch_product.activate(result, activation) if choice.summed else result


@functools.lru_cache(maxsize=1024)
def _choose(
    a: tuple[int, ...],
    b: tuple[int, ...],
    given: tuple[Sequence[Any], Sequence[Any], Sequence[Any] | None],
    packed: tuple[bool, bool],
    out: Sequence[Any] | None,
) -> _Choice | None:
    """Choose the cases that move the least, for operands of global shapes `a` and `b`. With `out`, the placements of the result,
    only cases that move nothing are taken. `given`: the placements of a, b and the bias. `packed`: whether a and b may not move.
    Returns None if what may not move fits no case."""
    from torch.distributed.tensor import Replicate

    table, sizes = cases(a, b, sums=out is None), (math.prod(a), math.prod(b), b[-1])

    def cost(case: Case, dim: int) -> float:
        """The elements that have to move for the case to hold on this dimension of the mesh; infinite if one of them may not."""
        if out is not None and out[dim] != case.out:
            return math.inf
        total = 0.0
        wanted = (case.a, case.b, case.bias)
        for size, placements, to, fixed in zip(sizes, given, wanted, (*packed, False), strict=True):
            now = None if placements is None else placements[dim]
            if now is None or now == to or (to.is_partial() and now.is_replicate()):
                continue
            if fixed:
                return math.inf
            total += 0 if now.is_replicate() else size
        return total

    chosen = []
    for dim in range(len(given[0])):
        costs = [cost(case, dim) for case in table]
        least = min(costs)
        if least == math.inf or (out is not None and least > 0):
            return None
        chosen.append(table[costs.index(least)])
    shape = torch.Size(gemm.result_shape(a, b))
    return _Choice(
        tuple(case.a for case in chosen),
        tuple(case.b for case in chosen),
        tuple(Replicate() if case.name == "K" else case.bias for case in chosen),
        tuple(case.out for case in chosen),
        tuple(dim for dim, case in enumerate(chosen) if case.name == "K"),
        shape,
        torch.empty(shape, device="meta").stride(),
    )


def _local(t: Any, placements: tuple[Any, ...]) -> torch.Tensor:
    """This rank's part of `t` at `placements`."""
    return local_of(t if t.placements == placements else t.redistribute(placements=placements))
