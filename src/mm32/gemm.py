"""The description of one matrix product: sizes, strides and options. Pure data: nothing is computed here.

A `Gemm` is C[i, m, n] = act(sum_k A[i, m, k] * B[i, k, n] + bias[n]) over batch index i. Operands are described by element
strides, so a transposed, sliced or expanded view is as good as a contiguous tensor. The checks of shapes, dtypes,
devices and options are here, with their messages; where torch has a sentence for an error, that sentence is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mm32 import activations, storage

PRECISIONS = ("fp32", "bf16x6", "ieee", "tf32")
LAYOUTS = ("nn", "nt", "tn", "tt")
SIDES = ("left", "right")  # of a product: operand A and operand B
MAX_BATCH_RANK = 8  # batch dimensions that cannot be merged; must equal MM32_MAX_BATCH_RANK in problem.cuh


@dataclass(frozen=True)
class Matrix:
    """Where element (i, row, col) of a batch of matrices lies: strides in elements; `aligned` says the data pointer is
    a multiple of 16 bytes. The stride of a dimension of size 1 or 0 is recorded as 0: it never contributes."""

    row: int
    col: int
    batch: tuple[int, ...]
    aligned: bool

    def vectorizable(self, along: str) -> bool:
        """Return whether 4 consecutive elements along "row" or "col" can be one 16-byte access, wherever they start at a
        multiple of 4 along that axis."""
        unit, other = (self.row, self.col) if along == "row" else (self.col, self.row)
        return unit == 1 and self.aligned and other % 4 == 0 and all(s % 4 == 0 for s in self.batch)


@dataclass(frozen=True)
class Gemm:
    """One product with everything a planner needs to know. `bias` is None or the element stride of the (N,) bias."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    a: Matrix
    b: Matrix
    out: Matrix
    bias: int | None
    activation: str | None
    precision: str

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def empty(self) -> bool:
        """Whether there is no output element, so nothing to compute."""
        return self.m == 0 or self.n == 0 or self.batches == 0

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product, 2·M·N·K for each matrix of the batch."""
        return 2 * self.m * self.n * self.k * self.batches

    @property
    def layout(self) -> str:
        """BLAS letters for A and B: n = row-major as used (K contiguous in A, N contiguous in B), t = the other axis is
        contiguous, s = neither is (general strides)."""
        a = "n" if self.a.col == 1 or self.k <= 1 else "t" if self.a.row == 1 or self.m <= 1 else "s"
        b = "n" if self.b.col == 1 or self.n <= 1 else "t" if self.b.row == 1 or self.k <= 1 else "s"
        return a + b


def check_options(activation: str | None, precision: str) -> None:
    """Raise ValueError for an activation or a precision that mm32 does not have."""
    if activation is not None and activation not in activations.names():
        raise ValueError(
            f"unknown activation {activation!r}: mm32 fuses None, {', '.join(map(repr, activations.names()))}"
        )
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}: mm32 has {', '.join(map(repr, PRECISIONS))}")


def _dims(shape: Sequence[Any]) -> str:
    return "x".join(str(s) for s in shape)


def known(condition: Any) -> bool:
    """Return the outcome of a comparison of sizes (ints or SymInts); False where tracing cannot know it, as in torch."""
    if isinstance(condition, bool):
        return condition
    # Imported here because it imports sympy, which takes 0.3 s; a program that traces has imported it already.
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(condition)


def _differ(x: Any, y: Any) -> bool:
    """Return whether two sizes differ. Where tracing cannot know, they are taken to be equal, and compared when the program
    runs."""
    if known(x != y):
        return True
    if not isinstance(x == y, bool):  # torch._check imports sympy, which takes 1.5 s
        torch._check(x == y)
    return False


def result_shape(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """The shape of torch.matmul's result for operands of shapes `a` and `b` (ints or SymInts). Raises RuntimeError if they do not
    fit."""
    if len(a) == 0 or len(b) == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {len(a)}D and {len(b)}D (mm32.matmul)"
        )
    k_a, k_b = a[-1], b[-2] if len(b) > 1 else b[0]
    if _differ(k_a, k_b):
        if len(a) == 1 and len(b) == 1:
            raise RuntimeError(
                f"inconsistent tensor size, expected tensor [{k_a}] and src [{k_b}] to have the same number of elements, "
                f"but got {k_a} and {k_b} elements respectively (mm32.matmul)"
            )
        if len(b) == 1 and len(a) == 2:
            raise RuntimeError(f"size mismatch, got input ({a[0]}), mat ({_dims(a)}), vec ({k_b}) (mm32.matmul)")
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({_dims(a[-2:] if len(a) > 1 else [1, *a])} and "
            f"{_dims(b[-2:] if len(b) > 1 else [*b, 1])}) (mm32.matmul of {list(a)} and {list(b)})"
        )
    batch_a, batch_b = list(a[:-2]), list(b[:-2])
    rank = max(len(batch_a), len(batch_b))
    batch_a = [1] * (rank - len(batch_a)) + batch_a
    batch_b = [1] * (rank - len(batch_b)) + batch_b
    batch = []
    for dim, (x, y) in enumerate(zip(batch_a, batch_b, strict=True)):
        x_one, y_one = known(x == 1), known(y == 1)
        if not (x_one or y_one) and _differ(x, y):
            raise RuntimeError(
                f"The size of tensor a ({x}) must match the size of tensor b ({y}) at non-singleton dimension {dim} "
                f"(batch dimensions of mm32.matmul of {list(a)} and {list(b)})"
            )
        batch.append(y if x_one else x)
    return batch + ([a[-2]] if len(a) > 1 else []) + ([b[-1]] if len(b) > 1 else [])


def is_dtensor(t: object) -> bool:
    """Return whether `t` is a DTensor, by the name of its class: using the class would import torch.distributed.tensor."""
    kind = type(t)
    return kind.__name__ == "DTensor" and kind.__module__.startswith("torch.distributed")


def check_tensors(caller: str, **tensors: object) -> None:
    """Check that each is a dense torch.Tensor; `bias` and `out` may be None. `caller` is the function that a message names.

    Raises TypeError for what is not a tensor, RuntimeError for nested and sparse tensors.
    """
    for name, t in tensors.items():
        if t is None and name in ("bias", "out"):
            continue
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{caller}: {name} must be a torch.Tensor, got {type(t).__name__}")
        if t.is_nested:
            raise RuntimeError(f"{caller} takes dense tensors; {name} is nested: call .to_padded_tensor() or unbind it")
        if t.layout != torch.strided:
            instead = "give a dense one" if name == "out" else f"call {name}.to_dense()"
            raise RuntimeError(f"{caller} takes dense tensors; {name} has layout {t.layout}: {instead}")


def _taken(device: str) -> tuple[torch.dtype, ...]:
    """The dtypes that operands may have on a device. float64 runs through torch on the CPU, for gradcheck and references; the
    kernels are float32."""
    return (torch.float32, torch.float64) if device in ("cpu", "meta") else (torch.float32,)


def check_kinds(caller: str, instead: str, **tensors: torch.Tensor | None) -> None:
    """Check that the tensors, in the order of `caller`'s arguments, are dense, of one dtype that mm32 multiplies, and on one
    device. `instead`: torch's function for other dtypes.

    Raises what `check_tensors` raises, and RuntimeError for dtypes and devices.
    """
    check_tensors(caller, **tensors)
    given = [(name, t) for name, t in tensors.items() if t is not None]
    first, one = given[0]
    taken = _taken(one.device.type)
    for name, t in given:
        if t.dtype not in taken:
            convert = "" if t.is_complex() else f"convert it ({name}.float()) or "
            raise RuntimeError(
                f"{caller} takes {' or '.join(map(str, taken))} on {one.device.type}; {name} is {t.dtype}: {convert}use {instead}"
            )
        if t.dtype != one.dtype:
            *others, last = tensors
            raise RuntimeError(
                f"expected {', '.join(others)} and {last} to have the same dtype, but got: {first} {one.dtype}, {name} {t.dtype} "
                f"({caller})"
            )
        if t.device != one.device:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {first} is on {one.device} and {name} is on {t.device} "
                f"({caller})"
            )


def check_inputs(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
) -> list[Any]:
    """Check types, dtypes, devices, options and shapes, and return the result's shape. Works on fake and meta tensors."""
    check_options(activation, precision)
    check_kinds("mm32.matmul", "torch.matmul", a=a, b=b, bias=bias)
    shape = result_shape(a.shape, b.shape)
    if bias is not None:
        n = b.shape[-1] if b.dim() > 1 else 1
        if bias.dim() != 1 or _differ(bias.shape[0], n):
            raise RuntimeError(
                f"bias must have shape ({n},), one value for each column of the result; got {tuple(bias.shape)} "
                f"(mm32.matmul of {list(a.shape)} and {list(b.shape)})"
            )
    return shape


def check_packable(t: torch.Tensor, side: str, precision: str) -> None:
    """Check the arguments of mm32.pack. Works on fake and meta tensors."""
    check_tensors("mm32.pack", b=t)
    check_options(None, precision)
    if side not in SIDES:
        raise ValueError(
            f"unknown side {side!r}: an operand is packed for the {' or '.join(map(repr, SIDES))} of a product"
        )
    taken = _taken(t.device.type)
    if t.dtype not in taken:
        convert = "use torch.matmul without packing" if t.is_complex() else "call .float()"
        raise RuntimeError(
            f"mm32.pack takes {' or '.join(map(str, taken))} on {t.device.type}; got {t.dtype}: {convert}"
        )
    if t.dim() != 2:
        raise RuntimeError(
            f"mm32.pack takes one matrix, (K, N) or, for the left side, (M, K); got shape {tuple(t.shape)}"
        )


def describe_operand(t: torch.Tensor, side: str, precision: str, aligned: bool) -> Gemm:
    """The `Gemm` of a checked operand on one side and nothing on the other, for planning how to pack it. `aligned` is as in
    `Matrix`; a fake tensor does not know it."""
    (rows, cols), (row, col) = t.shape, t.stride()
    here = Matrix(row if rows > 1 else 0, col if cols > 1 else 0, (), aligned)
    nothing = Matrix(0, 0, (), True)
    m, n, k = (rows, 0, cols) if side == "left" else (0, cols, rows)
    a, b = (here, nothing) if side == "left" else (nothing, here)
    return Gemm(m, n, k, (), a, b, nothing, None, None, precision)


def check_out_form(out: torch.Tensor, shape: Sequence[Any], a: torch.Tensor) -> None:
    """Check that `out` has the result's exact shape, dtype and device. Works on fake and meta tensors."""
    if out.dtype != a.dtype or out.device != a.device or out.layout != torch.strided:
        raise RuntimeError(
            f"out must be a dense {a.dtype} tensor on {a.device}, as the inputs are; got {out.dtype} on {out.device} "
            f"with layout {out.layout} (mm32.matmul)"
        )
    if tuple(out.shape) != tuple(shape):
        raise RuntimeError(
            f"out has shape {tuple(out.shape)}, the result has shape {tuple(shape)}: mm32.matmul does not resize out"
        )


def check_out(
    out: torch.Tensor, shape: Sequence[int], a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None
) -> None:
    """Check the form of `out`, that it may be written, and that it shares no memory with an input or with itself."""
    check_out_form(out, shape, a)
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal "
            "tensor before doing inplace update (mm32.matmul)"
        )
    if out.device.type == "meta" or out.numel() == 0:
        return
    if storage.self_overlapping(out.shape, out.stride()):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location; "
            f"out has shape {tuple(out.shape)} and strides {out.stride()}. Please clone() it first (mm32.matmul)"
        )
    for name, t in (("a", a), ("b", b), ("bias", bias)):
        if t is not None and storage.overlap(out, t):
            raise RuntimeError(f"out overlaps {name} in memory: give mm32.matmul an out of its own")


def _expand(t: torch.Tensor, core: int, batch: Sequence[int]) -> tuple[int, ...]:
    """The batch strides of an operand that is broadcast to `batch`; its last `core` dimensions are the matrix."""
    sizes, strides = t.shape[: t.dim() - core], t.stride()[: t.dim() - core]
    pad = len(batch) - len(sizes)
    return (0,) * pad + tuple(0 if s == 1 else st for s, st in zip(sizes, strides, strict=True))


def _collapse(
    batch: Sequence[int], strides: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge neighbouring batch dimensions that one stride can step through in every operand, and drop those of size 1."""
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(batch):
        if size == 1:
            continue
        if sizes and all(s[-1] == st[d] * size for s, st in zip(kept, strides, strict=True)):
            sizes[-1] *= size
            for s, st in zip(kept, strides, strict=True):
                s[-1] = st[d]
        else:
            sizes.append(size)
            for s, st in zip(kept, strides, strict=True):
                s.append(st[d])
    return tuple(sizes), [tuple(s) for s in kept]


def describe(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    activation: str | None = None,
    precision: str = "fp32",
    *,
    merge: bool = True,
) -> Gemm:
    """The `Gemm` of checked inputs and an output of the right shape. Batches that are rows of one taller matrix (a shared
    B, as in a linear layer on (batch, tokens, features)) become rows, unless `merge` is false, as it is for an A that was packed
    before with its own rows."""
    m = a.shape[-2] if a.dim() > 1 else 1
    k = a.shape[-1]
    n = b.shape[-1] if b.dim() > 1 else 1
    a_core, b_core = min(a.dim(), 2), min(b.dim(), 2)
    out_core = (a.dim() > 1) + (b.dim() > 1)
    batch = tuple(out.shape[: out.dim() - out_core])

    a_row = a.stride(-2) if m > 1 else 0
    a_col = a.stride(-1) if k > 1 else 0
    b_row = (b.stride(-2) if b.dim() > 1 else b.stride(0)) if k > 1 else 0
    b_col = b.stride(-1) if n > 1 else 0
    out_row = (out.stride(-2) if b.dim() > 1 else out.stride(-1)) if m > 1 else 0
    out_col = out.stride(-1) if n > 1 else 0

    sizes, (sa, sb, so) = _collapse(
        batch, (_expand(a, a_core, batch), _expand(b, b_core, batch), _expand(out, out_core, batch))
    )
    if merge and sizes and not any(sb) and (m == 1 or (sa[-1] == a_row * m and so[-1] == out_row * m)):
        if m == 1:
            a_row, out_row = sa[-1], so[-1]
        m *= sizes[-1]
        sizes, sa, sb, so = sizes[:-1], sa[:-1], sb[:-1], so[:-1]
    if len(sizes) > MAX_BATCH_RANK:
        raise RuntimeError(
            f"mm32.matmul takes at most {MAX_BATCH_RANK} batch dimensions that cannot be merged, got {len(sizes)} "
            f"(batch shape {batch}): reshape or make an operand contiguous"
        )
    return Gemm(
        m=m,
        n=n,
        k=k,
        batch=sizes,
        a=Matrix(a_row, a_col, sa, a.data_ptr() % 16 == 0),
        b=Matrix(b_row, b_col, sb, b.data_ptr() % 16 == 0),
        out=Matrix(out_row, out_col, so, out.data_ptr() % 16 == 0),
        bias=None if bias is None else (bias.stride(0) if n > 1 else 0),
        activation=activation,
        precision=precision,
    )


def from_layout(
    layout: str,
    m: int,
    n: int,
    k: int,
    *,
    bias: bool = False,
    activation: str | None = None,
    precision: str = "fp32",
) -> Gemm:
    """The `Gemm` of contiguous, aligned operands in a named layout: A is stored (M, K) for n, (K, M) for t; B is stored
    (K, N) for n, (N, K) for t. For planning without tensors."""
    if layout not in LAYOUTS:
        raise ValueError(
            f"unknown layout {layout!r}: mm32 has {', '.join(LAYOUTS)} (first letter A, second B; t = transposed)"
        )
    for name, size in (("M", m), ("N", n), ("K", k)):
        if size < 0:
            raise ValueError(f"{name} must not be negative, got {size}")
    for rows, columns in ((m, k), (k, n), (m, n)):
        if rows * columns * 4 >= 2**63:
            raise ValueError(f"a matrix of {rows} x {columns} has more bytes than can be counted in 63 bits")
    check_options(activation, precision)
    with torch.device("meta"):
        a = torch.empty(m, k) if layout[0] == "n" else torch.empty(k, m).T
        b = torch.empty(k, n) if layout[1] == "n" else torch.empty(n, k).T
        out = torch.empty(m, n)
        bias_ = torch.empty(n) if bias else None
    return describe(a, b, bias_, out, activation, precision)
