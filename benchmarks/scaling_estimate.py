"""How well products should scale over several cards: a paper estimate from the parts that benchmarks/scaling.py measures.

Nothing here is a measurement. A product takes the time of its operations at the measured rate of a card, then the time of what is
sent, at the measured rate of an all-reduce within a host and at an assumed rate between hosts; nothing overlaps. Data that all
cards of a host get enter the host once and are spread there, as NCCL does on hosts with a network card for each card.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

Record = dict[str, Any]
PLACES = ("rows", "rows, B gathered", "grid", "K")
HOST = 8  # cards of a host
BETWEEN = 40e9  # bytes a second and card between hosts: four fifths of a network card's 400 Gbit/s
CARDS = (8, 64, 512)
SIDE = 65536  # M, N and K of the product that all cards share
ROWS = 16384  # rows for each card, of the product that grows with the cards
CASES = tuple(("shared", SIDE, SIDE, SIDE, cards) for cards in CARDS) + tuple(
    (f"{ROWS} rows a card", ROWS * cards, SIDE // 2, SIDE // 2, cards) for cards in CARDS
)


def share(row: dict[str, Any]) -> float:
    """Return a measured row's speed over the sum of its cards' own rates, each for its own part with nothing sent."""
    alone = row["alone"]
    return len(alone) / (row["results"]["mm32"]["seconds"] * sum(1 / seconds for seconds in alone))


def share_of_whole(row: dict[str, Any]) -> float:
    """Return a measured row's speed over the sum of its cards' own rates, each for all of the product by itself."""
    return 1 / (row["results"]["mm32"]["seconds"] * sum(1 / seconds for seconds in row["whole"]))


@dataclass(frozen=True)
class Collective:
    """A collective of a group of cards. `bytes`: what each card receives; `together`: how many of the group are on one host."""

    bytes: float
    cards: int
    together: int

    def seconds(self, bandwidth: float) -> float:
        """Return the time by the link within a host or, if slower, by its network cards: what all cards get enters once."""
        if self.cards <= self.together:
            return self.bytes / bandwidth
        return max(self.bytes / bandwidth, self.bytes / (self.together * BETWEEN))


@dataclass(frozen=True)
class Parts:
    """What a record says, a second and card: `rate`, operations with nothing sent, and `bandwidth`, bytes of an all-reduce."""

    rate: float
    bandwidth: float

    def seconds(self, place: str, m: int, k: int, n: int, cards: int) -> float:
        return 2 * m * k * n / (cards * self.rate) + self.sending(self.collectives(place, m, k, n, cards))

    def sending(self, collectives: list[Collective]) -> float:
        return sum(collective.seconds(self.bandwidth) for collective in collectives)

    def collectives(self, place: str, m: int, k: int, n: int, cards: int) -> list[Collective]:
        if place == "rows":
            return []
        if place == "rows, B gathered":
            return [Collective(4.0 * k * n * (cards - 1) / cards, cards, HOST)]
        if place == "K":  # a ring's reduce-scatter and all-gather
            return [Collective(2 * 4.0 * m * n * (cards - 1) / cards, cards, HOST)]
        return in_a_grid(m, k, n, *self.grid(m, k, n, cards))

    def grid(self, m: int, k: int, n: int, cards: int) -> tuple[int, int]:
        """Return the rows and columns, powers of two from 2 on, of the grid that spends the least time on sending."""
        grids = [(cards >> i, 1 << i) for i in range(1, cards.bit_length() - 1)]
        return min(grids, key=lambda grid: self.sending(in_a_grid(m, k, n, *grid)))


def in_a_grid(m: int, k: int, n: int, rows: int, columns: int) -> list[Collective]:
    """Return the two gathers of a grid: A's blocks along each row, whose cards are neighbours, and B's along each column."""
    return [
        Collective(4.0 * m / rows * k * (columns - 1) / columns, columns, HOST),
        Collective(4.0 * n / columns * k * (rows - 1) / rows, rows, max(HOST // columns, 1)),
    ]


def memory(m: int, k: int, n: int, rows: int, columns: int = 1) -> float:
    """Return the bytes of a card's operands as they are multiplied, in a grid or by rows, and of its part of the result."""
    return 4.0 * (m * k / rows + k * n / columns + m * n / (rows * columns))


def measured(made: Record) -> Parts:
    """Return the lowest rate of the record's products by rows, and the median bandwidth of its products by K.

    The time that a product by K takes longer than the product of that size by rows is taken to be the all-reduce.
    """
    by_rows, rates, bandwidths = {}, [], []
    for row in sorted(made["rows"], key=lambda row: row["case"]["sharded"] != "rows"):
        case, taken = row["case"], row["results"]["mm32"]["seconds"]
        m, k, n, cards = (case[name] for name in ("m", "k", "n", "cards"))
        if case["sharded"] == "rows":
            by_rows[m, k, n] = taken
            rates.append(2 * m * k * n / (cards * taken))
        elif case["sharded"] == "K":
            bandwidths.append(2 * 4.0 * m * n * (cards - 1) / cards / (taken - by_rows[m, k, n]))
    return Parts(min(rates), median(bandwidths))
