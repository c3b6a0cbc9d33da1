"""benchmarks/scaling_estimate.py: the estimate on paper for many cards, from a record of a few."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

RATE, BANDWIDTH, CARDS = 1e14, 2e11, 2


@pytest.fixture
def estimate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    monkeypatch.delitem(sys.modules, "scaling_estimate", raising=False)
    return importlib.import_module("scaling_estimate")


def row(sharded: str, m: int, k: int, n: int) -> dict:
    """Return a row as cards of RATE and links of BANDWIDTH would give it. In an all-reduce of two, each card receives the result
    once."""
    seconds = 2 * m * k * n / (CARDS * RATE) + (4 * m * n / BANDWIDTH if sharded == "K" else 0)
    case = {"m": m, "k": k, "n": n, "sharded": sharded, "growth": "strong", "cards": CARDS}
    return {"case": case, "results": {"mm32": {"seconds": seconds}}}


def test_the_parts_of_a_record(estimate: ModuleType) -> None:
    sizes = ((4096, 4096, 4096), (8192, 1024, 2048))
    parts = estimate.measured({"rows": [row(place, *size) for place in ("K", "rows") for size in sizes]})
    assert parts.rate == pytest.approx(RATE)
    assert parts.bandwidth == pytest.approx(BANDWIDTH)


def test_the_share_of_the_cards_own_rates(estimate: ModuleType) -> None:
    """If one card multiplies its half in 1 s and the other in 2 s, they do 1.5 halves a second; both halves in 2 s are 2/3 of
    that."""
    made = {"alone": [1.0, 2.0], "results": {"mm32": {"seconds": 2.0}}}
    assert estimate.share(made) == pytest.approx(2 / 3)
    # Alone they take 2 s and 4 s for the whole product, together 3/4 of it a second, so 2 s for it are again 2/3 of their rates.
    assert estimate.share_of_whole(made | {"whole": [2.0, 4.0]}) == pytest.approx(2 / 3)


def test_what_is_sent_within_a_host_and_between_hosts(estimate: ModuleType) -> None:
    parts = estimate.Parts(RATE, BANDWIDTH)
    m, k, n = 4096, 8192, 2048
    (gathered,) = parts.collectives("rows, B gathered", m, k, n, 4)
    assert gathered.bytes == 4 * k * n * 3 / 4, "three quarters of B"
    assert gathered.seconds(BANDWIDTH) == pytest.approx(gathered.bytes / BANDWIDTH)
    assert parts.collectives("rows", m, k, n, 512) == []
    # Data that are the same for all of a host's cards arrive by all their network cards; a card's own data by its own.
    alike, apart = (estimate.Collective(1e9, 64, together) for together in (estimate.HOST, 1))
    assert alike.seconds(1e15) == pytest.approx(1e9 / (estimate.HOST * estimate.BETWEEN))
    assert apart.seconds(1e15) == pytest.approx(1e9 / estimate.BETWEEN)


@pytest.mark.parametrize("cards", [4, 8, 64, 512])
def test_the_best_grid(estimate: ModuleType, cards: int) -> None:
    parts, side = estimate.Parts(RATE, BANDWIDTH), 65536
    rows, columns = parts.grid(side, side, side, cards)
    assert rows * columns == cards
    assert min(rows, columns) > 1
    assert parts.seconds("rows", side, side, side, cards) < parts.seconds("grid", side, side, side, cards)
    assert parts.seconds("grid", side, side, side, cards) <= parts.seconds("rows, B gathered", side, side, side, cards)
    assert estimate.memory(side, side, side, rows, columns) < estimate.memory(side, side, side, cards)
