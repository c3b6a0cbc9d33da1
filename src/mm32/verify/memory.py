"""Memory that two processes map: made by the tool, handed to a worker as a file descriptor.

Both sides of the border import this module (see worker/__init__.py); it imports nothing else of this package. A region is a
fixed range of addresses in one process. `create` puts new memory there, which no other process has ever seen, and returns a
descriptor of it; `map` puts the memory of a descriptor there. So tensors over a region stay valid while the memory under them
is exchanged, and a worker cannot see a byte of a region's data before it is sent the descriptor.

On the host the memory is an anonymous file (memfd_create), sealed so that no process can shrink it under another one's feet.
On a GPU it is an allocation of the driver's (cuMemCreate, CUDA driver API, "Virtual Memory Management") exported as a POSIX
file descriptor; legacy IPC handles do not work across PID namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
from typing import Any, Protocol

import torch
from torch import Tensor


class Region(Protocol):
    """A range of `size` bytes of this process's addresses."""

    size: int

    def create(self) -> int:
        """Put new memory here; returns a descriptor of it, which the caller closes."""

    def map(self, descriptor: int) -> None:
        """Put the memory of a descriptor here, which is closed."""

    def release(self) -> None:
        """Give the memory back; the addresses stay reserved. Nothing may be using them."""

    def bytes(self) -> Tensor:
        """All of the region as uint8. Only where memory has been put here."""

    def close(self) -> None:
        """Give the addresses back as well."""


def reserve(size: int, device: torch.device) -> Region:
    """A region of at least `size` bytes on `device`, without memory. Raises OSError or RuntimeError where there is none."""
    return DeviceRegion(size, device) if device.type == "cuda" else HostRegion(size)


# ---------------------------------------------------------------------------------------------------------- host

_FIXED, _ANONYMOUS, _NORESERVE, _SHARED, _PRIVATE, _POPULATE = 0x10, 0x20, 0x4000, 0x01, 0x02, 0x8000
_SEAL = (1033, 0x1 | 0x2 | 0x4)  # F_ADD_SEALS: no seals after these, no shrinking, no growing
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def _mmap(address: int | None, size: int, protection: int, flags: int, descriptor: int) -> int:
    found = _libc.mmap(address, size, protection, flags, descriptor, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap of {size} bytes: {os.strerror(number)}")
    return int(found)


class HostRegion:
    """Memory of the machine."""

    def __init__(self, size: int):
        self.size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.address = _mmap(None, self.size, 0, _PRIVATE | _ANONYMOUS | _NORESERVE, -1)
        self._bytes: Tensor | None = None

    def create(self) -> int:
        descriptor = os.memfd_create("mm32", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, self.size)
            fcntl.fcntl(descriptor, *_SEAL)
            self._put(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def map(self, descriptor: int) -> None:
        try:
            if os.fstat(descriptor).st_size < self.size:
                raise OSError(f"shared memory of {os.fstat(descriptor).st_size} bytes, {self.size} needed")
            self._put(descriptor)
        finally:
            os.close(descriptor)

    def _put(self, descriptor: int) -> None:
        _mmap(self.address, self.size, mmap.PROT_READ | mmap.PROT_WRITE, _SHARED | _FIXED | _POPULATE, descriptor)

    def release(self) -> None:
        _mmap(self.address, self.size, 0, _PRIVATE | _ANONYMOUS | _NORESERVE | _FIXED, -1)

    def bytes(self) -> Tensor:
        if self._bytes is None:
            buffer = (ctypes.c_ubyte * self.size).from_address(self.address)
            self._bytes = torch.frombuffer(buffer, dtype=torch.uint8)
        return self._bytes

    def close(self) -> None:
        self._bytes = None
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
    """Memory of a GPU."""

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
        self._bytes: Tensor | None = None

    def create(self) -> int:
        handle, descriptor = _u64(), ctypes.c_int(-1)
        self.driver.call("cuMemCreate", ctypes.byref(handle), _size(self.size), ctypes.byref(self.properties), _u64(0))
        self._put(handle)
        self.driver.call(
            "cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, ctypes.c_int(_POSIX_DESCRIPTOR), _u64(0)
        )
        return descriptor.value

    def map(self, descriptor: int) -> None:
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
