"""Differentiation and torch.vmap of mm32::matmul: gradients, forward mode and the batching rule.

With z = a @ b + bias and c = act(z), a gradient dc of c gives dz = dc * act'(z), da = dz @ b^T, db = a^T @ dz and dbias, the sum
of dz over rows; tangents a', b', bias' give c' = act'(z) * (a' @ b + a @ b' + bias'). Every product is mm32's own, in whatever
layout its operands have. All of it is made of differentiable operators, so it can be differentiated and mapped again.

Saved for backward: b for da, a for db, and c where act' is a function of act's value. Where it is not (gelu, gelu_tanh, silu), z
has to be kept: the product is then made without the activation, which torch applies after it. That moves 8 M N bytes more. To
compute z again in backward would take 2 M N K operations, which is longer for K above about 200.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.forward_ad import _set_fwd_grad_enabled, unpack_dual
from torch.autograd.function import _SingleLevelFunction

from mm32 import activations, gemm, sharding, torch_product


def _slope_of_result(activation: str | None) -> bool:
    """Return whether act'(z) is a function of act(z), so that z need not be kept."""
    return activation is not None and activations.named(activation).slope_of_result


def _times_slope(grad: torch.Tensor, value: torch.Tensor, activation: str) -> torch.Tensor:
    """Return grad * act'(z), differentiable again. `value` is act(z) where the slope is a function of it, else z."""
    return activations.named(activation).times_slope(grad, value)


def _below(
    keyset: Any,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    packed: tuple[torch.Tensor | None, ...],
) -> torch.Tensor:
    """Call the operator below autograd, as the dispatcher would do next; for DTensors, an operator of their own."""
    if packed == () and sharding.among(a, b, bias):
        return sharding.product(a, b, bias, activation, precision, kernel)
    return torch.ops.mm32.matmul.default.redispatch(
        keyset & torch._C._after_autograd_keyset, a, b, bias, activation, precision, kernel, *packed
    )


class Mm32Matmul(_SingleLevelFunction):
    """mm32::matmul at one level of differentiation. torch.autograd.Function is for programs that call it from outside. Inside the
    dispatcher, torch.func has already separated the levels, and torch's base class for that is _SingleLevelFunction."""

    @staticmethod
    def _compiled_autograd_key(ctx: Any) -> tuple[Any, ...]:
        """For compiled autograd, as torch.autograd.Function has it."""
        return (ctx._autograd_function_id,)

    @staticmethod
    def forward(
        ctx: Any,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        activation: str | None,
        precision: str,
        kernel: str,
        below: Callable[..., torch.Tensor],
        product: Callable[..., torch.Tensor],
        forward_mode: bool,
    ) -> torch.Tensor:
        """Compute the result. `below` computes it from a, b and bias; `product` computes the products of gradients, and is called
        as the operator is; `forward_mode`: whether forward mode is on in the caller."""
        result = below(a, b, bias)
        ctx.set_materialize_grads(False)
        ctx.activation, ctx.options, ctx.product = activation, (None, precision, kernel), product
        ctx.shapes, ctx.strides, ctx.forward_mode = (a.shape, b.shape), (a.stride(), b.stride()), forward_mode
        value = result if _slope_of_result(activation) else None
        need_a, need_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if need_b else None, b if need_a else None, value)
        ctx.save_for_forward(a, b, bias, value)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if grad is None:
            return (None,) * 9
        need_a, need_b, need_bias = ctx.needs_input_grad[:3]
        a, b, value = ctx.saved_tensors
        a_shape, b_shape = ctx.shapes
        if ctx.activation is not None:
            grad = _times_slope(grad, value, ctx.activation)
        if len(a_shape) == 1:
            grad = grad.unsqueeze(-1 if len(b_shape) == 1 else -2)
        if len(b_shape) == 1:
            grad = grad.unsqueeze(-1)
        grad_a = grad_b = grad_bias = None
        if need_a:
            columns = b if len(b_shape) > 1 else b.unsqueeze(1)
            if grad.dim() == 2 and _lies_along_columns(ctx.strides[0]):
                grad_a = ctx.product(columns, grad.mT, None, *ctx.options).mT
            else:
                grad_a = ctx.product(grad, columns.mT, None, *ctx.options)
            grad_a = grad_a.sum_to_size(a_shape if len(a_shape) > 1 else (1, *a_shape)).reshape(a_shape)
        if need_bias:
            grad_bias = grad.sum(dim=list(range(grad.dim() - 1)))
        if need_b:
            rows = a if len(a_shape) > 1 else a.unsqueeze(0)
            # One B for the whole batch: one product over all rows, instead of the sum of one product for each matrix.
            if len(b_shape) <= 2 and rows.dim() > 2 and not sharding.splits_rows(rows, grad):
                count = math.prod(grad.shape[:-1])
                rows, grad = rows.reshape(count, rows.shape[-1]), grad.reshape(count, grad.shape[-1])
            if grad.dim() == 2 and _lies_along_columns(ctx.strides[1]):
                grad_b = ctx.product(grad.mT, rows, None, *ctx.options).mT
            else:
                grad_b = ctx.product(rows.mT, grad, None, *ctx.options)
            grad_b = grad_b.sum_to_size(b_shape if len(b_shape) > 1 else (*b_shape, 1)).reshape(b_shape)
        return grad_a, grad_b, grad_bias, None, None, None, None, None, None

    @staticmethod
    def jvp(
        ctx: Any, a_t: torch.Tensor | None, b_t: torch.Tensor | None, bias_t: torch.Tensor | None, *_: None
    ) -> torch.Tensor | None:
        # jvp() runs with forward mode off, which would turn the tangents of outer levels into zeros, so it is turned on again.
        # Then this level's own tangents must not be followed: the operands are taken without them.
        saved: list[Any] = [t if t is None else unpack_dual(t, level=0).primal for t in ctx.saved_tensors]
        a, b, bias, value = saved
        with _set_fwd_grad_enabled(ctx.forward_mode):
            tangent = None
            if a_t is not None:
                tangent, bias_t = torch.ops.mm32.matmul(a_t, b, bias_t, *ctx.options), None
            if b_t is not None:
                other = torch.ops.mm32.matmul(a, b_t, bias_t, *ctx.options)
                tangent, bias_t = other if tangent is None else tangent + other, None
            if bias_t is not None:  # only the bias has a tangent
                tangent = (bias_t if b.dim() > 1 else bias_t[0]).expand(gemm.result_shape(a.shape, b.shape))
            if tangent is None or ctx.activation is None:
                return tangent
            if value is None:
                value = torch.ops.mm32.matmul(a, b, bias, *ctx.options)
            return _times_slope(tangent, value, ctx.activation)


_unpack = torch._VF._unpack_dual


def _lies_along_columns(strides: tuple[int, ...]) -> bool:
    """Return whether a matrix of these strides is the transpose of a contiguous one. Then its gradient is made like that too, as
    torch's is: the gradient of a weight that was transposed has the weight's strides."""
    return len(strides) == 2 and gemm.known(strides[0] == 1) and gemm.known(strides[1] > 1)


def _has_tangent(t: torch.Tensor | None) -> bool:
    """Return whether a tensor has a tangent. The tensor itself is asked, because torch.autograd.forward_ad's level is not kept up
    inside programs that torch.compile has traced. A DTensor is asked only if there is a level: asking is an operation that
    DTensors lack up to torch 2.9."""
    if t is None or (gemm.is_dtensor(t) and forward_ad._current_level < 0):
        return False
    return _unpack(t, level=0)[1] is not None


def autograd(
    keyset: Any,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    *packed: torch.Tensor | None,
) -> torch.Tensor:
    """mm32::matmul at the Autograd key. torch.library.register_autograd has no forward mode: it drops tangents silently."""
    recorded = torch.is_grad_enabled() and torch._C._any_requires_grad(a, b, bias)
    if recorded:
        gemm.check_options(activation, precision)
    if recorded and activation is not None and not _slope_of_result(activation):
        return torch_product.activate(torch.ops.mm32.matmul(a, b, bias, None, precision, kernel, *packed), activation)
    # The case that there is nothing to differentiate, as in most compiled programs. Under a dispatch mode, asking for tangents
    # would leave views in the traced program.
    plain = not (torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack())
    if plain and not recorded and not (_has_tangent(a) or _has_tangent(b) or _has_tangent(bias)):
        with torch._C._AutoDispatchBelowAutograd():
            return _below(keyset, a, b, bias, activation, precision, kernel, packed)
    grad_mode, forward_mode = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()

    def below(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        # forward() runs with both modes off. Levels of torch.func below this one have to see the modes as the caller left them:
        # with the modes off, second derivatives would be zeros.
        keys = torch._C._AutoDispatchBelowAutograd()
        with keys, torch.set_grad_enabled(grad_mode), _set_fwd_grad_enabled(forward_mode):
            return _below(keyset, a, b, bias, activation, precision, kernel, packed)

    with enable_single_level_autograd_function():
        return Mm32Matmul.apply(  # type: ignore[attr-defined]
            a, b, bias, activation, precision, kernel, below, torch.ops.mm32.matmul, forward_mode
        )


def recorded(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    product: Callable[..., torch.Tensor],
) -> torch.Tensor:
    """Do what `autograd` does, for ordinary tensors with a gradient to record, where the dispatcher would call `autograd`, then
    the implementation, and nothing else (`dispatch.implementation`). `product` computes; it is called as the operator is."""
    gemm.check_options(activation, precision)
    after = None
    if activation is not None and not _slope_of_result(activation):
        activation, after = None, activation

    def below(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return product(a, b, bias, activation, precision, kernel)

    result = Mm32Matmul.apply(a, b, bias, activation, precision, kernel, below, product, True)  # type: ignore[attr-defined]
    return torch_product.activate(result, after)


def autograd_out(
    keyset: Any,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    out: torch.Tensor,
    *packed: torch.Tensor | None,
) -> None:
    """mm32::matmul_out at the Autograd key. It has no derivatives, and raises an error if they are asked for."""
    if torch.is_grad_enabled() and torch._C._any_requires_grad(a, b, bias, out):
        raise RuntimeError(
            "matmul(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad. (mm32.matmul)"
        )
    # Under a dispatch mode, asking for tangents would leave views in the traced program.
    asked = forward_ad._current_level >= 0 or not torch._C._len_torch_dispatch_stack()
    if asked and any(map(_has_tangent, (a, b, bias, out))):
        raise NotImplementedError(
            "Trying to use forward AD with mm32::matmul_out that does not support it because it is an out= function: call "
            "mm32.matmul without out"
        )
    if sharding.among(a, b, bias, out):
        sharding.register()
    with torch._C._AutoDispatchBelowAutograd():
        torch.ops.mm32.matmul_out.default.redispatch(
            keyset & torch._C._after_autograd_keyset, a, b, bias, activation, precision, kernel, out, *packed
        )


# ---------------------------------------------------------------------------------------------------------------------
# vmap: one product for all samples


def _sample(t: Any, dim: int | None) -> Any:
    """A tensor of one sample's shape, dtype and device; its values have no meaning."""
    if t is None or dim is None:
        return t
    shape = list(t.shape)
    del shape[dim]
    return t.new_empty(1).expand(shape) if shape else t.new_empty(())


def _laid(t: torch.Tensor, dim: int | None, one: torch.Tensor, vector_at: int, rank: int) -> torch.Tensor:
    """An operand as a batch of matrices: the mapped dimension first, then dimensions of size 1, up to `rank` in all."""
    t = t if dim is None else t.movedim(dim, 0)
    t = t.unsqueeze(vector_at) if one.dim() == 1 else t
    inserted: tuple[Any, ...] = (slice(None), *[None] * (rank - t.dim()))
    return t if dim is None else t[inserted]


def vmap(
    info: Any,
    in_dims: Sequence[int | None],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    *packed: torch.Tensor | None,
) -> tuple[torch.Tensor, int]:
    """The batching rule (torch.library.register_vmap): mapped operands become batch dimensions, or rows and columns where
    the other operand is one matrix. A fused bias is one row for all samples: so a bias for each sample is added, and the
    activation applied, after the product."""
    a_dim, b_dim, bias_dim = in_dims[:3]
    a_one, b_one, bias_one = _sample(a, a_dim), _sample(b, b_dim), _sample(bias, bias_dim)
    # One sample is checked by itself: with the mapped dimension included, operands that do not fit could seem to fit.
    shape = gemm.check_inputs(a_one, b_one, bias_one, activation, precision)
    if bias is not None and bias_dim is not None:
        if a_dim is None and b_dim is None:
            z = torch.ops.mm32.matmul(a, b, None, None, precision, kernel)
        else:
            z, z_dim = vmap(info, (a_dim, b_dim, None), a, b, None, None, precision, kernel)
            z = z.movedim(z_dim, 0)
        each = bias.movedim(bias_dim, 0)
        each = each if b_one.dim() > 1 else each[:, 0]
        inserted: tuple[Any, ...] = (slice(None), *[None] * (1 + len(shape) - each.dim()))
        each = each[inserted]
        return torch_product.activate(z + each, activation), 0

    options = (activation, precision, kernel)
    if a_dim is None and b_dim is not None and b_one.dim() == 1:  # vectors against one A: the columns of one matrix
        columns = None if bias is None else bias.expand(b.shape[b_dim])
        result = torch.ops.mm32.matmul(a, b.movedim(b_dim, -1), columns, *options)
        return result, result.dim() - 1
    if b_dim is None and a_dim is not None and b_one.dim() <= 2:  # one B for all: rows of one product
        return torch.ops.mm32.matmul(a.movedim(a_dim, 0), b, bias, *options, *packed), 0
    # In all other cases the source of a packed operand is read.
    rank = 1 + max(a_one.dim(), b_one.dim(), 2)
    a, b = _laid(a, a_dim, a_one, -2, rank), _laid(b, b_dim, b_one, -1, rank)
    result = torch.ops.mm32.matmul(a, b, bias, *options)
    result = result.squeeze(-2) if a_one.dim() == 1 else result
    return result.squeeze(-1) if b_one.dim() == 1 else result, 0


def vmap_out(info: Any, in_dims: Sequence[int | None], *args: Any) -> None:
    raise RuntimeError("mm32.matmul: out= cannot be written inside torch.vmap: call it without out")
