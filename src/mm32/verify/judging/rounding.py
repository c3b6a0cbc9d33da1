"""How far rounding may honestly move a model's output: its float64 run again, with every operator's result perturbed.

Each operator of the run is perturbed as much as an honest kernel's rounding would: by one unit roundoff u of the model's own
type, and where it sums K terms, its operands and its result by sqrt(K) u of fp32. The error of an fp32 sum in order is a third of
that for most data, and as much where few terms are large (docs/same.md has the measurements). What follows at the output holds
for any model, because the model itself carries the perturbations there: through cancellation, through 1/x, through fifty layers.
This is stochastic arithmetic, operator by operator (Vignes, Mathematics and Computers in Simulation 35, 1993). Composites with
sums inside (softmax, norms, losses, attention) are taken apart first (composites.py). Runs in the reference's process.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .bounds import LONGEST_SUM, U32
from .composites import by_parts
from .draws import dropped
from .operator_mode import Mode, draws, is_view, operator
from .ties import Ties

# How many numbers are drawn to perturb one tensor; a larger tensor takes them again and again. It is a prime, so that no row and
# no column meets the same number twice.
DRAWN = 1048573
# Tensors of at most SHORT entries share a pool of POOL numbers: each takes a stretch of it, from a place drawn at random. The
# pool is drawn anew after STRETCHES stretches, because perturbations by the same numbers again and again would add up.
POOL, SHORT, STRETCHES = 1 << 16, 1 << 15, 2048

OF_DIFFERENCES = {"_cdist_forward", "_pdist_forward"}  # the difference of two equal numbers is 0, however it is rounded
PRODUCTS = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "mv": (0, 1),
    "dot": (0, 1),
    "vdot": (0, 1),
    "addmm": (1, 2),
    "addbmm": (1, 2),
    "baddbmm": (1, 2),
    "addmv": (1, 2),
    "linear": (0, 1),
    "mkldnn_linear": (0, 1),
    "convolution": (0, 1),
    "_convolution": (0, 1),
    "cudnn_convolution": (0, 1),
    "mkldnn_convolution": (0, 1),
}
SCALINGS = {"mul", "div"}
# If one operand of these is a Python number, results that are exact in fp32 are not perturbed.
WITH_NUMBERS = {"mul", "div", "add", "sub", "rsub"}
# An honest kernel takes the power of two of x log2(e), which fp32 rounds: its result is off by |x| u.
POWERS = {"exp", "exp2", "expm1"}
SCANS = {"cumsum", "cumprod", "logcumsumexp"}
# Operators that return places of sorted entries; torch does not define in which order equal entries come.
UNORDERED = {"sort", "topk", "kthvalue", "median", "nanmedian"}
# Operators whose result is made of their operands' own entries: nothing is rounded.
EXACT = {
    "clone",
    "copy",
    "contiguous",
    "_to_copy",
    "cat",
    "stack",
    "index",
    "index_select",
    "gather",
    "embedding",
    "where",
    "masked_fill",
    "masked_select",
    "relu",
    "threshold",
    "hardtanh",
    "clamp",
    "clamp_min",
    "clamp_max",
    "maximum",
    "minimum",
    "max",
    "min",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "sort",
    "topk",
    "kthvalue",
    "median",
    "nanmedian",
    "mode",
    "cummax",
    "cummin",
    "aminmax",
    "fmax",
    "fmin",
    "copysign",
    "nan_to_num",
    "take",
    "index_fill",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "neg",
    "abs",
    "sign",
    "sgn",
    "flip",
    "roll",
    "tril",
    "triu",
    "repeat",
    "constant_pad_nd",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "pixel_unshuffle",
    "zeros",
    "ones",
    "full",
    "arange",
    "empty",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
    "scalar_tensor",
    "fill",
    "zero",
    "scatter",
    "index_put",
    "index_copy",
    "masked_scatter",
    "diag_embed",
    "unsafe_split",
    "unsafe_chunk",
    "unsafe_split_with_sizes",
    "slice_scatter",
    "select_scatter",
    "slice_backward",
    "pixel_shuffle",
    "im2col",
    "unfold_copy",
    "convert_element_type",
    "lift_fresh",
    "lift_fresh_copy",
    "eye",
    "nonzero",
    "unique2",
    "one_hot",
    "round",
    "floor",
    "ceil",
    "trunc",
    "heaviside",
    "histc",
    "native_channel_shuffle",
    "empty_strided",
    "new_empty_strided",
    "resize",
    "set",
    "view_as_real",
    "view_as_complex",
    "broadcast_in_dim",
    "expand_copy",
    "max_unpool2d",
}


def sum_length(func: Any, args: Any, out: Any) -> int:
    """Return how many terms each number that the operator returns is summed from, by the sizes of its operands."""
    name = operator(func)
    shapes = [tuple(a.shape) if isinstance(a, Tensor) else None for a in args]
    if name in PRODUCTS:
        left, right = (shapes[i] for i in PRODUCTS[name])
        assert left is not None
        assert right is not None
        if "convolution" not in name:
            return max(1, left[-1])
        transposed = name in ("convolution", "_convolution") and bool(args[6])
        groups = args[8] if name in ("convolution", "_convolution") else 1
        kernel = math.prod(right[2:])
        return max(1, kernel * (right[0] // groups if transposed else right[1]))
    if name in SCANS:
        return max(1, shapes[0][args[1]] if shapes[0] else 1)
    if "rnn" in name or name in ("lstm", "gru"):
        return sum(
            t.numel() // max(t.shape[0], 1) for t in pytree.tree_leaves(args) if isinstance(t, Tensor) and t.dim() == 2
        )
    if "attention" in name:
        return shapes[0][-1] + shapes[1][-2] if shapes[0] and shapes[1] else 1
    if "cdist" in name or name.startswith("pairwise"):
        return max(1, shapes[0][-1] if shapes[0] else 1)
    if name.startswith(("linalg", "_linalg", "cholesky", "lu_")) and "norm" not in name:
        return max(1, shapes[0][-1] ** 2 if shapes[0] else 1)
    if name.startswith("_fft"):
        return 64  # a butterfly's depth, squared, with room
    if "avg_pool" in name and isinstance(args[1], (list, tuple)) and "adaptive" not in name:
        return math.prod(args[1])
    if name in ("scatter_add", "index_add", "scatter_reduce", "index_reduce"):
        return max(1, shapes[-1][args[1]] if shapes[-1] and isinstance(args[1], int) else 1)
    if name == "embedding_bag" or name == "_embedding_bag":
        return max(1, math.prod(shapes[1] or (1,)) // max(1, out[0].shape[0]))
    return max(1, _largest(args) // max(1, _largest(out)))


def _largest(value: Any) -> int:
    """Return the number of entries of the largest tensor in nested values; 1 if there is none."""
    numbers: list[int] = []
    _mapped(lambda t: numbers.append(t.numel()), value)
    return max(numbers, default=1)


class Rounding(Mode):
    """Perturbs the results of operators by `u` and by the errors of sums; with `u` 0 it only collects the sums' `lengths`.

    With `cut` it rounds the operands of every product by that function instead: `round_to` with 11 bits is TF32, with 8 bfloat16.
    """

    def __init__(
        self,
        u: float = 0.0,
        seed: int = 0,
        device: torch.device | str = "cpu",
        cut: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.u = u
        self.sum_u = min(u, U32)
        self.cut = cut
        self.places = random.Random(seed)
        # The generator is not seeded by `seed` itself, by which the data were drawn: on a card, all numbers of one seed are
        # correlated, however they are drawn. Perturbations that follow the signs of a sum's terms add up, as roundings do not.
        self.generator = torch.Generator(device=device).manual_seed(self.places.getrandbits(63)) if u else None
        self.stretches = 0  # how many have been taken from the pool
        self.pool = self.one = torch.ones(())
        self.lengths: list[int] = []
        self.products = 0
        self.multiplications = 0  # operators that multiply entry by entry: a loop over the steps of a sequence has many
        self.ties: Ties | None = None  # if set, numbers near a tie are looked for
        self.steps = 0  # how many operators that step (steps.py) have been called, as `ties` counts them
        self.unordered = False  # whether equal entries were sorted in another order than in the unperturbed run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (out := by_parts(self, func, args, kwargs)) is not NotImplemented:
            return out
        name = operator(func)
        if self.ties is not None:
            with _disable_current_modes():
                if self.u:
                    self.steps = self.ties.compare(self.steps, func, args, kwargs, self.u)
                else:
                    self.ties.keep(func, args, kwargs)
        if self.u and name in UNORDERED:
            return self._in_any_order(func, args, kwargs)
        if is_view(func) or name in EXACT or (draws(func) and dropped(func, args, kwargs)):
            return func(*args, **kwargs)
        self.multiplications += name == "mul"
        if name in PRODUCTS:
            self.products += 1
            if self.cut is not None:
                args = list(args)
                for i in PRODUCTS[name]:
                    if isinstance(args[i], Tensor) and args[i].is_floating_point():
                        args[i] = self.cut(args[i])
        if self.u and not (name in SCALINGS and len(args) > 1 and _is_power_of_two(args[1])):
            return self._perturbed(func, args, kwargs, name)
        out = func(*args, **kwargs)
        self._seen(func, args, kwargs, name, out)
        return out

    def _seen(self, func: Any, args: Any, kwargs: Any, name: str, out: Any) -> None:
        """Take note, in an unperturbed run, of an operator that may round, and of what it returned."""
        self._note(sum_length(func, args, out))

    def _note(self, length: int) -> None:
        if length > 1:
            self.lengths.append(length)

    def _perturbed(self, func: Any, args: Any, kwargs: Any, name: str) -> Any:
        mutable = func._schema.is_mutable
        out = func(*args, **kwargs)
        length = sum_length(func, args, out)
        if length > 1 and not mutable:
            of_sum, exact = self.sum_u * math.sqrt(min(length, LONGEST_SUM)), out
            out = func(*_mapped(lambda t: self._noisy(t, of_sum), tuple(args)), **kwargs)
            if name in OF_DIFFERENCES:
                out = out.masked_fill_(exact == 0, 0)
        elif name in POWERS and not mutable:
            out = func(*_mapped(lambda t: self._noisy(t, self.sum_u), tuple(args)), **kwargs)
        self._note(length)
        size = max(self.u, self.sum_u * math.sqrt(min(length, LONGEST_SUM)) if length > 1 else 0.0)
        if mutable:
            _mapped(lambda t: t.copy_(self._noisy(t, size)), out)
            return out
        if self.u == U32 and name in WITH_NUMBERS and len(args) > 1 and type(args[1]) in (int, float):
            return _mapped(lambda t: self._noisy_if_rounded(t, size), out)
        return _mapped(lambda t: self._noisy(t, size), out)

    def _in_any_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what an operator that sorts gives with equal entries in an order drawn at random, if torch allows any order."""
        t, names = args[0], [argument.name for argument in func._schema.arguments]
        fixed = kwargs.get("stable") or "dim" not in names or not t.dim() or not t.numel()
        if fixed or self.generator is None or t.device != self.generator.device:
            return func(*args, **kwargs)
        at = names.index("dim")
        dim = kwargs.get("dim", args[at] if at < len(args) else -1)
        with _disable_current_modes():  # these are no draws of the model's
            ordered = t.sort(dim).values
            if not bool((ordered.narrow(dim, 1, t.shape[dim] - 1) == ordered.narrow(dim, 0, t.shape[dim] - 1)).any()):
                return func(*args, **kwargs)
            self.unordered = True
            order = self._uniform(t.shape[dim], t.device).argsort()
            values, places = func(t.index_select(dim, order), *args[1:], **kwargs)
            return values, order[places]

    def _noisy(self, t: Tensor, size: float) -> Tensor:
        """Return `t` with every entry multiplied by 1 + a random number of standard deviation `size`."""
        if not t.is_floating_point() or not size or self.generator is None or t.device != self.generator.device:
            return t  # a number that the host keeps beside a model on a card is exact
        count, spread = t.numel(), size * math.sqrt(12)
        with _disable_current_modes():  # these are no draws of the model's
            if count <= SHORT:
                if self.stretches % STRETCHES == 0:
                    self.pool = self._uniform(POOL, t.device)
                    self.one = torch.ones((), dtype=torch.float64, device=t.device)
                self.stretches += 1
                at = int(self.places.random() * (POOL - SHORT))
                return t * torch.add(self.one, self.pool[at : at + count].view(t.shape), alpha=spread)
            factors = self._uniform(min(count, DRAWN), t.device).mul_(spread).add_(1.0)
            if count <= DRAWN:
                return t * factors.view(t.shape)
            out = torch.empty(t.shape, dtype=torch.promote_types(t.dtype, torch.float64), device=t.device)
            source, target = t.contiguous().view(-1), out.view(-1)
            for at in range(0, count, DRAWN):
                piece = source[at : at + DRAWN]
                torch.mul(piece, factors[: piece.numel()], out=target[at : at + DRAWN])
            return out

    def _noisy_if_rounded(self, t: Tensor, size: float) -> Tensor:
        """Return the same, but with entries that are exact in fp32 as they are."""
        if not t.is_floating_point():
            return t
        with _disable_current_modes():
            return torch.where(t == t.float(), t, self._noisy(t, size))

    def _uniform(self, count: int, device: torch.device) -> Tensor:
        """Numbers from -1/2 to 1/2."""
        return torch.rand(count, generator=self.generator, device=device, dtype=torch.float64).sub_(0.5)


def _is_power_of_two(value: Any) -> bool:
    """Return whether `value` is a Python number that is a power of two: multiplying by it rounds nothing."""
    return type(value) in (int, float) and math.isfinite(value) and math.frexp(value)[0] in (0.5, -0.5)


def _mapped(change: Callable[[Tensor], Any], value: Any) -> Any:
    """Return `value` with every tensor changed. torch's own walk over nested values takes as long as a small operator."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(_mapped(change, one) for one in value)
    if value is None or isinstance(value, (int, float, bool, torch.dtype, torch.device)):
        return value
    return pytree.tree_map_only(Tensor, change, value)


def round_to(t: Tensor, bits: int, way: Callable[[Tensor], Tensor] = torch.round) -> Tensor:
    """Return `t` with its significand rounded to `bits` bits: to nearest, or by another `way` to an integer (torch.trunc)."""
    mantissa, exponent = torch.frexp(t)
    scale = 2.0**bits
    return torch.where(t.isfinite(), torch.ldexp(way(mantissa * scale) / scale, exponent), t)
