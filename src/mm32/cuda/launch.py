"""Runs a Plan on torch's current stream. Fills the kernel's one argument (problem.cuh) and calls the driver; no synchronisation,
no allocation, no choice."""

from __future__ import annotations

import ctypes
import functools
import threading

import torch

from mm32.cuda import compile as compiler
from mm32.errors import LaunchError
from mm32.gemm import MAX_BATCH_RANK, Gemm, Matrix
from mm32.plan import Device, Plan

_i64 = ctypes.c_longlong


class _Matrix(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("row", _i64), ("col", _i64), ("batch", _i64 * MAX_BATCH_RANK)]


class _Problem(ctypes.Structure):
    """struct Problem of problem.cuh, field for field."""

    _fields_ = [
        ("m", _i64),
        ("n", _i64),
        ("k", _i64),
        ("batches", _i64),
        ("batch_size", _i64 * MAX_BATCH_RANK),
        ("batch_rank", _i64),
        ("a", _Matrix),
        ("b", _Matrix),
        ("c", _Matrix),
        ("bias", ctypes.c_void_p),
        ("bias_stride", _i64),
    ]


def _matrix(matrix: Matrix) -> _Matrix:
    return _Matrix(None, matrix.row, matrix.col, (_i64 * MAX_BATCH_RANK)(*matrix.batch))


@functools.lru_cache(maxsize=4096)
def _template(gemm: Gemm) -> _Problem:
    """The argument with everything but the pointers."""
    return _Problem(
        gemm.m,
        gemm.n,
        gemm.k,
        gemm.batches,
        (_i64 * MAX_BATCH_RANK)(*gemm.batch),
        len(gemm.batch),
        _matrix(gemm.a),
        _matrix(gemm.b),
        _matrix(gemm.out),
        None,
        gemm.bias or 0,
    )


@functools.cache
def device_of(index: int) -> Device:
    """The card with this index, as a planner sees it."""
    p = torch.cuda.get_device_properties(index)
    return Device(p.name, (p.major, p.minor), p.multi_processor_count, p.shared_memory_per_block_optin)


def _checked(result: tuple, what: str) -> object:
    """The value of a driver call's (status, value...) or a LaunchError that names the status."""
    from cuda.bindings import driver

    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise LaunchError(f"{what}: {getattr(status, 'name', status)} ({(text or b'').decode()})")
    return values[0] if values else None


_kernels: dict[tuple, object] = {}
_lock = threading.Lock()


def _kernel(plan: Plan, index: int) -> object:
    """The loaded kernel, ready on device `index` (dynamic shared memory allowed)."""
    at = (plan.source, plan.constants, plan.device.arch, plan.launch, index)
    found = _kernels.get(at)
    if found is not None:
        return found
    from cuda.bindings import driver

    with _lock:
        if at in _kernels:
            return _kernels[at]
        what = _what(plan)
        code = compiler.cubin(plan.source, plan.constants, plan.device.arch)
        library = _checked(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0), f"loading {what}")
        kernel = _checked(driver.cuLibraryGetKernel(library, plan.launch.entry.encode()), f"loading {what}")
        if plan.launch.shared > 48 * 1024:
            _checked(
                driver.cuKernelSetAttribute(
                    driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    plan.launch.shared,
                    kernel,
                    _checked(driver.cuDeviceGet(index), f"loading {what}"),
                ),
                f"loading {what}: {plan.launch.shared} bytes of shared memory",
            )
        _kernels[at] = function = driver.CUfunction(int(kernel))  # type: ignore[call-overload]
        return function


def _what(plan: Plan) -> str:
    g = plan.gemm
    batch = f" batch {'x'.join(map(str, g.batch))}" if g.batch else ""
    return f"kernel {plan.kernel} ({plan.source}) for M={g.m} N={g.n} K={g.k}{batch} layout {g.layout} on {plan.device.name}"


def run(plan: Plan, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    """Launches `plan` for these tensors, which are the ones its Gemm describes, on the current stream of their device.

    Raises `CompileError` or `LaunchError`; an error inside the kernel itself surfaces at the caller's next synchronisation, as
    with any CUDA call.
    """
    from cuda.bindings import driver

    index = a.device.index
    with torch.cuda.device(index):
        kernel = _kernel(plan, index)
        problem = _Problem.from_buffer_copy(_template(plan.gemm))
        problem.a.data, problem.b.data, problem.c.data = a.data_ptr(), b.data_ptr(), out.data_ptr()
        if bias is not None:
            problem.bias = bias.data_ptr()
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(problem))
        stream = torch.cuda.current_stream(index).cuda_stream

        def launch() -> tuple:
            return driver.cuLaunchKernel(
                kernel, plan.launch.grid(plan.gemm), 1, 1, plan.launch.block, 1, 1, plan.launch.shared, stream,
                ctypes.addressof(arguments), 0,
            )  # fmt: skip

        result = launch()
        if result[0] == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
            torch.cuda.set_device(index)  # a thread that has not used CUDA yet: binds the device's context to it
            result = launch()
        _checked(result, f"launching {_what(plan)}")
