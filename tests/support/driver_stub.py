"""A stand-in for NVIDIA's driver: it loads any cubin and records what is launched. Tensors are on the CPU."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from mm32 import dispatch, prepared
from mm32.cuda import driver, launch
from mm32.plan import H200, Launch


@dataclass(frozen=True)
class Launched:
    """One launch as the driver sees it; `words` are the 64-bit words of its argument."""

    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    dependent: bool
    cluster: int
    words: tuple[int, ...]

    def problem(self) -> launch._Problem:
        data = b"".join(word.to_bytes(8, "little") for word in self.words)
        return launch._Problem.from_buffer_copy(data)

    def params(self) -> launch._Params:
        data = b"".join(word.to_bytes(8, "little") for word in self.words)
        return launch._Params.from_buffer_copy(data)


class Driver:
    """A driver that records launches.

    `launched`: the launches since it was last cleared. `fails`: the statuses of the next launches, which fail. `refuses`: cubins
    that it does not load, or with `lazy`, cubins that it loads without their function."""

    def __init__(self) -> None:
        self.launched: list[Launched] = []
        self.attributes: list[tuple[int, int]] = []  # attribute, value
        self.fails: list[int] = []
        self.refuses: list[bytes] = []
        self.lazy = False
        self._kept: list[Any] = []
        self._codes: dict[int, bytes] = {}
        self._libraries: dict[int, int] = {}  # kernel -> its library
        self._entries: dict[int, str] = {}
        self.sizes: dict[str, int] = {}  # bytes of each kernel's argument

    def _handle(self) -> int:
        return 0x1000 + 16 * (len(self._codes) + len(self._entries))

    def code(self, library: int) -> bytes:
        """The cubin of a library."""
        return self._codes[library]

    def library(self) -> Driver:
        return self

    def load(self, cubin: bytes) -> tuple[int, int]:
        made = self._handle()
        self._codes[made] = cubin
        return (200 if cubin in self.refuses and not self.lazy else 0), made

    def kernel(self, loaded: int, entry: str) -> tuple[int, int]:
        made = self._handle()
        self._entries[made], self._libraries[made] = entry, loaded
        return 0, made

    def function(self, kernel: int) -> tuple[int, int]:
        return (209 if self._codes[self._libraries[kernel]] in self.refuses else 0), kernel

    def set_attribute(self, kernel: int, index: int, attribute: int, value: int) -> int:
        self.attributes.append((attribute, value))
        return 0

    def name(self, status: int) -> str:
        return f"CUDA_ERROR_{status}"

    def cuLaunchKernelEx(self, config: Any, kernel: Any, parameters: Any, extra: None) -> int:
        if self.fails:
            return self.fails.pop(0)
        of = driver.LaunchConfig.from_address(config.value)
        (address,) = (ctypes.c_void_p * 1).from_address(parameters.value)
        entry = self._entries[kernel.value]
        size = self.sizes[entry]
        dependent, cluster, count = False, 1, of.attribute_count
        while count > 0:
            count -= 1
            attribute = of.attributes[count]
            if attribute.id == driver.PROGRAMMATIC_STREAM_SERIALIZATION:
                dependent = attribute.values[0] == 1
            else:
                assert attribute.id == driver.CLUSTER_DIMENSION
                cluster = attribute.values[0]
                assert cluster > 1 == attribute.values[1] == attribute.values[2]
        assert of.grid[0] % cluster == 0
        words = tuple((ctypes.c_ulonglong * (size // 8)).from_address(address))
        self.launched.append(
            Launched(entry, tuple(of.grid), tuple(of.block), of.shared, of.stream or 0, dependent, cluster, words)
        )
        return 0


def install(monkeypatch: pytest.MonkeyPatch, compiles: bool = False) -> Driver:
    """Install this driver, with an H200 whose index is that of CPU tensors; nothing is planned or loaded yet. Unless `compiles`,
    a source's name stands for its cubin."""
    made = Driver()
    for name in ("library", "load", "kernel", "function", "set_attribute", "name"):
        monkeypatch.setattr(driver, name, getattr(made, name))
    real = launch._kernel

    def noted(step: Launch, *rest: Any) -> Any:
        made.sizes[step.entry] = ctypes.sizeof(launch._Params if step.takes_workspace else launch._Problem)
        return real(step, *rest)

    monkeypatch.setattr(launch, "_kernel", noted)
    monkeypatch.setattr(launch, "_kernels", {})
    monkeypatch.setattr(launch, "card_of", lambda index: H200)
    monkeypatch.setattr(launch, "current_device", lambda: -1)  # the device index of CPU tensors
    monkeypatch.setattr(launch, "_current_stream", lambda index: 0)
    monkeypatch.setattr(launch, "_empty", dispatch.EMPTY["cpu"])
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    if not compiles:
        monkeypatch.setattr(launch.compiler, "cubin", lambda source, constants, arch: source.encode())
        monkeypatch.setattr(launch.compiler, "kept", lambda source, constants, arch: source.encode())
    monkeypatch.setattr(prepared, "_missing", None)
    prepared.CACHE.clear()
    return made
