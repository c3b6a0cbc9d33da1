"""The torch operators mm32::matmul and mm32::matmul_out, with CUDA, CPU and Meta implementations and gradients, and the
functions that users call."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from mm32 import cpu, gemm
from mm32 import plan as planning
from mm32.cuda import launch
from mm32.packed import PackedOperand, unwrap

torch.library.define(
    "mm32::matmul",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel) -> Tensor",
    tags=(torch.Tag.needs_exact_strides,) if hasattr(torch.Tag, "needs_exact_strides") else (),
)
torch.library.define(
    "mm32::matmul_out",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel, Tensor(a!) out) -> ()",
)

# As mm32::matmul and mm32::matmul_out, with the memory of packed operands (mm32::pack); one without elements stands for none.
torch.library.define(
    "mm32::matmul_packed",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel, Tensor? packed_a, Tensor? packed_b) "
    "-> Tensor",
    tags=(torch.Tag.needs_exact_strides,) if hasattr(torch.Tag, "needs_exact_strides") else (),
)
torch.library.define(
    "mm32::matmul_packed_out",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel, Tensor? packed_a, Tensor? packed_b, "
    "Tensor(a!) out) -> ()",
)

_plan = lru_cache(maxsize=4096)(planning.plan)
_runners: dict[tuple, tuple[list[int], launch.Runner | None]] = {}


def _run_cuda(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    out: torch.Tensor | None,
    packed_a: torch.Tensor | None = None,
    packed_b: torch.Tensor | None = None,
) -> torch.Tensor:
    """Checks, plans and launches; what was found for operands of the same form is kept, as one look-up by all it depends on."""
    key = (
        *_form(a), *_form(b), None if bias is None else _form(bias), None if out is None else _form(out),
        activation, precision, kernel,
        packed_a is not None and _packed_form(packed_a), packed_b is not None and _packed_form(packed_b),
    )  # fmt: skip
    found = _runners.get(key)
    if found is None:
        shape = gemm.check_inputs(a, b, bias, activation, precision)
        if out is None:
            out = a.new_empty(shape)
        else:
            gemm.check_out(out, shape, a, b, bias)
        before = bool(key[-2]), bool(key[-1])
        problem = gemm.describe(a, b, bias, out, activation, precision, merge=not before[0])
        for side, operand, packed in ((0, a, packed_a), (1, b, packed_b)):
            if packed is not None and before[side]:
                _check_packed(packed, operand, problem, side)
        chosen = _plan(problem, launch.device_of(a.device.index), kernel, before)
        if len(_runners) >= 4096:
            _runners.clear()
        found = _runners[key] = (shape, None if problem.empty else launch.Runner(chosen, a.device.index))
    shape, runner = found
    if out is None:
        out = a.new_empty(shape)
    else:
        gemm.check_out(out, shape, a, b, bias)  # whether memory is shared is not a matter of form
    if runner is not None:
        runner(a, b, bias, out, packed_a, packed_b)
    return out


def _packed_form(t: torch.Tensor) -> tuple | bool:
    return t.numel() > 0 and (t.shape, t.dtype, t.device)


def _check_packed(packed: torch.Tensor, operand: torch.Tensor, problem: gemm.Gemm, side: int) -> None:
    """That memory given as a packed operand has the size that the kernels will read."""
    wanted, name = planning.packed_bytes(problem, side), "ab"[side]
    if (
        packed.dtype != torch.uint8
        or packed.device != operand.device
        or packed.shape != (wanted,)
        or operand.dim() != 2
    ):
        raise RuntimeError(
            f"packed_{name} is not what mm32::pack makes of {name} {tuple(operand.shape)}: expected {wanted} bytes on "
            f"{operand.device}, got {packed.dtype} of shape {tuple(packed.shape)} on {packed.device}"
        )


def _form(t: torch.Tensor) -> tuple:
    """All of a tensor that a plan depends on."""
    return t.shape, t.stride(), t.dtype, t.device, t.data_ptr() % 16


@torch.library.impl("mm32::matmul", "CUDA")
def _matmul_cuda(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, precision: str, kernel: str
) -> torch.Tensor:
    return _run_cuda(a, b, bias, activation, precision, kernel, None)


@torch.library.impl("mm32::matmul", "CPU")
def _matmul_cpu(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, precision: str, kernel: str
) -> torch.Tensor:
    gemm.check_inputs(a, b, bias, activation, precision)
    planning.check_kernel(kernel)
    return cpu.matmul(a, b, bias, activation).contiguous()


@torch.library.register_fake("mm32::matmul")
def _matmul_fake(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, precision: str, kernel: str
) -> torch.Tensor:
    planning.check_kernel(kernel)
    return a.new_empty(gemm.check_inputs(a, b, bias, activation, precision))


@torch.library.impl("mm32::matmul_out", "CUDA")
def _matmul_out_cuda(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    out: torch.Tensor,
) -> None:
    _run_cuda(a, b, bias, activation, precision, kernel, out)


@torch.library.impl("mm32::matmul_out", "CPU")
def _matmul_out_cpu(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    out: torch.Tensor,
) -> None:
    gemm.check_out(out, gemm.check_inputs(a, b, bias, activation, precision), a, b, bias)
    planning.check_kernel(kernel)
    out.copy_(cpu.matmul(a, b, bias, activation))


@torch.library.register_fake("mm32::matmul_out")
def _matmul_out_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    out: torch.Tensor,
) -> None:
    planning.check_kernel(kernel)
    shape = gemm.check_inputs(a, b, bias, activation, precision)
    if list(out.shape) != list(shape):
        raise RuntimeError(
            f"out has shape {tuple(out.shape)}, the result has shape {tuple(shape)}: mm32.matmul does not resize out"
        )


@torch.library.impl("mm32::matmul_packed", "CUDA")
def _matmul_packed_cuda(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    packed_a: torch.Tensor | None,
    packed_b: torch.Tensor | None,
) -> torch.Tensor:
    return _run_cuda(a, b, bias, activation, precision, kernel, None, packed_a, packed_b)


@torch.library.impl("mm32::matmul_packed_out", "CUDA")
def _matmul_packed_out_cuda(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    packed_a: torch.Tensor | None,
    packed_b: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    _run_cuda(a, b, bias, activation, precision, kernel, out, packed_a, packed_b)


# On the CPU nothing is packed: the implementations of the operators without.
@torch.library.impl("mm32::matmul_packed", "CPU")
def _matmul_packed_cpu(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    packed_a: torch.Tensor | None,
    packed_b: torch.Tensor | None,
) -> torch.Tensor:
    gemm.check_inputs(a, b, bias, activation, precision)
    planning.check_kernel(kernel)
    return cpu.matmul(a, b, bias, activation).contiguous()


@torch.library.impl("mm32::matmul_packed_out", "CPU")
def _matmul_packed_out_cpu(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    packed_a: torch.Tensor | None,
    packed_b: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    gemm.check_out(out, gemm.check_inputs(a, b, bias, activation, precision), a, b, bias)
    planning.check_kernel(kernel)
    out.copy_(cpu.matmul(a, b, bias, activation))


@torch.library.register_fake("mm32::matmul_packed")
def _matmul_packed_fake(*args: Any) -> torch.Tensor:
    return _matmul_fake(*args[:6])


@torch.library.register_fake("mm32::matmul_packed_out")
def _matmul_packed_out_fake(*args: Any) -> None:
    _matmul_out_fake(*args[:6], args[8])


# ---------------------------------------------------------------------------------------------------------------------
# Gradients. With z = a @ b + bias and c = act(z): dz = dc * act'(z), da = dz @ b^T, db = a^T @ dz, dbias = sum of dz over rows,
# each product by mm32 in the layout it falls in. Saved: a, b, and z's ingredients only where act' needs them.


def _setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    a, b, bias, ctx.activation, ctx.precision, ctx.kernel = inputs[:6]
    ctx.save_for_backward(a, b, bias)


def _reduce_to(grad: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    return grad.sum_to_size(shape) if grad.shape != shape else grad


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b, bias = ctx.saved_tensors

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.ops.mm32.matmul(x, y, None, None, ctx.precision, ctx.kernel)

    rows = a if a.dim() > 1 else a.unsqueeze(0)
    columns = b if b.dim() > 1 else b.unsqueeze(1)
    if a.dim() == 1:
        grad = grad.unsqueeze(-1 if b.dim() == 1 else -2)
    if b.dim() == 1:
        grad = grad.unsqueeze(-1)
    if ctx.activation is not None:
        # The pre-activation is computed again, not kept: one product more in backward, one (M, N) tensor less between.
        z = torch.ops.mm32.matmul(rows, columns, bias, None, ctx.precision, ctx.kernel)
        grad = _activation_backward(grad, z, ctx.activation)
    need_a, need_b, need_bias = ctx.needs_input_grad[:3]
    grad_a = _reduce_to(product(grad, columns.mT), rows.shape).reshape(a.shape) if need_a else None
    if columns.dim() == 2:  # one B for the whole batch: one product over all rows, not a (K, N) for each matrix, summed
        rows, grad = rows.flatten(0, -2), grad.flatten(0, -2)
    grad_b = _reduce_to(product(rows.mT, grad), columns.shape).reshape(b.shape) if need_b else None
    grad_bias = grad.sum(dim=list(range(grad.dim() - 1))) if bias is not None and need_bias else None
    return grad_a, grad_b, grad_bias, None, None, None


def _activation_backward(grad: torch.Tensor, z: torch.Tensor, activation: str) -> torch.Tensor:
    """grad * act'(z), by torch's own backward operators; differentiable again."""
    ops = torch.ops.aten
    if activation == "relu":
        return ops.threshold_backward(grad, z, 0)
    if activation == "leaky_relu":
        return ops.leaky_relu_backward(grad, z, 0.01, False)
    if activation == "gelu":
        return ops.gelu_backward(grad, z)
    if activation == "gelu_tanh":
        return ops.gelu_backward(grad, z, approximate="tanh")
    if activation == "silu":
        if torch.is_grad_enabled():  # to be differentiated again, which silu_backward cannot be
            s = torch.sigmoid(z)
            return grad * s * (1 + z * (1 - s))
        return ops.silu_backward(grad, z)
    if activation == "tanh":
        return ops.tanh_backward(grad, torch.tanh(z))
    return ops.sigmoid_backward(grad, torch.sigmoid(z))


def _backward_packed(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return *_backward(ctx, grad), None, None


torch.library.register_autograd("mm32::matmul", _backward, setup_context=_setup_context)
torch.library.register_autograd("mm32::matmul_packed", _backward_packed, setup_context=_setup_context)


# ---------------------------------------------------------------------------------------------------------------------


def matmul(
    a: torch.Tensor | PackedOperand,
    b: torch.Tensor | PackedOperand,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    precision: str = "fp32",
    kernel: str = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``activation(a @ b + bias)`` in float32, as one kernel, for operands of any strides.

    Shapes are torch.matmul's: (…, M, K) @ (…, K, N) -> (…, M, N), batch dimensions broadcast, 1-D operands are vectors. A
    transposed view (``a.T``), a slice or an expanded tensor is read where it lies; no copy of an operand is made. In place of a
    matrix that many calls multiply by, a `PackedOperand` made of it by `pack`.

    Args:
        bias: shape (N,), added to every row; for a 1-D ``b``, shape (1,).
        activation: None, "relu", "leaky_relu" (slope 0.01), "gelu", "gelu_tanh", "silu", "tanh" or "sigmoid", each torch's
            function of that name, applied after the bias.
        precision: "fp32", an error no larger than an fp32 matmul's by any means (docs/numerics.md); "ieee", fp32
            multiply-adds only; "tf32", an error of TF32's class.
        kernel: "auto", or a kernel by name: "naive", "dot", "tiled", "simt", "mma", "tensorcore" (docs/kernels.md). CPU tensors
            have one implementation, torch's; the name is checked and otherwise without effect.
        out: where to write, of the result's shape; any strides without overlap; not an input. Returned if given.

    Returns:
        A new contiguous tensor (row-major), or ``out``.

    Raises:
        RuntimeError: shapes, dtypes or devices that do not fit, in torch's words where torch has them.
        ValueError: unknown activation, precision or kernel; a kernel that cannot run on this card.
        mm32.CompileError, mm32.LaunchError: the compiler or driver failed; the message has its log.
    """
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        a, b, *packed = unwrap(a, b, precision, kernel)
    else:
        packed = []
    if bias is not None and not isinstance(bias, torch.Tensor):
        raise TypeError(f"mm32.matmul: bias must be a torch.Tensor of shape (N,) or None, got {type(bias).__name__}")
    if a.layout != torch.strided or b.layout != torch.strided:
        raise RuntimeError(f"mm32.matmul takes dense tensors; a is {a.layout}, b is {b.layout}: call .to_dense()")
    if out is None:
        if packed:
            return torch.ops.mm32.matmul_packed(a, b, bias, activation, precision, kernel, *packed)
        return torch.ops.mm32.matmul(a, b, bias, activation, precision, kernel)
    if torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in (a, b, bias, out)):
        raise RuntimeError(
            "matmul(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"mm32.matmul: out must be a torch.Tensor, got {type(out).__name__}")
    if packed:
        torch.ops.mm32.matmul_packed_out(a, b, bias, activation, precision, kernel, *packed, out)
    else:
        torch.ops.mm32.matmul_out(a, b, bias, activation, precision, kernel, out)
    return out


def linear(
    x: torch.Tensor,
    weight: torch.Tensor | PackedOperand,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    precision: str = "fp32",
    kernel: str = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``activation(x @ weight.T + bias)``: torch.nn.functional.linear with the activation fused, the nt layout.

    x is (…, K), weight (N, K), (K,) or a `PackedOperand` of shape (K, N) made by ``mm32.pack(weight.T)``, bias (N,); the rest as
    in `matmul`.
    """
    if isinstance(weight, PackedOperand):
        if x.shape[-1:] != weight.shape[:1]:
            raise RuntimeError(
                f"mm32.linear of x {tuple(x.shape)} takes a packed operand of shape ({x.shape[-1]}, N), which is "
                f"mm32.pack(weight.T) for a weight (N, {x.shape[-1]}); got one of shape {tuple(weight.shape)}"
            )
        return matmul(x, weight, bias=bias, activation=activation, precision=precision, kernel=kernel, out=out)
    if isinstance(weight, torch.Tensor) and weight.dim() not in (1, 2):
        raise RuntimeError(f"mm32.linear: weight must be (N, K) or (K,), got {tuple(weight.shape)}")
    transposed = weight.T if isinstance(weight, torch.Tensor) and weight.dim() == 2 else weight
    return matmul(x, transposed, bias=bias, activation=activation, precision=precision, kernel=kernel, out=out)


def explain(
    a: torch.Tensor | PackedOperand,
    b: torch.Tensor | PackedOperand,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    precision: str = "fp32",
    kernel: str = "auto",
) -> str:
    """What `matmul` would do with these arguments, and why: the plan as a page of text. Nothing is computed.

    Raises as `matmul` does.
    """
    before, notes = (False, False), ""
    if isinstance(a, PackedOperand) or isinstance(b, PackedOperand):
        notes = "".join(f"\npacked     {x!r}" for x in (a, b) if isinstance(x, PackedOperand))
        a, b, packed_a, packed_b = unwrap(a, b, precision, kernel)
        before = packed_a is not None and packed_a.numel() > 0, packed_b is not None and packed_b.numel() > 0
    shape = gemm.check_inputs(a, b, bias, activation, precision)
    planning.check_kernel(kernel)
    if a.device.type != "cuda":
        how = f"device     {a.device.type}: torch.matmul, then bias and activation, by torch; kernels are for CUDA tensors"
        return how + notes
    out = torch.empty_strided(shape, _contiguous(shape), device="meta")
    problem = gemm.describe(a, b, bias, out, activation, precision, merge=not before[0])
    return _plan(problem, launch.device_of(a.device.index), kernel, before).explain() + notes


def careful_runs(device: int | None = None) -> int:
    """How many calls in this process found, on the card, that their inputs do not suit the tensor-core split and computed the
    tiles of the result that these decide by IEEE fp32 instead (docs/numerics.md). A counter for debugging: reading it waits for
    the device.

    ``device`` is an index; None is the current one. 0 where there is no CUDA device.
    """
    if not torch.cuda.is_available():
        return 0
    return launch.careful_runs(torch.cuda.current_device() if device is None else device)


def _contiguous(shape: list[int]) -> list[int]:
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(shape[d + 1], 1)
    return strides
