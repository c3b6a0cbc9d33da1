"""Waiting for a card whose memory something else uses, on a simulated card."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from mm32.verify.timing import settling as module
from mm32.verify.timing.settling import CALM, VAIN, Settling

USUAL = 130e-6  # seconds that a copy usually takes
LONGEST = 0.35  # the longest wait in seconds, for a large card


class Card:
    """A card on which copies take `disturbed` times as long, until its clock shows `until`."""

    def __init__(self) -> None:
        self.now, self.until, self.disturbed, self.copies = 0.0, 0.0, 1.11, 0

    def clock(self) -> float:
        return self.now

    def copy(self) -> float:
        self.copies += 1
        took = USUAL * (self.disturbed if self.now < self.until else 1.0)
        self.now += took + 10e-6
        return took

    def give_back(self, seconds: float) -> None:
        """Give back memory that takes so long to be erased."""
        self.until = self.now + seconds


@pytest.fixture
def card() -> Card:
    return Card()


@pytest.fixture
def settling(card: Card) -> Settling:
    card.give_back(0.02)  # the memory of the windows before
    return Settling(card.copy, LONGEST, card.clock)


def test_it_learns_what_is_usual_though_memory_is_being_erased_when_it_begins(settling: Settling) -> None:
    assert settling.fastest == USUAL


def test_a_calm_card_is_hardly_waited_for(card: Card, settling: Settling) -> None:
    before = card.now
    assert settling.wait()
    assert card.now - before < 1e-3


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.3])
def test_a_window_begins_once_memory_has_been_erased(card: Card, settling: Settling, seconds: float) -> None:
    card.give_back(seconds)
    assert settling.wait()
    assert card.until <= card.now < card.until + 1e-3


def test_a_card_that_others_use_is_waited_for_a_while_and_then_no_more(card: Card, settling: Settling) -> None:
    card.give_back(1000.0)
    waited = []
    for _ in range(VAIN + 5):
        before = card.now
        assert not settling.wait()
        waited.append(card.now - before)
    assert all(LONGEST < one < LONGEST + 1e-3 for one in waited[:VAIN])
    assert max(waited[VAIN:]) < 1e-3
    card.until = 0.0  # it waits again once the card has been calm
    assert settling.wait()
    card.give_back(0.01)
    assert settling.wait()
    assert card.now >= card.until


def test_what_varies_as_copies_do_is_calm(card: Card, settling: Settling) -> None:
    card.disturbed = CALM - 0.01
    card.give_back(1000.0)
    before = card.now
    assert settling.wait()
    assert card.now - before < 1e-3


def test_a_card_without_room_for_copies_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for room once, not before every window: that would take and give back memory itself."""
    asked = []

    def none_left(device: torch.device) -> None:
        asked.append(device)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(module, "_copies", none_left)
    monkeypatch.setattr(module, "_of_device", {})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 << 30))
    one, other = torch.device("cuda", 0), torch.device("cuda", 1)
    for device in (one, one, other, one):
        module.settle(device)
    assert asked == [one, other]
    module.forget(one)
    module.settle(one)
    assert asked == [one, other, one]


def test_each_card_has_copies_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def copies(device: torch.device) -> Callable[[], float]:
        made.append(device)
        return lambda: USUAL

    monkeypatch.setattr(module, "_copies", copies)
    monkeypatch.setattr(module, "LEARNT", 1e-3)
    monkeypatch.setattr(module, "_of_device", {})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 << 30))
    for number in (0, 1, 0, 1):
        module.settle(torch.device("cuda", number))
    assert [device.index for device in made] == [0, 1]
    found = module._of_device[made[0]]
    assert found is not None
    assert found.longest == pytest.approx((80 << 30) / 400e9)
