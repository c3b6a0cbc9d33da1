"""Memory that two processes map: made by the tool, handed to a worker as a file descriptor.

Both sides of the border import this module (see worker/__init__.py); it imports nothing else of this package. A region is a
fixed range of addresses in one process. The tool's `create` makes new memory, which no other process has ever seen, and returns
a descriptor of it; the worker's `map` puts the memory of a descriptor at its region's addresses. So the worker's tensors over a
region stay valid while the memory under them is exchanged, and the worker cannot see a byte of a region's data before it is sent
the descriptor.

On the host the memory is an anonymous file (memfd_create), sealed so that no process can shrink it while another uses it. The
tool writes and reads it as a file, which takes a third of the time of writing to freshly mapped pages.
On a GPU it is an allocation of the driver's (cuMemCreate, CUDA driver API, "Virtual Memory Management") exported as a POSIX
file descriptor; legacy IPC handles do not work across PID namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

Ranges = Sequence[Sequence[int]]  # (begin, end) in bytes
TOGETHER = 1 << 20  # vectors of up to so many bytes are written together, in one call


class Region(Protocol):
    """A range of `size` bytes of this process's addresses."""

    size: int

    def create(self) -> int:
        """For the tool: make new memory. Returns a descriptor of it, which stays open until `release`."""

    def write(self, vectors: Sequence[tuple[int, Tensor]]) -> None:
        """Copy vectors into memory that was created, each to its offset in bytes."""

    def fill(self, at: int, end: int, byte: int) -> None:
        """Set the bytes from `at` to `end` of memory that was created to `byte`."""

    def read(self, at: int, out: Tensor) -> None:
        """Fill `out`, a contiguous tensor of uint8, with the bytes from `at` on."""

    def map(self, descriptor: int, ranges: Ranges) -> None:
        """For the worker: map the memory of a descriptor here, at least its `ranges`, and close the descriptor."""

    def release(self) -> None:
        """Give the memory back; the addresses stay reserved. Nothing may be using them."""

    def bytes(self) -> Tensor:
        """Return all of the region as uint8. Only what was mapped may be touched."""

    def close(self) -> None:
        """Give the addresses back as well."""


def reserve(size: int, device: torch.device) -> Region:
    """Return a region of at least `size` bytes on `device`, without memory. Raises OSError or RuntimeError where that fails."""
    return DeviceRegion(size, device) if device.type == "cuda" else HostRegion(size)


# ---------------------------------------------------------------------------------------------------------- host

_FIXED, _ANONYMOUS, _NORESERVE, _SHARED, _PRIVATE, _POPULATE = 0x10, 0x20, 0x4000, 0x01, 0x02, 0x8000
_ADD_SEALS, _NO_MORE, _NO_SHRINKING, _NO_GROWING, _NO_WRITING = 1033, 0x1, 0x2, 0x4, 0x8
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


PIECE = 64 << 20  # the most bytes that one system call moves


def _mmap(address: int | None, size: int, protection: int, flags: int, descriptor: int, at: int = 0) -> int:
    found = _libc.mmap(address, size, protection, flags, descriptor, at)
    if found is None or found == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap of {size} bytes: {os.strerror(number)}")
    return int(found)


def bits_of(t: Tensor) -> Tensor:
    """Return the bytes of a tensor, in the order of its entries."""
    flat = t.detach().contiguous().reshape(-1)
    # A single entry counts as contiguous with any stride, but `view` does not take every stride.
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8)


def buffer_of(t: Tensor) -> memoryview:
    """Return the bytes of a tensor on the host."""
    return memoryview(bits_of(t).numpy().data) if t.numel() else memoryview(b"")


def write_file(descriptor: int, data: memoryview, at: int) -> None:
    while len(data):
        done = os.pwrite(descriptor, data[:PIECE], at)
        data, at = data[done:], at + done


def read_file(descriptor: int, out: memoryview, at: int) -> None:
    """Fill `out` with the bytes from `at` on. Raises OSError where the file ends too early."""
    while len(out):
        done = os.preadv(descriptor, [out[:PIECE]], at)
        if done == 0:
            raise OSError("shared memory ends too early")
        out, at = out[done:], at + done


SEALINGS, SEALING_PAUSE = 10, 0.05  # how often sealing is tried, and the seconds between two tries


def new_file(size: int | None = None) -> int:
    """Return an anonymous file in memory: of `size` bytes for good, or without `size` as large as what is written to it."""
    descriptor = os.memfd_create("mm32", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        if size is not None:
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, _ADD_SEALS, _NO_MORE | _NO_SHRINKING | _NO_GROWING)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def freeze(descriptor: int) -> None:
    """Seal the file against any change. Raises OSError where it stays mapped for writing, or its pages stay in use."""
    for left in reversed(range(SEALINGS)):
        try:
            fcntl.fcntl(descriptor, _ADD_SEALS, _NO_MORE | _NO_SHRINKING | _NO_GROWING | _NO_WRITING)
            return
        except OSError as error:
            # The system, too, holds pages for a moment to move them; that once ended the verification of an honest file.
            if error.errno != errno.EBUSY or not left:
                raise
            time.sleep(SEALING_PAUSE)


class HostRegion:
    """A region of the machine's memory."""

    def __init__(self, size: int):
        self.size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.address = _mmap(None, self.size, 0, _PRIVATE | _ANONYMOUS | _NORESERVE, -1)
        self._bytes: Tensor | None = None
        self._descriptor = -1

    def create(self) -> int:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = new_file(self.size)
        return self._descriptor

    def write(self, vectors: Sequence[tuple[int, Tensor]]) -> None:
        for at, values in vectors:
            write_file(self._descriptor, buffer_of(values), at)

    def fill(self, at: int, end: int, byte: int) -> None:
        data = memoryview(bytes([byte]) * min(end - at, 1 << 20))
        while at < end:
            at += os.pwrite(self._descriptor, data[: end - at], at)

    def read(self, at: int, out: Tensor) -> None:
        read_file(self._descriptor, buffer_of(out), at)

    def map(self, descriptor: int, ranges: Ranges) -> None:
        try:
            if os.fstat(descriptor).st_size < self.size:
                raise OSError(f"shared memory of {os.fstat(descriptor).st_size} bytes, {self.size} needed")
            for begin, end in ranges:
                begin = begin // mmap.PAGESIZE * mmap.PAGESIZE
                size = min(-(-end // mmap.PAGESIZE) * mmap.PAGESIZE, self.size) - begin
                flags = _SHARED | _FIXED | _POPULATE
                _mmap(self.address + begin, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, begin)
        finally:
            os.close(descriptor)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        else:
            _mmap(self.address, self.size, 0, _PRIVATE | _ANONYMOUS | _NORESERVE | _FIXED, -1)

    def bytes(self) -> Tensor:
        if self._bytes is None:
            buffer = (ctypes.c_ubyte * self.size).from_address(self.address)
            self._bytes = torch.frombuffer(buffer, dtype=torch.uint8)
        return self._bytes

    def close(self) -> None:
        self._bytes = None
        self.release()
        _libc.munmap(self.address, self.size)


# ---------------------------------------------------------------------------------------------------------- GPU


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


_PINNED, _ON_DEVICE, _POSIX_DESCRIPTOR, _READ_WRITE = 1, 1, 1, 3
_u64, _size = ctypes.c_uint64, ctypes.c_size_t


class _Driver:
    """The few functions of libcuda that are needed."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            said = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(said))
            raise RuntimeError(f"{name}: {(said.value or b'error').decode()} ({code})")


class _Interface:
    """What torch.as_tensor needs to know of device memory that it does not own."""

    def __init__(self, address: int, size: int):
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


class DeviceRegion:
    """A region of a GPU's memory."""

    def __init__(self, size: int, device: torch.device):
        torch.zeros(1, device=device)  # makes the device's context, and makes it current
        self.driver = _Driver()
        self.device = device
        self.location = _Location(_ON_DEVICE, device.index or 0)
        self.properties = _Properties(_PINNED, _POSIX_DESCRIPTOR, self.location, None, (ctypes.c_ubyte * 8)())
        unit = _size()
        self.driver.call("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(self.properties), 0)
        self.size = -(-max(size, 1) // unit.value) * unit.value
        self.address = _u64()
        self.driver.call(
            "cuMemAddressReserve", ctypes.byref(self.address), _size(self.size), _size(0), _u64(0), _u64(0)
        )
        self.handle: ctypes.c_uint64 | None = None
        self._descriptor = -1
        self._bytes: Tensor | None = None

    def create(self) -> int:
        handle, descriptor = _u64(), ctypes.c_int(-1)
        self.driver.call("cuMemCreate", ctypes.byref(handle), _size(self.size), ctypes.byref(self.properties), _u64(0))
        self._put(handle)
        self.driver.call(
            "cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, ctypes.c_int(_POSIX_DESCRIPTOR), _u64(0)
        )
        self._descriptor = descriptor.value
        return self._descriptor

    def write(self, vectors: Sequence[tuple[int, Tensor]]) -> None:
        whole = self.bytes()
        targets: list[Tensor] = []
        small: list[Tensor] = []
        for at, values in vectors:
            data = values.contiguous().view(torch.uint8)  # one call takes tensors of one type only
            target = whole[at : at + data.numel()]
            if data.numel() > TOGETHER:
                target.view(values.dtype).copy_(values)
            else:
                targets.append(target)
                small.append(data)
        if small:  # a network's buffers, hundreds of them
            torch._foreach_copy_(targets, small)

    def fill(self, at: int, end: int, byte: int) -> None:
        self.bytes()[at:end].fill_(byte)

    def read(self, at: int, out: Tensor) -> None:
        out.view(-1).copy_(self.bytes()[at : at + out.numel()])

    def map(self, descriptor: int, ranges: Ranges) -> None:
        handle = _u64()
        try:
            self.driver.call(
                "cuMemImportFromShareableHandle",
                ctypes.byref(handle),
                ctypes.c_void_p(descriptor),
                ctypes.c_int(_POSIX_DESCRIPTOR),
            )
        finally:
            os.close(descriptor)
        self._put(handle)

    def _put(self, handle: ctypes.c_uint64) -> None:
        self.release()
        try:
            self.driver.call("cuMemMap", self.address, _size(self.size), _size(0), handle, _u64(0))
        except RuntimeError:
            self.driver.call("cuMemRelease", handle)
            raise
        self.handle = handle
        access = _Access(self.location, _READ_WRITE)
        self.driver.call("cuMemSetAccess", self.address, _size(self.size), ctypes.byref(access), _size(1))

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self.handle is not None:
            torch.cuda.synchronize(self.device)
            self.driver.call("cuMemUnmap", self.address, _size(self.size))
            handle, self.handle = self.handle, None
            self.driver.call("cuMemRelease", handle)

    def bytes(self) -> Tensor:
        if self._bytes is None:
            self._bytes = torch.as_tensor(_Interface(self.address.value or 0, self.size), device=self.device)
        return self._bytes

    def close(self) -> None:
        self._bytes = None
        with contextlib.suppress(RuntimeError):
            self.release()
            self.driver.call("cuMemAddressFree", self.address, _size(self.size))
