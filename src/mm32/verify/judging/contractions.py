"""Models that are one product with an epilogue, and how large an error of theirs is reasonable: the gauge |A||B| + |bias|.

The truth is the reference model itself run in float64. If the model is a contraction (views, one product of the matmul
family, at most one added bias, at most one known activation), its error has a natural unit: an entry of C = A B computed
in fp32 with unit roundoff u satisfies |C - C64| <= c u (|A||B|), with c between 1 and about K, for any summation
order (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.5). The gauge is this |A||B|, plus |bias|.

Runs in the reference's process.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from mm32 import activations

from .operator_mode import Mode

aten = torch.ops.aten

VIEWS = {
    aten.t.default,
    aten.transpose.int,
    aten.permute.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.expand.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.alias.default,
    aten.detach.default,
    aten.numpy_T.default,
    aten.mT.default,
}
COPIES = {aten.clone.default, aten.contiguous.default}
# Products: (index of A, index of B, index of an added term, or None).
PRODUCTS: dict[Any, tuple[int, int, int | None]] = {
    aten.mm.default: (0, 1, None),
    aten.bmm.default: (0, 1, None),
    aten.mv.default: (0, 1, None),
    aten.dot.default: (0, 1, None),
    aten.addmm.default: (1, 2, 0),
    aten.baddbmm.default: (1, 2, 0),
    aten.addmv.default: (1, 2, 0),
}
# Names of activations by the operator that a traced model calls. If two have the same operator and differ in its options (gelu),
# the first counts.
ACTIVATIONS = {known.aten: known.name for known in reversed(activations.ACTIVATIONS)}


class NotAContraction(Exception):
    """Raised if the model is not one product with an epilogue; the message says why."""


def _keep(t: Tensor) -> Tensor:
    return t


def tf32(t: Tensor) -> Tensor:
    """Return `t` with its significand rounded to TF32's 11 bits, to nearest, ties to even; of other types, to bfloat16's."""
    if t.dtype is not torch.float32:
        return t.to(torch.bfloat16).to(t.dtype)
    bits = t.contiguous().view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.where(t.isfinite(), rounded.view(torch.float32), t)


def half_of_k(t: Tensor) -> Tensor:
    """Return a left operand with the second half of K set to zero."""
    out = t.clone()
    out[..., t.shape[-1] // 2 :] = 0
    return out


@dataclass
class Contraction:
    """A traced model that is one product with an epilogue; `run` replays it with the operands changed."""

    graph: fx.Graph
    names: list[str]  # names of the graph's inputs: "parameter weight", "input 0"
    product: fx.Node
    operands: tuple[fx.Node, fx.Node]
    sources: tuple[int, int]  # which of the graph's inputs A and B are views of
    bias: list[fx.Node]
    bias_sources: list[int]
    activation: str | None
    shape: tuple[int, ...]  # of the product
    k: int

    def describe(self) -> dict[str, Any]:
        m = self.operands[0].meta["val"].shape[-2] if self.operands[0].meta["val"].dim() > 1 else 1
        n = self.operands[1].meta["val"].shape[-1] if self.operands[1].meta["val"].dim() > 1 else 1
        batch = math.prod(self.shape[:-2]) if len(self.shape) > 2 else 1
        return {
            "op": str(self.product.target).removeprefix("aten.").split(".")[0],
            "m": int(m),
            "n": int(n),
            "k": int(self.k),
            "batch": int(batch),
            "a": self.names[self.sources[0]],
            "b": self.names[self.sources[1]],
            "bias": ", ".join(self.names[i] for i in self.bias_sources) or None,
            "activation": self.activation,
        }

    def run(
        self,
        inputs: Sequence[Any],
        a: Callable[[Tensor], Tensor] = _keep,
        b: Callable[[Tensor], Tensor] = _keep,
        bias: Callable[[Tensor], Tensor] = _keep,
        activation: bool = True,
    ) -> Tensor:
        """Return the model's output for flat `inputs`, with `a`, `b` and `bias` applied to the operands first."""
        return self._replay(inputs, a, b, bias, activation, stop=None)

    def gauge(self, inputs: Sequence[Any]) -> Tensor:
        """Return |A||B| + |bias|, with the shape of the output.

        The product is computed in the operands' own precision, which costs half as much. The terms are not negative, so
        the relative error is at most K u, 0.05 % at K = 8192. It is computed in float64 if it overflows, and for types other than
        fp32 and float64.
        """
        result = self._replay(inputs, torch.abs, torch.abs, torch.abs, False, stop=None)
        if result.dtype not in (torch.float32, torch.float64) or not bool(torch.isfinite(result.sum())):
            doubled = [t.double() if isinstance(t, Tensor) and t.is_floating_point() else t for t in inputs]
            result = self._replay(doubled, torch.abs, torch.abs, torch.abs, False, stop=None)
        return result if isinstance(result, Tensor) and result.dtype is torch.float32 else result.double()

    def views(self, inputs: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """Return A and B as the product's operands: views of `inputs`, unless the model copies them before the product."""
        left = self._replay(inputs, _keep, _keep, _keep, False, stop=self.operands[0])
        return left, self._replay(inputs, _keep, _keep, _keep, False, stop=self.operands[1])

    def _replay(
        self,
        inputs: Sequence[Any],
        a: Callable[[Tensor], Tensor],
        b: Callable[[Tensor], Tensor],
        bias: Callable[[Tensor], Tensor],
        activation: bool,
        stop: fx.Node | None,
    ) -> Any:
        env: dict[fx.Node, Any] = {}
        feed = iter(inputs)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(feed)
            elif node.op == "output":
                return env[node.args[0][0]]
            else:
                if stop is not None and node is self.product:
                    continue
                args = list(node.args)
                seen: list[Any] = [env.get(arg) if isinstance(arg, fx.Node) else arg for arg in args]
                if node is self.product:
                    left, right, added = PRODUCTS[node.target]
                    seen[left], seen[right] = a(seen[left]), b(seen[right])
                    if added is not None:
                        seen[added] = bias(seen[added])
                elif any(isinstance(arg, fx.Node) and arg in self.bias for arg in args) and node.target in ADDS:
                    seen = [bias(x) if arg in self.bias else x for arg, x in zip(args, seen, strict=True)]
                if node.target in ACTIVATIONS and not activation:
                    env[node] = seen[0]
                elif any(isinstance(arg, fx.Node) and arg not in env for arg in args):
                    continue  # the node needs the product, and only an operand is wanted
                elif stop is None and node.target in RESHAPES:
                    env[node] = seen[0].reshape(seen[1])  # strides other than the trace's may not allow a view
                else:
                    env[node] = node.target(*seen, **node.kwargs)
            if stop is not None and node is stop:
                return env[stop]
        raise AssertionError("a graph without an output")


ADDS = {aten.add.Tensor}
RESHAPES = {aten.view.default, aten._unsafe_view.default}


def flat_inputs(model: nn.Module, inputs: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return the traced graph's inputs in order, and their names: parameters and buffers, then the model's inputs."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    values: list[Any] = list(state.values())
    names = [f"parameter {name}" for name in state]
    for i, value in enumerate(inputs):
        items = pytree.tree_leaves(value)
        values += items
        names += [f"input {i}" if len(items) == 1 else f"input {i}.{j}" for j in range(len(items))]
    return values, names


class Tracer(Mode):
    """Records a model's operators as a graph while it computes. `values` are the graph's inputs (see flat_inputs).

    torch's own tracer, make_fx, would import the compilers, which takes a second in each verification.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        super().__init__()
        self._graph = fx.Graph()
        self._nodes = WeakTensorKeyDictionary()
        self._decides: str | None = None
        for i, value in enumerate(values):
            node = self._graph.placeholder(f"value_{i}")
            if isinstance(value, Tensor):
                self._set(value, node)

    def _set(self, t: Tensor, node: fx.Node) -> None:
        node.meta["val"] = torch.empty(t.shape, dtype=t.dtype, device="meta")
        self._nodes[t] = node

    def _node(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value not in self._nodes:
            self._set(value, self._graph.create_node("get_attr", "constant"))
        return self._nodes[value]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        with _disable_current_modes():
            given, named = pytree.tree_map(self._node, (tuple(args), dict(kwargs)))
            node = self._graph.create_node("call_function", func, given, named)
            if isinstance(out, Tensor):
                self._set(out, node)
            elif isinstance(out, (bool, int, float, complex)):
                self._decides = func._schema.name.split("::")[-1]
            else:
                for i, item in enumerate(pytree.tree_leaves(out)):
                    if isinstance(item, Tensor):
                        self._set(item, self._graph.create_node("call_function", operator.getitem, (node, i)))
        return out

    def graph(self, output: Any) -> fx.Graph:
        """Return the graph that ends in the model's `output`. Raises NotAContraction if it holds for these numbers only."""
        if self._decides is not None:
            raise NotAContraction(f"what it computes depends on its numbers ({self._decides})")
        with _disable_current_modes():
            self._graph.output([self._node(leaf) for leaf in pytree.tree_leaves(output)])
        self._graph.eliminate_dead_code()
        return self._graph


def find_contraction(graph: fx.Graph, names: list[str]) -> Contraction:
    """Return the traced model as one product with an epilogue. Raises NotAContraction, with the reason, if it is not one."""
    source: dict[fx.Node, int] = {}
    product: fx.Node | None = None
    after: set[fx.Node] = set()
    bias: list[fx.Node] = []
    activation: str | None = None
    placeholders = 0
    for node in graph.nodes:
        args = [arg for arg in node.args if isinstance(arg, fx.Node)]
        name = str(node.target).removeprefix("aten.")
        if node.op == "placeholder":
            source[node] = placeholders
            placeholders += 1
        elif node.op == "output":
            if [item in after for item in node.args[0]] != [True]:
                raise NotAContraction("its output is not one tensor that a matmul computes")
        elif node.op != "call_function":
            raise NotAContraction(f"it holds a constant ({node.target})")
        elif node.target in VIEWS | COPIES and len(args) == 1:
            if args[0] in after:
                after.add(node)
            else:
                source[node] = source[args[0]]
        elif node.target in PRODUCTS:
            left, right, added = PRODUCTS[node.target]
            if product is not None:
                raise NotAContraction("it holds more than one product")
            if not all(arg in source for arg in args):
                raise NotAContraction("an operand is computed")
            if any(node.kwargs.get(key, 1) != 1 for key in ("alpha", "beta")):
                raise NotAContraction("it scales its product")
            product, operands = node, (node.args[left], node.args[right])
            if added is not None:
                bias.append(node.args[added])
            after.add(node)
        elif node.target in ADDS and product is not None and activation is None:
            others = [arg for arg in args if arg not in after]
            if len(args) != 2 or len(others) != 1 or others[0] not in source or node.kwargs.get("alpha", 1) != 1:
                raise NotAContraction("it adds something other than a bias")
            bias.append(others[0])
            after.add(node)
        elif node.target in ACTIVATIONS and args[0] in after and activation is None:
            activation = ACTIVATIONS[node.target]
            after.add(node)
        else:
            raise NotAContraction(f"it holds {name}")
    if product is None:
        raise NotAContraction("it holds no matrix product")
    if not product.meta["val"].is_floating_point():
        raise NotAContraction("its product is not of floating point")
    a, b = operands
    return Contraction(
        graph=graph,
        names=names,
        product=product,
        operands=(a, b),
        sources=(source[a], source[b]),
        bias=bias,
        bias_sources=[source[node] for node in bias],
        activation=activation,
        shape=tuple(product.meta["val"].shape),
        k=int(a.meta["val"].shape[-1]),
    )
