"""The table of activations: the kernels, torch and the table agree on what each one means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import mm32
from mm32 import activations
from mm32.activations import ACTIVATIONS, Activation
from mm32.cuda.compile import KERNEL_DIR

DOCS = Path(__file__).parent.parent / "docs"
EVERY = pytest.mark.parametrize("activation", ACTIVATIONS, ids=activations.names())


def epilogue() -> str:
    (path,) = Path(KERNEL_DIR).rglob("epilogue.cuh")
    return path.read_text()


def test_the_kernels_cases_are_the_tables_numbers() -> None:
    """Every number has one case in epilogue.cuh, whose comment has the table's name."""
    cases = [int(n) for n in re.findall(r"^#(?:el)?if MM32_ACTIVATION == (\d+)$", epilogue(), re.M)]
    assert cases == [activation.number for activation in ACTIVATIONS] == list(range(1, 1 + len(ACTIVATIONS)))
    (said,) = re.findall(r"MM32_ACTIVATION +(0 none(?:, \d+ \w+)+)", epilogue())
    assert said == ", ".join(["0 none", *(f"{x.number} {x.name}" for x in ACTIVATIONS)])


def test_names_are_looked_up() -> None:
    assert activations.number(None) == 0
    for activation in ACTIVATIONS:
        assert activations.named(activation.name) is activation
        assert activations.number(activation.name) == activation.number
        assert f'"{activation.name}"' in (mm32.matmul.__doc__ or "")
    assert len(set(activations.names())) == len(ACTIVATIONS)


@pytest.mark.parametrize("where", ["mm32.replace_linear", "layers.md", "same.md", "pytorch.md"])
def test_lists_in_words_have_all(where: str) -> None:
    page = DOCS / where
    text = (page.read_text() if page.exists() else mm32.replace_linear.__doc__ or "").lower().replace("_", "")
    for activation in ACTIVATIONS:
        assert activation.module.__name__.lower() in text, f"{where} does not name {activation.name}"


@EVERY
def test_all_columns_compute_the_same(activation: Activation, seed: int) -> None:
    """torch's function, its in-place form, aten's operator, the module and its calls compute the same values."""
    x = torch.randn(50, dtype=torch.float64) * 3
    wanted = activation(x)
    changed = x.clone()
    activation.in_place(changed, **activation.options)
    module = activation.module(**activation.options)
    calls = [getattr(torch.Tensor, call) if isinstance(call, str) else call for call in activation.calls]
    others = [activation.aten(x, **activation.options), changed, module(x)]
    others += [call(x.clone(), **activation.options) for call in calls]
    for other in others:
        assert torch.equal(other, wanted)
    assert not torch.equal(wanted, x)
    assert activations.of_module(module) is activation


@EVERY
def test_the_slope_is_the_derivative(activation: Activation, seed: int) -> None:
    z = torch.randn(50, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(50, dtype=torch.float64)
    (wanted,) = torch.autograd.grad(activation(z), z, grad)
    value = activation(z) if activation.slope_of_result else z
    torch.testing.assert_close(activation.times_slope(grad, value.detach()), wanted, rtol=1e-12, atol=1e-12)


def test_other_modules_are_none() -> None:
    class Own(torch.nn.ReLU):
        pass

    for module in (torch.nn.LeakyReLU(0.2), Own(), torch.nn.Linear(2, 2)):
        assert activations.of_module(module) is None
