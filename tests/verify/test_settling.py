"""Waiting for a card whose memory something else uses, on a card that is made up."""

from __future__ import annotations

import pytest

from mm32.verify.timing.settling import CALM, LONGEST, VAIN, Settling

USUAL = 130e-6  # seconds of a copy


class Card:
    """Copies take `disturbed` times as long until `until`, by its clock."""

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
        """Memory that takes so long to be erased."""
        self.until = self.now + seconds


@pytest.fixture
def card() -> Card:
    return Card()


@pytest.fixture
def settling(card: Card) -> Settling:
    card.give_back(0.02)  # of the windows before
    return Settling(card.copy, card.clock)


def test_it_learns_what_is_usual_though_memory_is_being_erased_when_it_begins(settling: Settling) -> None:
    assert settling.fastest == USUAL


def test_a_calm_card_is_hardly_waited_for(card: Card, settling: Settling) -> None:
    before = card.now
    assert settling.wait()
    assert card.now - before < 1e-3


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.09])
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
    card.until = 0.0  # and again, once it has been calm
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
