"""`mm32 verify REFERENCE --kernel NAME`: the reference's model, with its products computed by a kernel of this library.

The model is traced with torch.fx. Each matmul, linear or `@`, with a bias added to it and an activation of the sum if
there are any, becomes one call of `mm32.matmul` or `mm32.linear`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from mm32 import activations


class CannotRewrite(Exception):
    """The model cannot be traced, or has no product to rewrite."""


MATMULS: set[Any] = {torch.matmul, torch.mm, torch.bmm, operator.matmul, "matmul", "mm", "bmm", "__matmul__"}
ADDS: set[Any] = {torch.add, operator.add, operator.iadd, "add", "add_", "__add__"}


def rewrite(
    model: nn.Module,
    kernel: str,
    matmul: Callable[..., Tensor] | None = None,
    linear: Callable[..., Tensor] | None = None,
) -> fx.GraphModule:
    """Return `model` with every matmul and linear computed by the library's kernel `kernel`, bias and activation fused.

    `matmul` and `linear`: the functions to call instead; by default the library's. Raises CannotRewrite.
    """
    if matmul is None or linear is None:
        import mm32

        matmul, linear = mm32.matmul, mm32.linear
    try:
        traced = fx.symbolic_trace(model)
    except Exception as error:
        raise CannotRewrite(
            f"the model cannot be traced by torch.fx ({type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}); "
            "write a candidate file with class ModelNew instead"
        ) from None
    modules = dict(traced.named_modules())
    done = 0
    for node in list(traced.graph.nodes):
        call = _product(node, traced, modules, matmul, linear)
        if call is None:
            continue
        function, args, kwargs = call
        last = node
        added = _only_user(last)
        if kwargs.get("bias") is None and added is not None and _key(added, modules) in ADDS:
            bias = _bias(added, last, traced)
            if bias is not None:
                kwargs["bias"] = bias
                last = added
        applied = _only_user(last)
        activation = _activation(applied, modules) if applied is not None else None
        if applied is not None and activation is not None:
            kwargs["activation"] = activation
            last = applied
        with traced.graph.inserting_before(last):
            new = traced.graph.call_function(function, args, {**kwargs, "kernel": kernel})
        last.replace_all_uses_with(new)
        traced.graph.eliminate_dead_code()
        done += 1
    if done == 0:
        raise CannotRewrite("the model holds no matmul, linear or @ that a kernel of this library could compute")
    traced.graph.eliminate_dead_code()
    traced.graph.lint()
    traced.recompile()
    return traced


def _key(node: fx.Node, modules: dict[str, nn.Module]) -> Any:
    """Return what a node calls, as the tables above name it: a function, a method's name or a module's type."""
    if node.op == "call_module":
        return type(modules[str(node.target)])
    return node.target if node.op in ("call_function", "call_method") else None


def _product(
    node: fx.Node, traced: fx.GraphModule, modules: dict[str, nn.Module], matmul: Any, linear: Any
) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    key = _key(node, modules)
    if node.op in ("call_function", "call_method") and key in MATMULS and len(node.args) + len(node.kwargs) == 2:
        rest = [node.kwargs[name] for name in ("input", "other", "mat2", "tensor2") if name in node.kwargs]
        return matmul, (*node.args, *rest), {}
    if key is F.linear:
        names = ("input", "weight", "bias")
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        return linear, (given["input"], given["weight"]), {"bias": given.get("bias")}
    if key is nn.Linear:
        module = modules[str(node.target)]
        with traced.graph.inserting_before(node):
            weight = traced.graph.get_attr(f"{node.target}.weight")
            bias = traced.graph.get_attr(f"{node.target}.bias") if module.bias is not None else None
        return linear, (node.args[0], weight), {"bias": bias}
    return None


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _bias(added: fx.Node, product: fx.Node, traced: fx.GraphModule) -> fx.Node | None:
    """Return the 1-D parameter or buffer that `added` adds to `product`; None if it adds anything else."""
    if len(added.args) != 2 or added.kwargs:
        return None
    other = added.args[1] if added.args[0] is product else added.args[0]
    if not isinstance(other, fx.Node) or other.op != "get_attr":
        return None
    value: Any = traced
    for name in str(other.target).split("."):
        value = getattr(value, name)
    return other if isinstance(value, Tensor) and value.dim() == 1 else None


def _activation(node: fx.Node, modules: dict[str, nn.Module]) -> str | None:
    """Return the library's name of the activation that `node` applies; None if the library has none that computes the same."""
    if node.op == "call_module":
        known = activations.of_module(modules[str(node.target)])
        return known.name if known is not None else None
    if node.op in ("call_function", "call_method"):
        for known in activations.ACTIVATIONS:
            if node.target in known.calls and _options(node, known) == known.options:
                return known.name
    return None


def _options(node: fx.Node, known: activations.Activation) -> dict[str, Any]:
    """Return the options of an activation's call, or torch's defaults, which are those of the activation's module."""
    usual = known.module()
    given = {**dict(zip(known.options, node.args[1:], strict=False)), **node.kwargs}
    return {name: given.get(name, getattr(usual, name)) for name in known.options}
