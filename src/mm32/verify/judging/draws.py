"""The random numbers that a model draws: recorded while the reference runs, and replayed in its float64 run.

Dropout and noise draw from a generator, and a float64 run would draw other numbers. So the results of every operator that
draws are recorded in order, and the float64 run takes them instead of drawing. Runs in the reference's process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from .flow import COPIES, Flow
from .operator_mode import Mode, arguments, base_name, draws, is_view

aten = torch.ops.aten
DROPOUTS = {aten.native_dropout.default}
# Parts of the names of operators that take integers as places or as lengths.
LOOKUPS = (
    *("index", "gather", "embedding", "scatter", "take", "put", "one_hot", "bincount", "repeat_interleave", "segment"),
    *("nll_loss", "cross_entropy", "ctc", "margin", "_local_scalar_dense"),
)

# Operators that take probabilities or rates, and how many of their arguments are such. On a GPU, invalid ones end the process's
# context.
LIMITED = {"bernoulli": 1, "poisson": 1, "multinomial": 1, "binomial": 2, "binary_cross_entropy": 2}
# Operators that tell on which side of one number another lies.
COMPARES = {"gt", "ge", "lt", "le", "eq", "ne", "sign", "heaviside", "bucketize", "searchsorted"}
# Other operators with limits, and which of their arguments are limits.
LIMITS = {
    "histc": ("min", "max"),
    "clamp": ("min", "max"),
    "clamp_min": ("min",),
    "clamp_max": ("max",),
    "hardtanh": ("min_val", "max_val"),
    "hardshrink": ("lambd",),
    "softshrink": ("lambd",),
    "threshold": ("threshold",),
}
DIVIDES = {"remainder", "fmod", "floor_divide", "div"}  # operators whose remainder, or quotient, depends on an integer
# Operators that sort entries, or return the place of one.
ORDERED = {"sort", "topk", "kthvalue", "argsort", "argmax", "argmin"}
MOST_TIED = 1 << 24  # equal entries are looked for among at most so many
BOUNDED = {"sigmoid", "softmax", "_softmax", "hardsigmoid"}  # operators whose results lie between 0 and 1


class CannotReplay(Exception):
    """Raised where the float64 run does not ask for the recorded random numbers; the message says where it differs."""


def dropped(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether this call of an operator that may draw does.

    Attention, recurrent networks and dropout draw nothing where the probability of dropout is 0.
    """
    name = func._schema.name
    if "scaled_dot_product" in name or "attention" in name or "rnn" in name:
        given = arguments(func, args, kwargs)
        if "rnn" in name:
            return bool(given.get("train")) and float(given.get("dropout") or 0.0) > 0.0
        return float(given.get("dropout_p") or 0.0) > 0.0
    if func in DROPOUTS:
        return args[2] is not False
    return True


# Operators that treat NaN specially. Comparing a number with itself also asks whether it is NaN.
FOR_NAN = {"nan_to_num", "nansum", "nanmedian", "isnan", "isfinite", "isinf", "isposinf", "isneginf", "fmax", "fmin"}


class SingleDraws(Mode):
    """Keeps the first calls of a forward that draw a single number or a few, up to the first call that draws more."""

    MOST, FEW = 3, 4  # the most calls that are kept, and the most numbers that one of them draws

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []
        self._over = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if draws(func) and dropped(func, args, kwargs) and not self._over:
            few = isinstance(out, Tensor) and 0 < out.numel() <= self.FEW and kwargs.get("generator") is None
            self._over = not few or len(self.calls) == self.MOST
            if not self._over:
                self.calls.append((func, pytree.tree_map_only(Tensor, Tensor.clone, args), kwargs))
        return out


# Decompositions, and which of their results hold vectors, or what has their signs. A mode sees these even where the values alone
# are asked for.
DECOMPOSITIONS = {"_linalg_eigh": (1,), "linalg_eig": (1,), "_linalg_svd": (0, 2), "linalg_qr": (0, 1)}


class Recorder(Mode):
    """Records what operators draw, the floating-point types that they return, and what else a run shows about a model.

    Among this is which of the flat `inputs` have to lie between 0 and 1, because they reach an operator that takes only such
    numbers (`limited`). `flow`: what outputs depend on.
    """

    def __init__(self, inputs: Sequence[Any] = ()) -> None:
        super().__init__()
        self.flow = Flow()
        self.limited: dict[int, str] = {}  # the input's number: the operator that limits it
        self.hiding: set[int] = set()  # inputs m of which 1 - m is computed, as of a mask that is 1 for what is seen
        self.ignored: set[int] = set()  # labels that a loss leaves out
        self._origins = WeakTensorKeyDictionary()  # for each tensor, the inputs that it is computed from
        for i, value in enumerate(inputs):
            if isinstance(value, Tensor) and value.is_floating_point():
                self._origins[value] = frozenset([i])
        self.drawn: list[tuple[str, list[Tensor]]] = []
        self.opaque: str | None = None  # an operator that draws inside a larger computation, which cannot be replayed
        self.dtypes: set[torch.dtype] = set()  # floating-point types that operators return
        self.inner: set[torch.dtype] = set()  # the same without types that are cast to only for returning
        self._casts = WeakTensorKeyDictionary()  # results of casts, and views of them
        self.names: set[str] = set()  # of all operators
        self.compared: set[float] = {0.0}  # numbers that entries are compared with
        self.divisors: set[int] = set()  # integers that entries are divided by, for the remainder or the quotient
        self.smallest: int | None = None  # the length of the shortest axis of tensors that integers are looked up in
        self._vectors = WeakTensorKeyDictionary()  # eigenvectors, singular vectors, orthogonal bases
        self._uses_vectors = False  # whether an operator takes any of these
        self.asks_nan = False  # whether the model treats NaN specially

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.names.add(func._schema.name)
        name = base_name(func._schema.name)
        if name in COMPARES:
            self.compared |= {float(a) for a in args if type(a) in (int, float)}
        if name in LIMITS:
            given = arguments(func, args, kwargs)
            limits = {float(given[one]) for one in LIMITS[name] if type(given.get(one)) in (int, float)}
            self.compared |= limits | ({-limit for limit in limits} if "shrink" in name else set())
        if name in DIVIDES:
            self.divisors |= {abs(a) for a in args if type(a) is int and abs(a) > 1}
        self.asks_nan |= name in FOR_NAN or (name in ("eq", "ne") and len(args) > 1 and args[0] is args[1])
        if any(word in func._schema.name for word in LOOKUPS):
            shape = args[0].shape if args and isinstance(args[0], Tensor) else ()
            self.smallest = min(min(shape, default=0), self.smallest if self.smallest is not None else 1 << 62)
        out = func(*args, **kwargs)
        tensors = [t for t in pytree.tree_leaves(out) if isinstance(t, Tensor)]
        self.dtypes |= {t.dtype for t in tensors if t.is_floating_point()}
        self._uses_vectors |= bool(self._vectors) and self._holds_vectors((args, kwargs))
        if name in DECOMPOSITIONS:
            for place in DECOMPOSITIONS[name]:
                self._vectors[out[place]] = True
        self._note_inner(func, args, kwargs, tensors)
        if draws(func) and dropped(func, args, kwargs):
            name = func._schema.name
            if "attention" in name or "rnn" in name:
                self.opaque = name
            self.drawn.append((name, [t.clone() for t in tensors]))
        self._follow(func, args, kwargs, tensors)
        self.flow.follow(func, args, kwargs, tensors)
        return out

    def uses_vectors(self, output: Any) -> bool:
        """Return whether the model whose output this is uses or returns the vectors of a decomposition."""
        return self._uses_vectors or self._holds_vectors(output)

    def _holds_vectors(self, tree: Any) -> bool:
        return any(isinstance(t, Tensor) and t in self._vectors for t in pytree.tree_leaves(tree))

    def _note_inner(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        """Note the types that operators return; the type of a cast only once another operator (or a cast back) takes it."""
        floats = [t for t in tensors if t.is_floating_point()]
        cast = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t in self._casts]
        name = func._schema.name.split("::")[-1]
        as_it_is = is_view(func) or name in COPIES
        if name == "_to_copy" or (cast and as_it_is):
            for t in floats:
                self._casts[t] = True
        else:
            self.inner |= {t.dtype for t in floats}
        if not as_it_is:
            self.inner |= {t.dtype for t in cast}

    def _follow(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        name = func._schema.name.split("::")[-1]
        if name in ("nll_loss_forward", "nll_loss2d_forward") and len(args) > 4:
            self.ignored.add(int(args[4]))
        if not self._origins:
            return
        for given in args[1:2] if name == "bernoulli_" else args[: LIMITED.get(name, 0)]:
            for i in self._origins.get(given, ()) if isinstance(given, Tensor) else ():
                self.limited[i] = name
        if name.rstrip("_") in BOUNDED or name.endswith("_like") or (name.startswith("clamp") and _within(args[1:3])):
            return
        given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if name == "rsub" and args[1] == 1:
            self.hiding |= self._origins.get(args[0], frozenset())
        origins = frozenset().union(*(self._origins.get(t, ()) for t in given))
        for t in tensors if origins else ():
            if t.is_floating_point():
                self._origins[t] = origins


def _within(limits: Sequence[Any]) -> bool:
    """Return whether numbers clamped to these limits lie between 0 and 1."""
    low, high = (*limits, None, None)[:2]
    return isinstance(low, (int, float)) and isinstance(high, (int, float)) and low >= 0 and high <= 1


class Replayer(Mode):
    """Replays what a Recorder recorded, floating-point numbers in float64. Raises CannotReplay where the calls differ.

    What a model itself casts to a lower floating-point type stays in float64.
    """

    def __init__(self, drawn: list[tuple[str, list[Tensor]]]) -> None:
        super().__init__()
        self.drawn = iter(drawn)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if isinstance(kwargs.get("dtype"), torch.dtype) and kwargs["dtype"].is_floating_point:
            kwargs["dtype"] = torch.float64
        if func is aten.view.dtype:
            raise CannotReplay("it looks at the bits of its numbers")
        if not (draws(func) and dropped(func, args, kwargs)):
            return func(*args, **kwargs)
        name, tensors = next(self.drawn, ("", []))
        if name != func._schema.name:
            raise CannotReplay(f"in float64 it draws by {func._schema.name}, in its own type by {name or 'nothing'}")
        if func in DROPOUTS:
            mask = tensors[1]
            return args[0] * mask / (1.0 - args[1]) if args[1] < 1 else args[0] * 0.0, mask
        if func._schema.is_mutable:
            target = args[0]
            if target.shape != tensors[0].shape:
                raise CannotReplay(
                    f"in float64 {name} fills {tuple(target.shape)} instead of {tuple(tensors[0].shape)}"
                )
            return target.copy_(tensors[0])
        given = [t.double() if t.is_floating_point() else t.clone() for t in tensors]
        return given[0] if len(given) == 1 else tuple(given)


class Watch(Mode):
    """Watches a run: whether NaN or Inf is cast to integers (`cast`), and what else is asked for.

    `found`: with `makes_nan`, whether an operator returns NaN. `tied`: with `ties`, whether an operator that sorts entries, or
    returns the place of one, gets equal ones.
    """

    def __init__(self, makes_nan: bool = False, ties: bool = False) -> None:
        super().__init__()
        self.makes_nan, self.ties = makes_nan, ties
        self.found = self.cast = self.tied = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if (
            base_name(func._schema.name) in ("_to_copy", "copy")
            and isinstance(out, Tensor)
            and not out.is_floating_point()
        ):
            source = args[0] if func._schema.name.endswith("_to_copy") else args[1]
            whole = out.dtype != torch.bool and not out.is_complex() and source.is_floating_point()
            self.cast = self.cast or (whole and not bool(source.isfinite().all()))
        if self.ties and not self.tied and base_name(func._schema.name) in ORDERED and args[0].numel() <= MOST_TIED:
            with _disable_current_modes():
                dim = arguments(func, args, kwargs or {}).get("dim")
                ordered = args[0].flatten().sort().values if dim is None else args[0].sort(dim).values.movedim(dim, -1)
                self.tied = bool((ordered.diff(dim=-1) == 0).any()) if ordered.dim() else False
        for t in pytree.tree_leaves(out) if self.makes_nan and not self.found else ():
            if isinstance(t, Tensor) and t.is_floating_point() and not self.found:
                self.found = bool(t.isnan().any())
        return out
