"""Operators with sums inside, as sequences of simpler ones, so that each step can be perturbed by itself (rounding.py).

torch has such sequences for all of them. The commonest are written here again, because torch's check their sizes by its symbolic
shapes. The first use of these imports a computer algebra system, which takes seconds in every verification of a softmax.
Runs in the reference's process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from .operator_mode import Mode, is_composite

TAKEN_APART = [
    "_softmax",
    "_log_softmax",
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "_batch_norm_with_update",
    "_batch_norm_no_update",
    "_fused_rms_norm",
    "logsumexp",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "nll_loss_forward",
    "nll_loss2d_forward",
    "binary_cross_entropy",
    "soft_margin_loss",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_weight_norm_interface",
    "_trilinear",
    "_euclidean_dist",
    "multi_margin_loss",
    "multilabel_margin_loss_forward",
]
PLAIN = {torch.float32, torch.float64}  # coarser types are computed in float32 on the way, by torch's own sequences
MEAN, SUM = 1, 2  # torch's numbers for a loss's reduction


def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    x = x.contiguous()  # the operator's result is contiguous, and a model may take views of it
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    x = x.contiguous()
    below = x - x.amax(dim, keepdim=True)
    return below - below.exp().sum(dim, keepdim=True).log()


def _logsumexp(x: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    dims = [dim] if isinstance(dim, int) else list(dim) or list(range(x.dim()))
    largest = x.amax(dims, keepdim=True)
    largest = largest.masked_fill(largest.abs() == torch.inf, 0)
    total = torch.exp(x - largest).sum(dims, keepdim).log()
    return total + (largest if keepdim else largest.squeeze(dims))


def _normalized(x: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return `x` with mean 0 and variance 1, its mean, and the reciprocal of its standard deviation."""
    variance, mean = torch.var_mean(x, list(dims), correction=0, keepdim=True)
    scale = torch.rsqrt(variance + eps)
    return (x - mean) * scale, mean, scale


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    out, mean, scale = _normalized(x.contiguous(), range(x.dim() - len(shape), x.dim()), eps)
    return _affine(out, weight, bias), mean, scale


def _group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    out, mean, scale = _normalized(x.reshape(batch, groups, channels // groups, inner), (2, 3), eps)
    of_channels = [channels] + [1] * (x.dim() - 2)
    weight, bias = (t if t is None else t.view(of_channels) for t in (weight, bias))
    return _affine(out.reshape(x.shape), weight, bias), mean.flatten(1), scale.flatten(1)


def _nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    classes = x.dim() - 1
    counts = target != ignore_index
    places = torch.where(counts, target, 0).unsqueeze(classes).long()
    if weight is not None:
        x = x * weight
    picked = torch.where(counts, -x.gather(classes, places).squeeze(classes), 0)
    if reduction not in (MEAN, SUM) and x.dim() > 1:
        return picked, x.new_full((), 0.0)
    if weight is None:
        total = counts.sum().to(x)
    else:
        total = torch.where(counts, weight.expand(x.shape).gather(classes, places).squeeze(classes), 0).sum()
    if reduction in (MEAN, SUM):
        picked = picked.sum()
    return picked / total if reduction == MEAN else picked, total


OWN: dict[str, Callable[..., Any]] = {
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "nll_loss_forward": _nll_loss,
}


def _found() -> dict[Any, tuple[Callable[..., Any] | None, Callable[..., Any]]]:
    """Return for each overload of these operators our own sequence, if there is one, and torch's."""
    found = {}
    for name in TAKEN_APART:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            if op in decomposition_table:
                found[op] = OWN.get(name) if overload == "default" else None, decomposition_table[op]
    return found


_SEQUENCES = _found()


def sequence(func: Any, args: Any) -> Callable[..., Any] | None:
    """Return a function that does the same as an operator by simpler ones; None if the operator is not taken apart."""
    found = _SEQUENCES.get(func)
    if found is None:
        return None
    own, of_torch = found
    x = args[0] if args else None
    return own if own is not None and isinstance(x, Tensor) and x.dtype in PLAIN and x.numel() else of_torch


def by_parts(mode: Mode, func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator with sums inside as simpler ones, which `mode` sees; NotImplemented if it is not taken apart."""
    if (apart := sequence(func, args)) is not None:
        with mode:
            out = apart(*args, **kwargs)
        if out is not NotImplemented:
            return out
    if is_composite(func):
        with mode:  # called from one of the decompositions
            return func.decompose(*args, **kwargs)
    return NotImplemented
