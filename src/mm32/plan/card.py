"""What a plan needs to know of a card: its limits, and how fast it multiplies, moves bytes and starts a kernel.

Plain data, made without CUDA. `from_properties` makes a `Card` of what the driver says about it, completed by a table of NVIDIA's
data sheets; the cards of the table are constants here (`H200`, `A100`, ...), to plan for a card that is not present.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

OLDEST = (8, 0)  # the least compute capability that mm32's kernels are compiled for
MAX_GRID = 2**31 - 1  # the most blocks of a launch along x, on every card
LAUNCH = 3e-6  # seconds from one kernel's end to the next one's start in a stream; measured on an H200


@dataclass(frozen=True)
class Card:
    """A card and its rates, at the highest clock unless said otherwise. Rates left out (0) are estimated from the name, the
    capability and the number of multiprocessors.

    `sms`: the number of multiprocessors.
    `shared_memory`: the most bytes of shared memory that a block may take.
    `fp32`: FLOP/s of fp32 multiply-adds.
    `fp16`: FLOP/s of fp16 products summed in fp32 by the fastest instruction of the card, dense.
    `mma_sync`: the same by mma.sync, the instruction that all cards have.
    `memory`: bytes/s. `l2`: bytes of the L2 cache.
    `launch`: seconds that a launch costs in a stream. `clock`: of the multiprocessors, Hz.
    `fp16_sustained`: FLOP/s of fp16 that the power limit allows; 0 where nobody has measured it.
    `measured`: whether mm32's kernels were timed on this card, so that estimates of a time rest on more than a data sheet.
    """

    name: str
    capability: tuple[int, int]
    sms: int
    shared_memory: int
    fp32: float = 0.0
    fp16: float = 0.0
    mma_sync: float = 0.0
    memory: float = 0.0
    l2: int = 0
    launch: float = LAUNCH
    clock: float = 0.0
    fp16_sustained: float = 0.0
    fitted: bool = False

    def __post_init__(self) -> None:
        if not (self.fp32 and self.fp16 and self.mma_sync and self.memory):
            for name, value in _rates(self.name, self.capability, self.sms).items():
                if not getattr(self, name):
                    object.__setattr__(self, name, value)

    @property
    def arch(self) -> str:
        """The NVRTC target: architecture-specific ("a") from sm_90 on."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    @property
    def tf32(self) -> float:
        """FLOP/s of TF32 products: half of fp16's on every card so far."""
        return self.fp16 / 2

    @property
    def dependent_launch(self) -> bool:
        """Whether a launch may start while the one before it runs (programmatic dependent launch)."""
        return self.capability >= (9, 0)

    @property
    def clusters(self) -> bool:
        """Whether blocks can run in clusters of up to 8 that read each other's shared memory."""
        return self.capability[0] in (9, 10)


# ---------------------------------------------------------------------------------------------------------------------
# What an architecture does in a clock, by compute capability. A card has the entry of the highest capability not above its own.

FMA_LANES = {(7, 0): 64, (8, 0): 64, (8, 6): 128}  # fp32 multiply-adds of a multiprocessor (CUDA C++ Programming Guide)
# fp16 multiply-adds with fp32 sums of a multiprocessor's tensor cores, dense (NVIDIA's architecture whitepapers).
FP16_LANES = {(7, 0): 512, (8, 0): 1024, (8, 6): 512, (9, 0): 2048, (10, 0): 4096, (12, 0): 512}
GEFORCE = 0.5  # GeForce cards from capability 8.6 on sum fp16 products in fp32 at half the rate (whitepapers, GA102 and AD102)
# The share of the fastest instruction's rate that mma.sync reaches. Hopper: Luo et al., "Benchmarking and Dissecting the Nvidia
# Hopper GPU Architecture via Microbenchmarking" (2024). Blackwell's data centre cards: a guess, as much in a clock as the A100.
MMA_SYNC = {(7, 0): 1.0, (9, 0): 0.62, (10, 0): 0.25, (12, 0): 1.0}
# Bytes/s of memory for each multiprocessor, by compute capability, for a card of which nothing else is known.
MEMORY_SHARE = {(7, 0): 8e9, (8, 0): 18e9, (8, 6): 9e9, (9, 0): 25e9, (10, 0): 50e9, (12, 0): 10e9}
CLOCK = 1.5e9  # Hz, where it is not known


def _of(table: dict, capability: tuple[int, int]) -> float:
    return table[max((c for c in table if c <= capability), default=min(table))]


def fp32_rate(capability: tuple[int, int], sms: int, clock: float) -> float:
    """FLOP/s of fp32 multiply-adds of `sms` multiprocessors at `clock` Hz."""
    return 2.0 * sms * clock * _of(FMA_LANES, capability)


def _rates(name: str, capability: tuple[int, int], sms: int, clock: float = 0.0) -> dict[str, float]:
    """The rates of a card: those of the table if it has the card, else those that follow from its architecture and clock."""
    known = _listed(name, sms)
    if known is not None:
        return {rate: getattr(known, rate) for rate in ("fp32", "fp16", "mma_sync", "memory", "l2", "clock")}
    hertz = clock or CLOCK
    half = GEFORCE if "GeForce" in name and capability >= (8, 6) else 1.0
    fp16 = 2.0 * sms * hertz * _of(FP16_LANES, capability) * half
    return {
        "fp32": fp32_rate(capability, sms, hertz),
        "fp16": fp16,
        "mma_sync": fp16 * _of(MMA_SYNC, capability),
        "memory": sms * _of(MEMORY_SHARE, capability),
        "clock": clock,
    }


# ---------------------------------------------------------------------------------------------------------------------
# NVIDIA's data sheets and whitepapers: fp32 and dense fp16 with fp32 sums in FLOP/s, memory in bytes/s.


def _sheet(
    name: str, capability: tuple[int, int], sms: int, fp32: float, fp16: float, memory: float, l2: int, clock: float
) -> Card:
    shared = {(8, 0): 166912, (9, 0): 232448, (10, 0): 232448}.get(capability, 101376)
    mma_sync = fp16 * _of(MMA_SYNC, capability)
    return Card(name, capability, sms, shared, fp32, fp16, mma_sync, memory, l2 * 2**20, LAUNCH, clock)


# Corrected by measurement: torch's fp16 product at 2048 x 8192 x 4096 reaches 700 TFLOP/s within the 700 W of the card. The 989
# of the data sheet need a clock that this power does not allow.
H200 = replace(
    _sheet("NVIDIA H200", (9, 0), 132, 66.9e12, 989e12, 4.8e12, 50, 1.98e9), fp16_sustained=700e12, fitted=True
)
H100_SXM = _sheet("NVIDIA H100 80GB HBM3", (9, 0), 132, 66.9e12, 989e12, 3.35e12, 50, 1.98e9)
H100_PCIE = _sheet("NVIDIA H100 PCIe", (9, 0), 114, 51.2e12, 756e12, 2.0e12, 50, 1.755e9)
A100 = _sheet("NVIDIA A100-SXM4-80GB", (8, 0), 108, 19.5e12, 312e12, 2.04e12, 40, 1.41e9)
A10 = _sheet("NVIDIA A10", (8, 6), 72, 31.2e12, 125e12, 0.6e12, 6, 1.695e9)
RTX_3090 = _sheet("NVIDIA GeForce RTX 3090", (8, 6), 82, 35.6e12, 71e12, 0.936e12, 6, 1.695e9)
RTX_4090 = _sheet("NVIDIA GeForce RTX 4090", (8, 9), 128, 82.6e12, 165.2e12, 1.008e12, 72, 2.52e9)
L40S = _sheet("NVIDIA L40S", (8, 9), 142, 91.6e12, 362e12, 0.864e12, 96, 2.52e9)
B200 = _sheet("NVIDIA B200", (10, 0), 148, 75e12, 2250e12, 8.0e12, 126, 1.965e9)
RTX_5090 = _sheet("NVIDIA GeForce RTX 5090", (12, 0), 170, 104.8e12, 209.5e12, 1.792e12, 96, 2.407e9)
RTX_A2000 = _sheet("NVIDIA RTX A2000", (8, 6), 26, 8.0e12, 31.9e12, 0.288e12, 3, 1.2e9)

# Short names, each with the card and a pattern of the driver's name for it.
CARDS: dict[str, tuple[Card, str]] = {
    "H200": (H200, r"H200"),
    "H100 SXM": (H100_SXM, r"H100 80GB HBM3"),
    "H100 PCIe": (H100_PCIE, r"H100 PCIe"),
    "A100": (A100, r"A100.*80GB"),
    "A10": (A10, r"A10"),
    "RTX 3090": (RTX_3090, r"RTX 3090"),
    "RTX 4090": (RTX_4090, r"RTX 4090"),
    "L40S": (L40S, r"L40S"),
    "B200": (B200, r"B200"),
    "RTX 5090": (RTX_5090, r"RTX 5090"),
    "A2000": (RTX_A2000, r"RTX A2000"),
}


def _listed(name: str, sms: int) -> Card | None:
    """The card of the table that has this name, as the driver gives it, and this number of multiprocessors: a part of a card
    (MIG) or a laptop's chip of the same name has fewer."""
    for card, pattern in CARDS.values():
        if card.sms == sms and re.search(rf"\b{pattern}\b", name):
            return card
    return None


def named(name: str) -> Card:
    """The card of the table with this name: a short one ("A100", "H100 PCIe", "4090") or the driver's.

    Raises ValueError, which lists the names, for any other name.
    """
    wanted = name.strip().lower()
    for short, (card, _) in CARDS.items():
        if wanted in (short.lower(), short.lower().removeprefix("rtx "), card.name.lower()):
            return card
    raise ValueError(f"no card {name!r} in mm32's table: it has {', '.join(CARDS)}")


def from_properties(
    name: str,
    capability: tuple[int, int],
    sms: int,
    shared_memory: int,
    *,
    clock_rate: int | None = None,
    memory_clock_rate: int | None = None,
    memory_bus_width: int | None = None,
    l2: int | None = None,
) -> Card:
    """The `Card` of what the driver says about it. A card of the table has the table's rates, so that plans made for it elsewhere
    are the same as plans made on it; the rates of another card follow from its clocks. What the driver does not say is None.

    Args:
        shared_memory: bytes that a block may opt in to.
        clock_rate: kHz.
        memory_clock_rate: kHz.
        memory_bus_width: bits.
        l2: bytes.
    """
    known = _listed(name, sms)
    if known is not None:
        exactly = known.name == name
        sustained = known.fp16_sustained if exactly else 0.0  # another model has another power limit
        return replace(
            known,
            name=name,
            capability=capability,
            shared_memory=shared_memory,
            fp16_sustained=sustained,
            fitted=exactly and known.fitted,
        )
    rates = _rates(name, capability, sms, 1e3 * (clock_rate or 0))
    if memory_clock_rate and memory_bus_width:  # two transfers a clock
        rates["memory"] = 2e3 * memory_clock_rate * memory_bus_width / 8
    return Card(name, capability, sms, shared_memory, l2=l2 or 0, **rates)  # type: ignore[arg-type]
