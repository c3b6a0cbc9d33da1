"""Other tools of torch's that meet mm32: torch.fx, torch.jit.trace, compiled autograd, the flop counter."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.fx
from torch.utils.flop_counter import FlopCounterMode

import mm32


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = mm32.nn.Linear(8, 4, activation="relu")
        self.weight = torch.nn.Parameter(torch.randn(5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return mm32.linear(y, self.weight, activation="tanh") + mm32.matmul(y, self.weight.T)


def test_fx_keeps_mm32_in_the_graph(seed: int) -> None:
    model, x = Model(), torch.randn(3, 8)
    graph = torch.fx.symbolic_trace(model)
    called = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert called.count(mm32.linear) == 2
    assert called.count(mm32.matmul) == 1
    torch.testing.assert_close(graph(x), model(x))


def test_what_is_no_tensor_and_has_no_protocol_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"x must be a torch.Tensor, got list"):
        mm32.linear([1.0], torch.randn(3, 1))  # type: ignore[arg-type]


def test_tracing_a_captured_parameter_does_not_end_the_process() -> None:
    """A shape of such a tensor raises in torch.jit.trace. Where that error was caught, torch crashed at the next product."""
    code = (
        "import torch, mm32\n"
        "layer, x, w = mm32.nn.Linear(8, 4), torch.randn(2, 8), torch.randn(8, 4, requires_grad=True)\n"
        "for of in (lambda t: layer(t), lambda t: mm32.linear(t, layer.weight), lambda t: mm32.matmul(t, w)):\n"
        "    try:\n"
        "        found = torch.jit.trace(of, x)(x)\n"
        "    except RuntimeError as error:\n"
        "        assert 'Cannot insert a Tensor that requires grad as a constant' in str(error), error\n"
        "    else:\n"
        "        torch.testing.assert_close(found, of(x))\n"
        "print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "done", (done.returncode, done.stderr)


def test_compiled_autograd_of_what_was_recorded_eagerly(seed: int) -> None:
    a, b = torch.randn(6, 8, requires_grad=True), torch.randn(8, 4, requires_grad=True)
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(lambda y: y.backward(), backend="aot_eager")(mm32.matmul(a, b, activation="silu").square().sum())
    own = a.grad, b.grad
    a.grad = b.grad = None
    torch.nn.functional.silu(a @ b).square().sum().backward()
    torch.testing.assert_close(own, (a.grad, b.grad))


def test_flops_are_counted() -> None:
    a, b = torch.randn(3, 6, 8, requires_grad=True), torch.randn(8, 4, requires_grad=True)
    with FlopCounterMode(display=False) as counted:
        y = mm32.matmul(a, b)
    assert counted.get_total_flops() == 2 * 3 * 6 * 8 * 4
    with FlopCounterMode(display=False) as counted:
        y.sum().backward()
    assert counted.get_total_flops() == 2 * 2 * 3 * 6 * 8 * 4


@pytest.mark.parametrize("wrong", [lambda: 1, Model, 3])
def test_a_decorator_without_parentheses_is_an_error(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"@mm32\.enabled\(\)"):
        mm32.enabled(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown precision"):
        mm32.enabled("fp16")  # type: ignore[arg-type]
