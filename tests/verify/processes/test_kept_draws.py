"""Large random tensors that a constructor draws, kept from one construction to the next."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

from mm32.verify.worker import kept_draws
from mm32.verify.worker.kept_draws import KeptDraws


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_draws, "LARGE", 64)


class Layers(nn.Module):
    def __init__(self, bias: float = 0.0):
        super().__init__()
        self.one = nn.Linear(32, 48)
        self.few = nn.Parameter(torch.randn(3))
        self.two = nn.Linear(48, 16)
        nn.init.normal_(self.two.weight, bias, 2.0)
        self.last = nn.Parameter(torch.rand(5))


def constructed(draws: KeptDraws | None, seed: int, bias: float = 0.0) -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(seed)
    if draws is None:
        model = Layers(bias)
    else:
        with draws:
            model = Layers(bias)
    return [p.detach().clone() for p in model.parameters()], torch.rand(4)


@pytest.mark.usefixtures("small")
def test_constructions_are_as_they_would_be_without() -> None:
    """This includes what is drawn after and between kept draws, with another seed, and with another argument."""
    draws = KeptDraws()
    for seed, bias in ((1, 0.0), (1, 0.0), (1, 0.0), (2, 0.0), (1, 3.0), (1, 3.0), (1, 3.0), (1, 0.0)):
        ours, after = constructed(draws, seed, bias)
        right, right_after = constructed(None, seed, bias)
        assert all(torch.equal(a, b) for a, b in zip(ours, right, strict=True))
        assert torch.equal(after, right_after)
    # One draw of one.weight and three of two.weight, which is drawn twice, the second time with either bias.
    assert len(draws._kept) == 4


@pytest.mark.usefixtures("small")
def test_what_is_kept_is_not_what_a_model_changes() -> None:
    draws = KeptDraws()
    for _ in range(4):
        torch.manual_seed(1)
        with draws:
            layer = nn.Linear(16, 16)
        torch.manual_seed(1)
        assert torch.equal(layer.weight, nn.Linear(16, 16).weight)
        with torch.no_grad():
            layer.weight.zero_()


@pytest.mark.usefixtures("small")
def test_errors_and_generators_are_the_scripts_own() -> None:
    draws = KeptDraws()
    leaf = torch.zeros(128, requires_grad=True)
    for _ in range(3):
        torch.manual_seed(1)
        with draws, pytest.raises(RuntimeError, match="leaf Variable"):
            leaf.uniform_(0, 1)
        own = torch.Generator().manual_seed(5)
        with draws:
            one = torch.empty(128).uniform_(0, 1, generator=own)
            two = torch.empty(128).uniform_(0, 1, generator=own)
        assert not torch.equal(one, two)
    assert not draws._kept


def test_there_is_an_end_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_draws, "LARGE", 64)
    monkeypatch.setattr(kept_draws, "MOST", 1024)
    draws = KeptDraws()
    for _ in range(3):
        torch.manual_seed(1)
        with draws:
            made = [torch.empty(128).normal_() for _ in range(4)]
    torch.manual_seed(1)
    assert all(torch.equal(t, torch.empty(128).normal_()) for t in made)
    assert len(draws._kept) == 2


def test_a_large_layer_is_made_in_less_time() -> None:
    draws = KeptDraws()
    seconds = []
    for _ in range(4):
        torch.manual_seed(1)
        begin = time.thread_time()
        with draws:
            nn.Linear(2048, 2048)
        seconds.append(time.thread_time() - begin)
    assert min(seconds[2:]) < min(seconds[:2]) / 2
