"""The functions of NVIDIA's driver that load and launch kernels, called by ctypes in libcuda, which torch has already loaded.

cuda-bindings has them too, but importing it loads 50 modules and 12 MB of libraries, and a launch through it takes as long.
Signatures, structures and numbers are cuda.h's; a status is 0 or an error.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from mm32.errors import LaunchError

LIBRARY = "libcuda.so.1"
SUCCESS, INVALID_CONTEXT = 0, 201  # CUresult

# CUfunction_attribute
MAX_DYNAMIC_SHARED_SIZE_BYTES, PREFERRED_SHARED_MEMORY_CARVEOUT = 8, 9
CLUSTER_DIMENSION, PROGRAMMATIC_STREAM_SERIALIZATION = 4, 6  # CUlaunchAttributeID


class LaunchAttribute(ctypes.Structure):
    """struct CUlaunchAttribute: `values` are the first numbers of a union of 64 bytes, which begins at byte 8."""

    _fields_ = [("id", c_int), ("pad", c_int), ("values", c_int * 3), ("rest", c_int * 13)]


class LaunchConfig(ctypes.Structure):
    """struct CUlaunchConfig."""

    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", POINTER(LaunchAttribute)),
        ("attribute_count", c_uint),
    ]


def attributes(dependent: bool, cluster: int) -> ctypes.Array[LaunchAttribute]:
    """Return the attributes of a launch. dependent: it may start while the one before it runs. cluster: blocks in a cluster."""
    made = [LaunchAttribute(PROGRAMMATIC_STREAM_SERIALIZATION, 0, (c_int * 3)(1))] if dependent else []
    made += [LaunchAttribute(CLUSTER_DIMENSION, 0, (c_int * 3)(cluster, 1, 1))] if cluster > 1 else []
    return (LaunchAttribute * len(made))(*made)


_HANDLE = POINTER(c_void_p)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuKernelGetFunction": (_HANDLE, c_void_p),
    "cuKernelSetAttribute": (c_int, c_int, c_void_p, c_int),
    "cuLibraryGetGlobal": (_HANDLE, POINTER(c_size_t), c_void_p, c_char_p),
    "cuLibraryGetKernel": (_HANDLE, c_void_p, c_char_p),
    "cuLibraryLoadData": (
        _HANDLE, c_char_p, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_uint,
    ),
    "cuMemcpyDtoH_v2": (c_void_p, c_void_p, c_size_t),
}  # fmt: skip


@functools.cache
def library() -> Any:
    """Return libcuda. Its cuLaunchKernelEx has no signature, which makes calls faster: it takes a LaunchConfig by reference and
    c_void_p. Raises `LaunchError` if there is no driver."""
    try:
        found = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise LaunchError(
            f"mm32's kernels are launched by NVIDIA's driver, and that cannot be loaded: {error}"
        ) from error
    for name, arguments in _SIGNATURES.items():
        getattr(found, name).argtypes = arguments
    return found


def name(status: int) -> str:
    """Return a status in the driver's words, such as CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)."""
    said = []
    for function in (library().cuGetErrorName, library().cuGetErrorString):
        text = c_char_p()
        function(status, ctypes.byref(text))
        said.append((text.value or b"").decode())
    return f"{said[0] or status} ({said[1]})"


def load(cubin: bytes) -> tuple[int, int]:
    """Load a cubin and return (status, library). The driver copies what it keeps of the cubin."""
    made = c_void_p()
    return library().cuLibraryLoadData(ctypes.byref(made), cubin, None, None, 0, None, None, 0), made.value or 0


def kernel(loaded: int, entry: str) -> tuple[int, int]:
    """Return (status, kernel) of an entry of a library."""
    found = c_void_p()
    return library().cuLibraryGetKernel(ctypes.byref(found), loaded, entry.encode()), found.value or 0


def function(kernel: int) -> tuple[int, int]:
    """Return (status, function) of a kernel in the current context, and load it there if it was not yet."""
    found = c_void_p()
    return library().cuKernelGetFunction(ctypes.byref(found), kernel), found.value or 0


def set_attribute(kernel: int, index: int, attribute: int, value: int) -> int:
    """Set an attribute of a kernel on the device with this index and return the status."""
    device = c_int()
    status = library().cuDeviceGet(ctypes.byref(device), index)
    return status or library().cuKernelSetAttribute(attribute, value, kernel, device)


def read_global(loaded: int, variable: str, into: ctypes.Array) -> int:
    """Copy a library's variable to the host and return the status."""
    address, size = c_void_p(), c_size_t()
    status = library().cuLibraryGetGlobal(ctypes.byref(address), ctypes.byref(size), loaded, variable.encode())
    return status or library().cuMemcpyDtoH_v2(into, address, min(size.value, ctypes.sizeof(into)))
