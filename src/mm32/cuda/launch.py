"""Runs a Plan on torch's current stream: fills in the kernels' argument and calls the driver. It makes no choice and waits for
nothing."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from mm32.cuda import compile as compiler
from mm32.cuda import prebuilt
from mm32.errors import CompileError, LaunchError
from mm32.gemm import MAX_BATCH_RANK, Gemm, Matrix
from mm32.plan import PARAMS, Card, Field, Launch, Plan, Workspace
from mm32.plan import card as cards

log = logging.getLogger("mm32")
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


def _type(field: Field) -> type:
    one = ctypes.c_void_p if field.pointer else _i64
    return one * 2 if field.pair else one


class _Params(ctypes.Structure):
    """struct Params of common/workspace.cuh, as the plan describes it."""

    _fields_ = [("p", _Problem), *((field.name, _type(field)) for field in PARAMS)]


def _matrix(matrix: Matrix) -> _Matrix:
    return _Matrix(None, matrix.row, matrix.col, (_i64 * MAX_BATCH_RANK)(*matrix.batch))


def _template(gemm: Gemm) -> _Problem:
    """The problem with everything but the pointers."""
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


def _params(problem: _Problem, space: Workspace, base: int, base_a: int, base_b: int) -> _Params:
    """The argument for a workspace at `base`, with the packed forms of A and B at `base_a` and `base_b`."""

    def pair(offsets: tuple[int, int]) -> object:
        return _pair(base_a + offsets[0], base_b + offsets[1])

    return _Params(
        problem,
        _pair(base + space.panels[0], base + space.panels[1]) if space.own_panels else pair(space.panels),
        pair(space.stats),
        pair(space.ready),
        base + space.decision,
        base + space.partial_sums,
        (_i64 * 2)(*space.matrices),
        space.parts,
        (_i64 * 2)(*space.first_rows),
    )


@functools.cache
def card_of(index: int) -> Card:
    """The card with this index, as a planner sees it."""
    p = torch.cuda.get_device_properties(index)
    return cards.from_properties(
        p.name,
        (p.major, p.minor),
        p.multi_processor_count,
        getattr(p, "shared_memory_per_block_optin", 0),  # ROCm has none
        clock_rate=getattr(p, "clock_rate", None),
        memory_clock_rate=getattr(p, "memory_clock_rate", None),
        memory_bus_width=getattr(p, "memory_bus_width", None),
        l2=getattr(p, "L2_cache_size", None),
    )


def _checked(result: tuple, what: str) -> object:
    """The value of a driver call's (status, value...).

    Raises `LaunchError`, which names the status; in a forked child of a process that used CUDA, torch's RuntimeError for that.
    """
    from cuda.bindings import driver

    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        if torch.cuda._is_in_bad_fork():
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
                f"start method ({what})"
            )
        _, text = driver.cuGetErrorString(status)
        raise LaunchError(f"{what}: {getattr(status, 'name', status)} ({(text or b'').decode()})")
    return values[0] if values else None


@dataclass(frozen=True)
class _Loaded:
    library: object
    function: object


_kernels: dict[tuple, _Loaded] = {}
_lock = threading.RLock()
_Code = tuple[str, compiler.Constants]  # what a cubin is made of, but for the architecture


def _at(launch: Launch, arch: str, index: int) -> tuple:
    return launch.source, launch.entry, launch.constants, launch.shared, arch, index


def _not_loaded(plan: Plan, arch: str, index: int) -> tuple[Launch, ...]:
    return tuple(launch for launch in plan.launches if _at(launch, arch, index) not in _kernels)


def _cubins(launches: tuple[Launch, ...], arch: str) -> dict[_Code, bytes]:
    """The cubins of launches, without those that came with the package. What has to be compiled is compiled side by side, which
    NVRTC allows: the launches of a plan take 2.5 to 3.1 s one after another."""
    wanted = {(launch.source, launch.constants): None for launch in launches}
    here = [code for code in wanted if not prebuilt.path(code[0], code[1], arch).exists()]
    kept = {code: compiler.kept(code[0], code[1], arch) for code in here}
    made = {code: data for code, data in kept.items() if data is not None}
    missing = [code for code in here if code not in made]
    if len(missing) > 1:
        compiler.compiler_version()  # loads NVRTC, once: its bindings are not made for several threads doing that
        try:
            with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1), "mm32-compile") as pool:
                futures = {code: pool.submit(compiler.cubin, code[0], code[1], arch) for code in missing}
            return made | {code: future.result() for code, future in futures.items()}
        except RuntimeError as error:  # no thread may be started: the interpreter ends, or a limit is reached
            if isinstance(error, CompileError):
                raise
            log.info("kernels are compiled one after another: %s", error)
    return made | {code: compiler.cubin(code[0], code[1], arch) for code in missing}


def _library(launch: Launch, arch: str, cubins: dict[_Code, bytes], what: str) -> object:
    """The loaded cubin of a launch: of those at hand, or the one that came with the package, unless the driver refuses that. The
    device's context is current."""
    from cuda.bindings import driver

    def load(code: bytes) -> object:
        return _checked(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0), f"loading {what}")

    code = cubins.get((launch.source, launch.constants))
    if code is None and (built := prebuilt.find(launch.source, launch.constants, arch)) is not None:
        try:
            library = load(built)
            # The driver may load lazily, and say only now that it cannot.
            kernel = _checked(driver.cuLibraryGetKernel(library, launch.entry.encode()), f"loading {what}")
            _checked(driver.cuKernelGetFunction(kernel), f"loading {what}")
            return library
        except LaunchError as error:
            log.info("the driver does not take the cubin that came with mm32 (%s): compiling", error)
    return load(code or compiler.cubin(launch.source, launch.constants, arch))


def _kernel(launch: Launch, arch: str, index: int, what: str, cubins: dict[_Code, bytes]) -> _Loaded:
    """The loaded kernel, ready on device `index` (its shared memory allowed)."""
    at = _at(launch, arch, index)
    found = _kernels.get(at)
    if found is not None:
        return found
    from cuda.bindings import driver

    with _lock:
        if at in _kernels:
            return _kernels[at]
        library = _library(launch, arch, cubins, what)
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
            # Blocks of different kernels run on one multiprocessor at once only if they divide its memory alike.
            set_attribute(names.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)
        _kernels[at] = _Loaded(library, driver.CUfunction(int(kernel)))  # type: ignore[call-overload]
        return _kernels[at]


# What computed the results of emulated products, in the order of mm32_tier_calls (emulated/fallback.cu).
TIERS = ("fp16x3", "fp16x3 with a scaled lo", "bf16x6", "FMA", "tiles recomputed", "rows recomputed", "fp16")
_TIER_SOURCE, _TIER_COUNTERS = "emulated/fallback.cu", b"mm32_tier_calls"


def tier_calls() -> dict[str, int]:
    """Calls of emulated kernels in this process, replays of CUDA graphs among them, by the tier that computed the result; and in
    how many calls tiles, or rows, columns and single elements, were recomputed by multiply-adds.

    Waits for the devices that have run such kernels.
    """
    total = [0] * len(TIERS)
    for (source, _, _, _, _, index), loaded in list(_kernels.items()):
        if source == _TIER_SOURCE:
            from cuda.bindings import driver

            what = f"reading {_TIER_COUNTERS.decode()}"
            with torch.cuda.device(index):
                torch.cuda.synchronize()
                status, address, size = driver.cuLibraryGetGlobal(loaded.library, _TIER_COUNTERS)
                _checked((status,), what)
                counts = (ctypes.c_ulonglong * len(TIERS))()
                _checked(driver.cuMemcpyDtoH(ctypes.addressof(counts), address, size), what)
            total = [a + b for a, b in zip(total, counts, strict=True)]
    return dict(zip(TIERS, total, strict=True))


def _what(plan: Plan, launch: Launch) -> str:
    g = plan.gemm
    batch = f" batch {'x'.join(map(str, g.batch))}" if g.batch else ""
    return (
        f"kernel {plan.kernel} ({launch.entry} in {launch.source}) for M={g.m} N={g.n} K={g.k}{batch} layout {g.layout} "
        f"on {plan.card.name}"
    )


class Executable:
    """A plan made ready for one device: its kernels are loaded, their argument is filled in but for the pointers.

    Calling it is what an eager matmul costs on the host, so whatever can be looked up or formatted beforehand is.
    """

    def __init__(self, plan: Plan, index: int) -> None:
        from cuda.bindings import driver

        self.plan, self.index = plan, index
        self._driver = driver
        self._problem = _template(plan.gemm)
        self._steps = []
        arch = plan.card.arch
        with torch.cuda.device(index):
            cubins: dict[_Code, bytes] = {}
            if _not_loaded(plan, arch, index):  # else another thread's compilation is not waited for
                torch.cuda.set_device(index)  # makes its context current in a thread that has not used CUDA yet
                with _lock:
                    cubins = _cubins(_not_loaded(plan, arch, index), arch)
            for launch in plan.launches:
                kernel = _kernel(launch, arch, index, _what(plan, launch), cubins).function
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
        """Launches the plan on the current stream of the device.

        The tensors are those that the plan's Gemm describes, and the memory of the operands that it takes prepacked. The
        workspace comes from torch's allocator and goes back to it in the stream's order.

        Raises `LaunchError`. An error inside a kernel surfaces at the caller's next synchronisation, as with any CUDA call.
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
        params = _params(problem, space, base, base_a, base_b)
        lower = params if space.lower is None else _params(problem, space.lower, base, base_a, base_b)
        for launch, kernel, grid in self._steps:
            argument = lower if launch.lower else params if launch.takes_workspace else problem
            self._start(launch, kernel, grid, argument, stream)
        return None

    def pack(self, operand: torch.Tensor) -> torch.Tensor:
        """Launches a plan that packs an operand (plan.pack); returns the plan's workspace, which holds it packed."""
        space = self.plan.workspace
        assert space is not None
        with torch.cuda.device(self.index):
            stream = torch._C._cuda_getCurrentRawStream(self.index)
            problem = _Problem.from_buffer_copy(self._problem)
            problem.a.data = problem.b.data = operand.data_ptr()  # the other has no rows, and is not read
            # Zeros: no kernel writes what lies between the parts, and it is to be the same each time.
            memory = torch.zeros(space.bytes, dtype=torch.uint8, device=operand.device)
            params = _params(problem, space, *(memory.data_ptr(),) * 3)
            for launch, kernel, grid in self._steps:
                self._start(launch, kernel, grid, params, stream)
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
        """The launch's configuration for a stream. Each thread keeps its own, and makes it again when it changes streams."""
        kept = self._threads.__dict__.setdefault("configs", {})
        found = kept.get((launch.entry, launch.lower))
        if found is not None and found[0] == stream:
            return found[1]
        config = self._driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block, 1, 1
        config.sharedMemBytes = launch.shared
        config.hStream = stream
        config.attrs, config.numAttrs = [_dependent_launch()], 1
        kept[launch.entry, launch.lower] = (stream, config)
        return config


@functools.cache
def _dependent_launch() -> object:
    from cuda.bindings import driver

    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    value = driver.CUlaunchAttributeValue()
    value.programmaticStreamSerializationAllowed = 1
    attribute.value = value
    return attribute
