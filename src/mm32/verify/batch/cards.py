"""The cards of this machine, found without starting CUDA: a worker must not itself hold memory of a card, or break with it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from ..entry import WrongArgument

CPU = "cpu"


@dataclass(frozen=True)
class Card:
    """A card, or the CPU.

    `visible`: the value of CUDA_VISIBLE_DEVICES for it, empty for the CPU. `arch`: its architecture, as in TORCH_CUDA_ARCH_LIST.
    """

    name: str
    visible: str
    arch: str = ""


def found() -> list[Card]:
    """Return the cards that this process may use; none where there is no driver."""
    if not os.path.exists("/dev/nvidiactl"):
        return []
    command = ["nvidia-smi", "--query-gpu=index,uuid,compute_cap", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.count(",") == 2]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [Card(uuid, uuid, arch) for _, uuid, arch in rows]
    cards = []
    for entry in (entry.strip() for entry in visible.split(",")):
        row = next((row for row in rows if entry and (row[0] == entry or row[1].startswith(entry))), None)
        # CUDA ignores the entries behind an unknown one, and so does this. A MIG part is not in `rows`, but counts as a card.
        if row is None:
            if entry.startswith("MIG-"):
                cards.append(Card(entry, entry))
                continue
            break
        cards.append(Card(row[1], row[1], row[2]))
    return cards


def chosen(gpus: str | int | None) -> list[Card]:
    """Return the cards that were asked for: a number of them, or all for "all" and None; the CPU where there is none."""
    cards = found()
    if gpus in (None, "all"):
        return cards or [Card(CPU, "")]
    try:
        count = int(gpus)
    except ValueError:
        raise WrongArgument(f'gpus must be a number or "all", got {gpus!r}') from None
    if count < 0 or count > len(cards):
        raise WrongArgument(f"there are {len(cards)} cards here, {count} were asked for")
    return cards[:count] or [Card(CPU, "")]


def arches(cards: list[Card]) -> str:
    """Return TORCH_CUDA_ARCH_LIST for building extensions; empty where it need not be set.

    It must be the same ahead and later, or extensions would be built twice.
    """
    if "TORCH_CUDA_ARCH_LIST" in os.environ:
        return ""
    known = sorted({card.arch for card in cards if card.arch})
    return ";".join(known) + ("+PTX" if known else "")
