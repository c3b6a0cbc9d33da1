"""What the planner knows of a card: from the driver's attributes, from the table, from what its architecture does per clock."""

from __future__ import annotations

import dataclasses

import pytest

from mm32.plan import card as cards
from mm32.plan.card import CARDS, H200, Card, from_properties, named

TABLE = [card for card, _ in CARDS.values()]


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((12, 0), "sm_120a")],
)
def test_arch(capability: tuple[int, int], arch: str) -> None:
    assert Card("any", capability, 1, 101376).arch == arch


@pytest.mark.parametrize("card", TABLE, ids=lambda c: c.name)
def test_the_data_sheets_agree_with_the_architectures(card: Card) -> None:
    """A data sheet's figures agree with what the multiprocessors do per clock, except for the sheet's rounding and its choice of
    clock."""
    assert cards.fp32_rate(card.capability, card.sms, card.clock) == pytest.approx(card.fp32, rel=0.05)
    rates = cards._rates("NVIDIA GeForce" if "GeForce" in card.name else "other", card.capability, card.sms, card.clock)
    assert rates["fp16"] == pytest.approx(card.fp16, rel=0.1)
    assert rates["mma_sync"] == pytest.approx(card.mma_sync, rel=0.1)
    assert 0.3 < rates["memory"] / card.memory < 1.5
    assert card.mma_sync <= card.fp16
    assert card.fp16_sustained <= card.fp16
    assert card.tf32 == card.fp16 / 2


@pytest.mark.parametrize("short", CARDS)
def test_cards_are_found_by_name(short: str) -> None:
    card, _ = CARDS[short]
    assert named(short) is named(short.lower()) is named(card.name) is card
    assert cards._listed(card.name, card.sms) is card


def test_names() -> None:
    assert named("4090") is cards.RTX_4090
    with pytest.raises(ValueError, match="no card 'H300' in mm32's table: it has H200, H100 SXM"):
        named("H300")
    for name, sms in (
        ("NVIDIA A10G", 80),
        ("NVIDIA A100-SXM4-40GB", 108),
        ("NVIDIA GeForce RTX 3090 Ti", 84),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 76),
        ("NVIDIA GH200 480GB", 132),
        ("NVIDIA H200 MIG 1g.18gb", 16),
    ):
        assert cards._listed(name, sms) is None


def test_a_card_of_the_table_has_its_rates() -> None:
    """It has them whatever its clocks are now, so that plans made for it elsewhere are the plans made on it."""
    made = from_properties("NVIDIA H200", (9, 0), 132, 232448, clock_rate=1, memory_clock_rate=1, memory_bus_width=1)
    assert made == H200
    other = from_properties("NVIDIA H200 NVL", (9, 0), 132, 232448)
    assert other == dataclasses.replace(H200, name="NVIDIA H200 NVL", fitted=False, fp16_sustained=0.0)
    assert Card("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166912) == cards.A100
    assert [card.name for card in TABLE if card.fitted] == ["NVIDIA H200"]


def test_another_card_has_what_its_clocks_give() -> None:
    clocks = {"clock_rate": 1_800_000, "memory_clock_rate": 8_001_000, "memory_bus_width": 384, "l2": 6 * 2**20}
    made = from_properties("NVIDIA RTX A6000", (8, 6), 84, 101376, **clocks)
    assert made.fp32 == pytest.approx(2 * 128 * 84 * 1.8e9)
    assert made.fp16 == made.mma_sync == pytest.approx(2 * 512 * 84 * 1.8e9)
    assert made.memory == pytest.approx(768.1e9, rel=1e-3)
    assert (made.l2, made.clock, made.fitted) == (6 * 2**20, 1.8e9, False)
    geforce = from_properties("NVIDIA GeForce RTX 3080", (8, 6), 68, 101376, **clocks)
    assert geforce.fp16 / geforce.fp32 == made.fp16 / made.fp32 / 2


def test_a_card_of_which_nothing_is_known() -> None:
    for capability in ((7, 5), (8, 7), (9, 0), (10, 3), (11, 0), (12, 1), (13, 0)):
        card = from_properties("new", capability, 40, 101376)
        assert 5e12 < card.fp32 < 40e12
        assert card.fp32 < card.mma_sync <= card.fp16
        assert 0.1e12 < card.memory < 4e12
        assert not card.fitted
