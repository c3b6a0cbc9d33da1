"""The card's clock, power and energy while something is measured, and whether the card held its clocks down.

They are read by NVML, through the package nvidia-ml-py, or, if that fails, by the program nvidia-smi, whose readings are up to
some tens of milliseconds old and have no energy. `find` gives the sensor of a card; its callers use it through
the protocol `Sensor` only.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from mm32.install import pip_install

# The bits of NVML's "clocks event reasons" (before driver 535 "clocks throttle reasons") that mean less speed than the card is
# set to. Left out are idle (0x1), clocks that somebody set (0x2), other cards' clocks (0x10, sync boost) and the display's
# (0x100).
THROTTLED = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat",
    0x40: "heat, by hardware",
    0x80: "power brake",
}
ENERGY_SECONDS = 0.5  # the least time over which the energy of one implementation is counted
CHUNK_SECONDS = 0.02  # the time of the calls between two looks at the counter
PATIENCE = 2.0  # the most seconds to wait for the counter to change


@dataclass(frozen=True)
class Reading:
    """What a sensor says at one moment: the SM clock in MHz, the power in W, why clocks are held down. None: it cannot tell."""

    clock_mhz: float | None
    power_w: float | None
    throttled: tuple[str, ...] = ()


class Sensor(Protocol):
    """The sensor of one card."""

    name: str

    def read(self) -> Reading: ...

    def energy(self) -> float | None:
        """Return the joules since some moment in the past, or None if the card or the sensor does not count them."""

    def close(self) -> None: ...


def reasons(bits: int) -> tuple[str, ...]:
    return tuple(what for bit, what in THROTTLED.items() if bits & bit)


class Nvml:
    """A sensor that reads by NVML. `library` is the module pynvml, `uuid` the card's UUID, such as "GPU-5d2c…". Raises the
    library's NVMLError if there is no driver or no such card."""

    name = "NVML"

    def __init__(self, library: Any, uuid: str) -> None:
        self.library = library
        library.nvmlInit()
        try:
            self.card = library.nvmlDeviceGetHandleByUUID(uuid)
        except BaseException:
            library.nvmlShutdown()
            raise

    def _asked(self, call: str, *arguments: Any) -> Any:
        """Return what a function of NVML returns for the card, or None if this card or driver has no answer."""
        with contextlib.suppress(self.library.NVMLError, AttributeError):
            return getattr(self.library, call)(self.card, *arguments)
        return None

    def read(self) -> Reading:
        power = self._asked("nvmlDeviceGetPowerUsage")  # mW
        bits = self._asked("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # drivers before 535 have the older name
            bits = self._asked("nvmlDeviceGetCurrentClocksThrottleReasons")
        clock = self._asked("nvmlDeviceGetClockInfo", self.library.NVML_CLOCK_SM)
        return Reading(clock, None if power is None else power * 1e-3, reasons(bits or 0))

    def energy(self) -> float | None:
        used = self._asked("nvmlDeviceGetTotalEnergyConsumption")  # mJ
        return None if used is None else used * 1e-3

    def close(self) -> None:
        self.library.nvmlShutdown()


class Smi:
    """A sensor that reads from nvidia-smi, which runs meanwhile and writes a line every 20 ms. Raises OSError or ValueError if it
    does not run."""

    name = "nvidia-smi"
    REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # the second before driver 535

    def __init__(self, program: str, uuid: str) -> None:
        said = ""
        for field in self.REASONS:
            query = f"--query-gpu=clocks.sm,power.draw,{field}"
            command = [program, f"--id={uuid}", query, "--format=csv,noheader,nounits", "--loop-ms=20"]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert self.process.stdout is not None
            self.lines = self.process.stdout
            said = self.lines.readline().strip()
            try:
                self.latest = self.parsed(said)
            except ValueError:
                self.close()
                continue
            threading.Thread(target=self._follow, daemon=True).start()
            return
        raise ValueError(f"nvidia-smi said {said!r}")

    @staticmethod
    def parsed(line: str) -> Reading:
        """Return the reading in "1980, 689.12, 0x0000000000000004". "[N/A]" stands for what the card does not tell."""
        clock, power, bits = (word.strip() for word in line.split(","))
        unknown = ("[N/A]", "[Not Supported]")
        return Reading(
            None if clock in unknown else float(clock),
            None if power in unknown else float(power),
            () if bits in unknown else reasons(int(bits, 16)),
        )

    def _follow(self) -> None:
        for line in self.lines:
            with contextlib.suppress(ValueError):
                self.latest = self.parsed(line)

    def read(self) -> Reading:
        return self.latest

    def energy(self) -> float | None:
        return None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def find(uuid: str) -> tuple[Sensor | None, str]:
    """Return a sensor of the card with this UUID, and the name of what it reads by; or None, and why there is none."""
    tried = []
    try:
        import pynvml

        return Nvml(pynvml, uuid), Nvml.name
    except ImportError:
        tried.append(f"nvidia-ml-py is not installed: {pip_install('bench')}")
    except Exception as error:  # pynvml's errors have no class that exists where it could not be imported
        tried.append(f"NVML: {error}")
    program = shutil.which("nvidia-smi")
    if program is None:
        return None, "; ".join([*tried, "there is no nvidia-smi"])
    try:
        return Smi(program, uuid), Smi.name
    except (OSError, ValueError) as error:
        return None, "; ".join([*tried, str(error)])


def of_current_card() -> tuple[Sensor | None, str]:
    """Return what `find` returns for torch's current card."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    if uuid is None:
        return None, "this torch does not tell the card's UUID"
    return find(f"GPU-{uuid}")


class Watch:
    """Collects readings by name while a measurement runs. Without a sensor it collects nothing."""

    def __init__(self, sensor: Sensor | None) -> None:
        self.sensor = sensor
        self.readings: dict[str, list[Reading]] = {}

    def look(self, name: str) -> None:
        if self.sensor is not None:
            self.readings.setdefault(name, []).append(self.sensor.read())

    def of(self, name: str) -> dict[str, Any]:
        """Return what a result says: the medians of clock and power, and every reason that was seen for lower clocks. Empty if
        nothing was read."""
        seen = self.readings.get(name, [])
        clocks = [reading.clock_mhz for reading in seen if reading.clock_mhz is not None]
        powers = [reading.power_w for reading in seen if reading.power_w is not None]
        return {
            **({"clock_mhz": median(clocks)} if clocks else {}),
            **({"power_w": median(powers)} if powers else {}),
            **({"throttled": sorted({why for reading in seen for why in reading.throttled})} if seen else {}),
        }


def joules(
    call: Callable[[], object],
    seconds: float,
    sensor: Sensor,
    synchronize: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> float | None:
    """Return the card's energy for one call, idle power included, or None if nothing counts it.

    Calls of about `seconds` each run one after another. Energy is counted from one change of the card's counter, which changes
    some ten times a second, to the first change at least ENERGY_SECONDS later.
    """
    before = sensor.energy()
    calls = max(1, round(CHUNK_SECONDS / seconds))

    def after_a_chunk() -> float | None:
        for _ in range(calls):
            call()
        synchronize()
        return sensor.energy()

    begin, latest = clock(), before
    while latest is not None and latest == before:
        if clock() - begin > PATIENCE:
            return None
        latest = after_a_chunk()
    if latest is None:
        return None
    begin, first, chunks = clock(), latest, 0
    while True:
        now = after_a_chunk()
        chunks += 1
        waited = clock() - begin
        if now is None or waited > ENERGY_SECONDS + PATIENCE:
            return None
        if now != latest and waited >= ENERGY_SECONDS:
            return (now - first) / (chunks * calls)
        latest = now
