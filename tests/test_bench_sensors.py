"""Clock, power and energy beside a benchmark's times: what is read, from which source, and what a record says of it. A fake card
stands in for NVML; the tests marked gpu ask the real one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from mm32.bench import command, measure, record, sensors
from mm32.bench.measure import Case
from mm32.bench.sensors import Nvml, Reading, Smi
from mm32.cli import app

UUID = "GPU-1234"


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


class NvmlError(Exception):
    pass


def library(**answers: object) -> types.SimpleNamespace:
    """Return a stand-in for pynvml with one card. An answer that is an exception is raised; without an answer a function is
    missing."""

    def function(answer):
        def call(card, *arguments):
            assert card == "the card"
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return call

    made = types.SimpleNamespace(NVMLError=NvmlError, NVML_CLOCK_SM=1, open=0)

    def by_uuid(uuid):
        if uuid != UUID:
            raise NvmlError("Not Found")
        return "the card"

    def opened(change):
        made.open += change

    made.nvmlInit, made.nvmlShutdown = lambda: opened(1), lambda: opened(-1)
    made.nvmlDeviceGetHandleByUUID = by_uuid
    for name, answer in answers.items():
        setattr(made, f"nvmlDeviceGet{name}", function(answer))
    return made


# ---------------------------------------------------------------------------------------------------------------------
# NVML


@pytest.mark.parametrize(
    ("bits", "why"),
    [
        (0x0, ()),
        (0x1 | 0x2 | 0x10 | 0x100, ()),
        (0x4, ("power cap",)),
        (0x20 | 0x8 | 0x1, ("hardware slowdown", "heat")),
        (0x40 | 0x80, ("heat, by hardware", "power brake")),
    ],
)
def test_reasons_that_mean_lower_clocks(bits, why):
    assert sensors.reasons(bits) == why


def test_bits_are_those_of_the_library():
    pynvml = pytest.importorskip("pynvml")
    named = {
        "SwPowerCap": "power cap",
        "HwSlowdown": "hardware slowdown",
        "SwThermalSlowdown": "heat",
        "HwThermalSlowdown": "heat, by hardware",
        "HwPowerBrakeSlowdown": "power brake",
    }
    assert {getattr(pynvml, f"nvmlClocksEventReason{name}"): why for name, why in named.items()} == sensors.THROTTLED
    for name in (
        "HandleByUUID",
        "PowerUsage",
        "ClockInfo",
        "TotalEnergyConsumption",
        "CurrentClocksEventReasons",
        "CurrentClocksThrottleReasons",
    ):
        assert callable(getattr(pynvml, f"nvmlDeviceGet{name}"))
    assert issubclass(pynvml.NVMLError, Exception)
    assert pynvml.NVML_CLOCK_SM == 1


def test_nvml_tells_clock_power_reasons_and_joules():
    nvml = library(
        ClockInfo=lambda kind: 1755 if kind == 1 else 0,
        PowerUsage=698_700,
        CurrentClocksEventReasons=0x4,
        TotalEnergyConsumption=12_345_678,
    )
    sensor = Nvml(nvml, UUID)
    assert nvml.open == 1
    assert sensor.read() == Reading(1755, pytest.approx(698.7), ("power cap",))
    assert sensor.energy() == pytest.approx(12345.678)
    sensor.close()
    assert nvml.open == 0


def test_what_a_card_or_an_older_driver_does_not_tell_is_left_out():
    refused = NvmlError("Not Supported")
    older = library(
        ClockInfo=refused,
        PowerUsage=refused,
        TotalEnergyConsumption=refused,
        CurrentClocksEventReasons=refused,
        CurrentClocksThrottleReasons=0x20,
    )
    assert Nvml(older, UUID).read() == Reading(None, None, ("heat",))
    assert Nvml(older, UUID).energy() is None
    assert Nvml(library(), UUID).read() == Reading(None, None, ())


def test_nvml_of_an_unknown_card_is_closed_again():
    nvml = library()
    with pytest.raises(NvmlError, match="Not Found"):
        Nvml(nvml, "GPU-5678")
    assert nvml.open == 0


# ---------------------------------------------------------------------------------------------------------------------
# nvidia-smi


def program(folder: Path, body: str) -> Path:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_nvidia_smi_is_followed(tmp_path):
    (tmp_path / "go").touch()
    lines = 'echo "1980, 101.5, 0x0"; while [ -e go ]; do sleep 0.02; done; echo "1200, [N/A], 0x44"; exec sleep 60'
    written = program(tmp_path, f'echo "$@" > {tmp_path}/arguments; cd {tmp_path}; {lines}')
    sensor = Smi(str(written), UUID)
    try:
        assert sensor.read() == Reading(1980.0, 101.5, ())
        (tmp_path / "go").unlink()
        for _ in range(500):
            if sensor.read().clock_mhz != 1980.0:
                break
            time.sleep(0.01)
        assert sensor.read() == Reading(1200.0, None, ("power cap", "heat, by hardware"))
        assert sensor.energy() is None
    finally:
        sensor.close()
    assert sensor.process.poll() is not None
    arguments = (tmp_path / "arguments").read_text().split()
    assert f"--id={UUID}" in arguments
    assert "--query-gpu=clocks.sm,power.draw,clocks_event_reasons.active" in arguments


def test_an_older_nvidia_smi_has_another_name_for_the_reasons(tmp_path):
    unknown = 'echo "Field \\"clocks_event_reasons.active\\" is not a valid field to query."; exit 2'
    body = f'case "$*" in *clocks_event*) {unknown};; esac; echo "1410, 60.25, 0x0000000000000008"; exec sleep 60'
    sensor = Smi(str(program(tmp_path, body)), UUID)
    try:
        assert sensor.read() == Reading(1410.0, 60.25, ("hardware slowdown",))
    finally:
        sensor.close()


def test_nvidia_smi_that_refuses_is_ended_and_quoted(tmp_path):
    with pytest.raises(ValueError, match="nvidia-smi said 'No devices were found'"):
        Smi(str(program(tmp_path, "echo No devices were found")), UUID)


# ---------------------------------------------------------------------------------------------------------------------
# Which one


def test_nvml_first_then_nvidia_smi_then_why_not(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", library(ClockInfo=1000))
    sensor, said = sensors.find(UUID)
    assert isinstance(sensor, Nvml)
    assert said == "NVML"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sensor, said = sensors.find(UUID)
    assert sensor is None
    assert said.startswith("nvidia-ml-py is not installed: pip install ")
    assert said.endswith("; there is no nvidia-smi")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, 'echo "1980, 101.5, 0x0"; exec sleep 60')
    sensor, said = sensors.find(UUID)
    assert isinstance(sensor, Smi)
    assert said == "nvidia-smi"
    sensor.close()
    monkeypatch.setitem(sys.modules, "pynvml", library())
    program(tmp_path, "echo broken")
    sensor, said = sensors.find("GPU-5678")
    assert (sensor, said) == (None, "NVML: Not Found; nvidia-smi said 'broken'")


# ---------------------------------------------------------------------------------------------------------------------
# How a measurement uses the sensor


class FakeCard:
    """A card that draws 100 W while it works, and whose energy counter changes every 0.1 s of its own clock."""

    name = "fake"

    def __init__(self, watts: float = 100.0, reasons: tuple[str, ...] = ()) -> None:
        self.now, self.watts, self.reasons, self.closed, self.calls = 0.0, watts, reasons, False, 0

    def read(self) -> Reading:
        return Reading(1500.0 + self.calls, self.watts, self.reasons)

    def energy(self) -> float | None:
        return int(self.now / 0.1) * 0.1 * self.watts

    def close(self) -> None:
        self.closed = True

    def call(self) -> None:
        self.now += 0.003
        self.calls += 1


def test_readings_are_medians_and_every_reason():
    class Three(FakeCard):
        seen = iter([Reading(1000, 1.0), Reading(3000, 5.0, ("heat",)), Reading(2000, None, ("power cap", "heat"))])

        def read(self):
            return next(self.seen)

    watch = sensors.Watch(Three())
    for _ in range(3):
        watch.look("mm32")
    assert watch.of("mm32") == {"clock_mhz": 2000, "power_w": 3.0, "throttled": ["heat", "power cap"]}
    assert watch.of("torch") == {}
    blind = sensors.Watch(None)
    blind.look("mm32")
    assert blind.of("mm32") == {}


def test_joules_a_call_are_counted_from_change_to_change():
    card = FakeCard()
    used = sensors.joules(card.call, 0.003, card, lambda: None, clock=lambda: card.now)
    # 0.3 J a call. At either end of 0.5 s or more, a change is seen up to one chunk of 0.021 s late.
    assert used == pytest.approx(0.3, rel=0.05)
    assert 0.5 <= card.now <= 0.9


def test_joules_of_one_long_call():
    card = FakeCard()

    def call():
        card.now += 0.7

    assert sensors.joules(call, 0.7, card, lambda: None, clock=lambda: card.now) == pytest.approx(70.0)


@pytest.mark.parametrize("counter", [lambda: None, lambda: 5.0])
def test_a_counter_that_is_not_there_or_stands_still_gives_no_energy(counter):
    card = FakeCard()
    card.energy = counter
    assert sensors.joules(card.call, 0.003, card, lambda: None, clock=lambda: card.now) is None
    assert card.now < 3


def test_a_counter_that_stops_gives_no_energy():
    card = FakeCard()
    card.energy = lambda: 1.0 if card.now < 1 else 2.0
    assert sensors.joules(card.call, 0.003, card, lambda: None, clock=lambda: card.now) is None
    assert card.now < 5


def test_a_row_has_what_the_sensor_said(on_cpu, monkeypatch):
    monkeypatch.setattr(
        sensors, "joules", lambda call, seconds, sensor, synchronize: call() is not None and seconds * 100
    )
    case = Case(16, 24, 32)
    card = FakeCard(watts=650.0, reasons=("power cap",))
    made = measure.measure(case, ["torch", "mm32"], sensor=card, energy=True)["results"]
    assert made["torch"].keys() == made["mm32"].keys()
    assert (made["mm32"]["clock_mhz"], made["mm32"]["power_w"], made["mm32"]["throttled"]) == (1500, 650, ["power cap"])
    assert (made["torch"]["joules"], made["mm32"]["joules"]) == (500.0, 200.0)
    without = measure.measure(case, ["torch", "mm32"], sensor=card)["results"]
    assert set(made["mm32"]) - set(without["mm32"]) == {"joules"}
    blind = measure.measure(case, ["torch", "mm32"])["results"]
    assert set(without["mm32"]) - set(blind["mm32"]) == {"clock_mhz", "power_w", "throttled"}


# ---------------------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture
def with_card(on_cpu, monkeypatch):
    """A function that makes the command use the given sensor."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    environment = {"card": "a card", "driver": "1", "torch": "2", "mm32": "0", "device": {}}
    monkeypatch.setattr(record, "environment", lambda: environment)
    monkeypatch.setattr(sensors, "joules", lambda call, seconds, sensor, synchronize: seconds)

    def give(sensor, said="fake"):
        monkeypatch.setattr(sensors, "of_current_card", lambda: (sensor, said))
        return sensor

    return give


def test_the_command_reads_counts_and_closes(with_card):
    card = with_card(FakeCard())
    made = command.measured("16,8", "mm32", energy=True)
    assert made["sensor"] == "fake"
    assert [r["results"]["mm32"]["joules"] for r in made["rows"]] == [2.0, 2.0]
    assert all(r["results"]["torch"]["clock_mhz"] == 1500 for r in made["rows"])
    assert card.closed
    assert json.loads(json.dumps(made)) == made


def test_energy_that_nothing_counts_is_refused_before_measuring(with_card):
    card = with_card(FakeCard())
    card.energy = lambda: None
    for sensor, said in ((card, "fake"), (None, "no driver")):
        with_card(sensor, said)
        refused = run("bench", "--shapes", "16", "--energy")
        assert refused.exit_code == 2
        assert f"nothing here counts the card's energy ({said})" in " ".join(refused.stderr.replace("│", " ").split())
    assert card.closed


# ---------------------------------------------------------------------------------------------------------------------
# On a card


@pytest.mark.gpu
def test_the_sensor_of_this_card():
    sensor, said = sensors.of_current_card()
    assert sensor is not None, said
    try:
        a = torch.randn(4096, 4096, device="cuda")
        for _ in range(100):
            a @ a
        seen = sensor.read()
        torch.cuda.synchronize()
        assert 200 < seen.clock_mhz < 5000
        assert seen.power_w is None or 20 < seen.power_w < 2000
        assert set(seen.throttled) <= set(sensors.THROTTLED.values())
    finally:
        sensor.close()


@pytest.mark.gpu
def test_energy_of_this_card_is_its_power_over_the_time():
    pytest.importorskip("pynvml")
    sensor, said = sensors.of_current_card()
    assert sensor is not None, said
    try:
        if sensor.energy() is None:
            pytest.skip("this card does not count its energy")
        a = torch.randn(8192, 8192, device="cuda")
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a @ a
        begin.record()
        a @ a
        end.record()
        end.synchronize()
        seconds = begin.elapsed_time(end) * 1e-3
        used = sensors.joules(lambda: a @ a, seconds, sensor, torch.cuda.synchronize)
        assert used is not None
        assert 50 < used / seconds < 1500  # W
    finally:
        sensor.close()


@pytest.mark.gpu
def test_nvidia_smi_of_this_card():
    uuid = torch.cuda.get_device_properties(0).uuid
    if subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no nvidia-smi here")
    sensor = Smi("nvidia-smi", f"GPU-{uuid}")
    try:
        assert 100 < sensor.read().clock_mhz < 5000
    finally:
        sensor.close()


@pytest.mark.gpu
def test_bench_with_energy_on_this_card(tmp_path):
    out = tmp_path / "made.json"
    done = run("bench", "--shapes", "2048", "--against", "mm32", "--energy", "--json", out)
    if done.exit_code == 2:
        assert "nothing here counts the card's energy" in " ".join(done.stderr.replace("│", " ").split())
        return
    results = record.read(out)["rows"][0]["results"]
    for name in ("torch", "mm32"):
        assert results[name]["clock_mhz"] > 200
        assert 0 < results[name]["joules"] < 10
