"""Runs a Plan on torch's current stream: fills the kernels' argument (problem.cuh, workspace.cuh) and calls the driver. No
synchronisation, no choice."""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass

import torch

from mm32.cuda import compile as compiler
from mm32.errors import LaunchError
from mm32.gemm import MAX_BATCH_RANK, Gemm, Matrix
from mm32.plan import Card, Launch, Plan, Workspace
from mm32.plan import card as cards

_i64 = ctypes.c_longlong


class _Matrix(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("row", _i64), ("col", _i64), ("batch", _i64 * MAX_BATCH_RANK)]


class _Problem(ctypes.Structure):
    """struct Problem of common/problem.cuh, field for field."""

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


_pair = ctypes.c_void_p * 2


class _Params(ctypes.Structure):
    """struct Params of common/workspace.cuh, field for field."""

    _fields_ = [
        ("p", _Problem),
        ("panels", _pair),
        ("stats", _pair),
        ("ready", _pair),
        ("decision", ctypes.c_void_p),
        ("partial_sums", ctypes.c_void_p),
        ("matrices", _i64 * 2),
        ("parts", _i64),
        ("first_rows", _i64 * 2),
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


def _lower(params: _Params, space: Workspace, base: int) -> _Params:
    """The argument of the lower tier's launches."""
    lower = _Params.from_buffer_copy(params)
    lower.panels = _pair(base + space.lower_panels[0], base + space.lower_panels[1])
    lower.parts = space.lower_parts
    lower.first_rows = (_i64 * 2)(0, 0)
    return lower


def _split(problem: _Problem, space: Workspace, base: int, base_a: int, base_b: int) -> _Params:
    """The argument for a workspace at `base`, and what is A's and B's at `base_a` and `base_b`."""

    def pair(offsets: tuple[int, int]) -> object:
        return _pair(base_a + offsets[0], base_b + offsets[1])

    return _Params(
        problem,
        pair(space.panels),
        pair(space.stats),
        pair(space.ready),
        base + space.decision,
        base + space.partial_sums,
        (_i64 * 2)(*space.matrices),
        space.parts,
        (_i64 * 2)(*space.first_rows),
    )


@functools.cache
def device_of(index: int) -> Card:
    """The card with this index, as a planner sees it."""
    p = torch.cuda.get_device_properties(index)
    return cards.from_properties(
        p.name,
        (p.major, p.minor),
        p.multi_processor_count,
        p.shared_memory_per_block_optin,  # type: ignore[attr-defined]
        clock_rate=getattr(p, "clock_rate", None),
        memory_clock_rate=getattr(p, "memory_clock_rate", None),
        memory_bus_width=getattr(p, "memory_bus_width", None),
        l2=getattr(p, "L2_cache_size", None),
    )


def _checked(result: tuple, what: str) -> object:
    """The value of a driver call's (status, value...) or a LaunchError that names the status."""
    from cuda.bindings import driver

    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise LaunchError(f"{what}: {getattr(status, 'name', status)} ({(text or b'').decode()})")
    return values[0] if values else None


@dataclass(frozen=True)
class _Loaded:
    library: object
    function: object


_kernels: dict[tuple, _Loaded] = {}
_lock = threading.Lock()


def _kernel(launch: Launch, arch: str, index: int, what: str) -> _Loaded:
    """The loaded kernel, ready on device `index` (its shared memory allowed)."""
    at = (launch.source, launch.entry, launch.constants, launch.shared, arch, index)
    found = _kernels.get(at)
    if found is not None:
        return found
    from cuda.bindings import driver

    with _lock:
        if at in _kernels:
            return _kernels[at]
        code = compiler.cubin(launch.source, launch.constants, arch)
        library = _checked(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0), f"loading {what}")
        kernel = _checked(driver.cuLibraryGetKernel(library, launch.entry.encode()), f"loading {what}")
        device = _checked(driver.cuDeviceGet(index), f"loading {what}")

        def set_attribute(attribute: object, value: int) -> None:
            _checked(
                driver.cuKernelSetAttribute(attribute, value, kernel, device), f"loading {what}: {attribute} = {value}"
            )

        names = driver.CUfunction_attribute
        if launch.shared > 48 * 1024:
            set_attribute(names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared)
        if launch.takes_workspace:
            # Blocks of different kernels stand beside each other only under one division of a multiprocessor's memory.
            set_attribute(names.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)
        _kernels[at] = _Loaded(library, driver.CUfunction(int(kernel)))  # type: ignore[call-overload]
        return _kernels[at]


TIERS = ("fp16x3", "fp16x3 with a scaled lo", "bf16x6", "FMA", "tiles recomputed", "rows recomputed")


def tier_calls(index: int) -> dict[str, int]:
    """Calls of emulated kernels on device `index` in this process, by the tier that computed them, and how many of those had
    tiles, or rows and columns alone, recomputed. Waits for the device."""
    from cuda.bindings import driver

    total = [0] * len(TIERS)
    with torch.cuda.device(index):
        torch.cuda.synchronize()
        for (source, _, _, _, _, device), loaded in list(_kernels.items()):
            if source == "emulated/fallback.cu" and device == index:
                status, address, size = driver.cuLibraryGetGlobal(loaded.library, b"mm32_tier_calls")
                _checked((status,), "reading mm32_tier_calls")
                counts = (ctypes.c_ulonglong * len(TIERS))()
                _checked(driver.cuMemcpyDtoH(ctypes.addressof(counts), address, size), "reading mm32_tier_calls")
                total = [a + b for a, b in zip(total, counts, strict=True)]
    return dict(zip(TIERS, total, strict=True))


def _what(plan: Plan, launch: Launch) -> str:
    g = plan.gemm
    batch = f" batch {'x'.join(map(str, g.batch))}" if g.batch else ""
    return (
        f"kernel {plan.kernel} ({launch.entry} in {launch.source}) for M={g.m} N={g.n} K={g.k}{batch} layout {g.layout} "
        f"on {plan.card.name}"
    )


class Runner:
    """A plan made ready for one device: kernels loaded, arguments filled in but for the pointers. Calling it is what an
    eager matmul costs on the host, so nothing is looked up or formatted there that can be kept."""

    def __init__(self, plan: Plan, index: int) -> None:
        from cuda.bindings import driver

        self.plan, self.index = plan, index
        self._driver = driver
        self._problem = _template(plan.gemm)
        self._steps = []
        with torch.cuda.device(index):
            for launch in plan.launches:
                kernel = _kernel(launch, plan.card.arch, index, _what(plan, launch)).function
                self._steps.append((launch, kernel, launch.grid(plan.gemm)))
        self._threads = threading.local()  # a launch's configuration is filled in and read: one for each thread

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        packed_a: torch.Tensor | None = None,
        packed_b: torch.Tensor | None = None,
    ) -> None:
        """Launches the plan on the current stream of the device, for tensors that its Gemm describes, and the memory of the
        operands that it takes as packed before. Workspace comes from torch's allocator and goes back to it in the stream's order.

        Raises `LaunchError`; an error inside a kernel surfaces at the caller's next synchronisation, as with any CUDA call.
        """
        if torch._C._cuda_getDevice() != self.index:
            with torch.cuda.device(self.index):
                return self(a, b, bias, out, packed_a, packed_b)
        stream = torch._C._cuda_getCurrentRawStream(self.index)
        problem = _Problem.from_buffer_copy(self._problem)
        problem.a.data, problem.b.data, problem.c.data = a.data_ptr(), b.data_ptr(), out.data_ptr()
        if bias is not None:
            problem.bias = bias.data_ptr()
        space = self.plan.workspace
        if space is None:
            launch, kernel, grid = self._steps[0]
            self._start(launch, kernel, grid, problem, stream)
            return None
        memory = torch.empty(space.bytes, dtype=torch.uint8, device=a.device)
        base = memory.data_ptr()
        base_a = base if packed_a is None or not space.prepacked[0] else packed_a.data_ptr()
        base_b = base if packed_b is None or not space.prepacked[1] else packed_b.data_ptr()
        split = _split(problem, space, base, base_a, base_b)
        lower = _lower(split, space, base) if any(launch.lower for launch in self.plan.launches) else split
        for launch, kernel, grid in self._steps:
            self._start(launch, kernel, grid, lower if launch.lower else split if launch.takes_workspace else problem, stream)
        return None

    def pack(self, operand: torch.Tensor) -> torch.Tensor:
        """Launches a plan that packs an operand (plan.pack); returns the plan's workspace, which holds it packed."""
        space = self.plan.workspace
        assert space is not None
        with torch.cuda.device(self.index):
            stream = torch._C._cuda_getCurrentRawStream(self.index)
            problem = _Problem.from_buffer_copy(self._problem)
            problem.a.data = problem.b.data = operand.data_ptr()  # the other has no rows, and is not read
            # Zeros, so that what lies between the parts, which no kernel writes, is the same each time.
            memory = torch.zeros(space.bytes, dtype=torch.uint8, device=operand.device)
            split = _split(problem, space, *(memory.data_ptr(),) * 3)
            for launch, kernel, grid in self._steps:
                self._start(launch, kernel, grid, split, stream)
        return memory

    def _start(self, launch: Launch, kernel: object, grid: int, argument: ctypes.Structure, stream: int) -> None:
        driver = self._driver
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        where = ctypes.addressof(pointers)

        def start() -> object:
            if launch.dependent:
                return driver.cuLaunchKernelEx(self._config(launch, grid, stream), kernel, where, 0)[0]
            return driver.cuLaunchKernel(kernel, grid, 1, 1, launch.block, 1, 1, launch.shared, stream, where, 0)[0]

        status = start()
        if status == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
            torch.cuda.set_device(self.index)  # a thread that has not used CUDA yet: binds the device's context to it
            status = start()
        if status != driver.CUresult.CUDA_SUCCESS:
            _checked((status,), f"launching {_what(self.plan, launch)}")

    def _config(self, launch: Launch, grid: int, stream: int) -> object:
        """The launch's configuration for a stream, kept by thread; a thread that changes streams makes it anew."""
        kept = self._threads.__dict__.setdefault("configs", {})
        found = kept.get((launch.entry, launch.lower))
        if found is not None and found[0] == stream:
            return found[1]
        config = self._driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block, 1, 1
        config.sharedMemBytes = launch.shared
        config.hStream = stream
        config.attrs, config.numAttrs = [_early()], 1
        kept[launch.entry, launch.lower] = (stream, config)
        return config


Executable = Runner


def run(plan: Plan, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    """Runs `plan` once. `Runner` is the same made ready for many calls."""
    Runner(plan, a.device.index)(a, b, bias, out)


@functools.cache
def _early() -> object:
    from cuda.bindings import driver

    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    value = driver.CUlaunchAttributeValue()
    value.programmaticStreamSerializationAllowed = 1
    attribute.value = value
    return attribute
