"""Makes a Plan ready and runs it on torch's current stream: compiles its launches side by side, loads them, fills in the kernels'
argument and calls the driver, and reads the tiers' counts. A launch makes no choice and waits for nothing."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from mm32 import dispatch
from mm32.cuda import compile as compiler
from mm32.cuda import driver, prebuilt
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
    """Return the problem with everything but the pointers."""
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
    """Return the argument for a workspace at `base`, with the packed forms of A and B at `base_a` and `base_b`."""

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
        space.early,
        (_i64 * 2)(*space.first_rows),
    )


@functools.cache
def card_of(index: int) -> Card:
    """Return the card with this index, as a planner sees it."""
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


def planning_device() -> tuple[Card, bool]:
    """The card that plans are made for, and whether it is present: torch's current one, or an H200 if there is no card."""
    if torch.cuda.is_available():
        return card_of(torch.cuda.current_device()), True
    return cards.H200, False


def _check(status: int, what: str) -> None:
    """Check that a driver call succeeded.

    Raises `LaunchError`, which names the status; in a forked child of a process that used CUDA, torch's RuntimeError for that.
    """
    if status == driver.SUCCESS:
        return
    if torch.cuda._is_in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
            f"start method ({what})"
        )
    raise LaunchError(f"{what}: {driver.name(status)}")


def _checked(result: tuple[int, int], what: str) -> int:
    """Return the handle of a driver call's (status, handle), after a `_check` of the status."""
    _check(result[0], what)
    return result[1]


@dataclass(frozen=True)
class _Loaded:
    library: int
    kernel: int


_kernels: dict[tuple, _Loaded] = {}
_lock = threading.RLock()
_Code = tuple[str, compiler.Constants]  # what a cubin is compiled from, but for the architecture


def _at(launch: Launch, arch: str, index: int) -> tuple:
    return launch.source, launch.entry, launch.constants, launch.shared, arch, index


def _not_loaded(plan: Plan, arch: str, index: int) -> tuple[Launch, ...]:
    return tuple(launch for launch in plan.launches if _at(launch, arch, index) not in _kernels)


def _cubins(launches: tuple[Launch, ...], arch: str) -> dict[_Code, bytes]:
    """Return the cubins of launches, without those that came with the package. What has to be compiled is compiled in parallel,
    which NVRTC allows: the launches of a plan take 2.5 to 3.1 s one after another."""
    wanted = {(launch.source, launch.constants): None for launch in launches}
    here = [code for code in wanted if not prebuilt.path(code[0], code[1], arch).exists()]
    kept = {code: compiler.kept(code[0], code[1], arch) for code in here}
    made = {code: data for code, data in kept.items() if data is not None}
    missing = [code for code in here if code not in made]
    if len(missing) > 1:
        compiler.compiler_version()  # loads NVRTC once: its bindings are not safe if several threads do that
        try:
            with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1), "mm32-compile") as pool:
                futures = {code: pool.submit(compiler.cubin, code[0], code[1], arch) for code in missing}
            return made | {code: future.result() for code, future in futures.items()}
        except RuntimeError as error:  # no thread can be started: the interpreter is ending, or a limit is reached
            if isinstance(error, CompileError):
                raise
            log.info("kernels are compiled one after another: %s", error)
    return made | {code: compiler.cubin(code[0], code[1], arch) for code in missing}


def _library(launch: Launch, arch: str, cubins: dict[_Code, bytes], what: str) -> int:
    """Load the cubin of a launch and return the library: one of `cubins`, or the one that came with the package, unless the
    driver refuses that; otherwise it is compiled. The device's context has to be current."""
    code = cubins.get((launch.source, launch.constants))
    if code is None and (built := prebuilt.find(launch.source, launch.constants, arch)) is not None:
        try:
            library = _checked(driver.load(built), what)
            # The driver may load lazily, and report only now that it cannot.
            _checked(driver.function(_checked(driver.kernel(library, launch.entry), what)), what)
            return library
        except LaunchError as error:
            log.info("the driver does not take the cubin that came with mm32 (%s): compiling", error)
    return _checked(driver.load(code or compiler.cubin(launch.source, launch.constants, arch)), what)


def _kernel(launch: Launch, arch: str, index: int, what: str, cubins: dict[_Code, bytes]) -> _Loaded:
    """Return the loaded kernel, ready on device `index` (its shared memory allowed)."""
    at = _at(launch, arch, index)
    found = _kernels.get(at)
    if found is not None:
        return found
    what = f"loading {what}"
    with _lock:
        if at in _kernels:
            return _kernels[at]
        library = _library(launch, arch, cubins, what)
        kernel = _checked(driver.kernel(library, launch.entry), what)
        if launch.shared > 48 * 1024:
            size = driver.MAX_DYNAMIC_SHARED_SIZE_BYTES
            _check(driver.set_attribute(kernel, index, size, launch.shared), f"{what}: {launch.shared} bytes shared")
        if launch.takes_workspace:
            # Blocks of different kernels run on one multiprocessor at once only if they divide its memory in the same way.
            _check(driver.set_attribute(kernel, index, driver.PREFERRED_SHARED_MEMORY_CARVEOUT, 100), what)
        _kernels[at] = _Loaded(library, kernel)
        return _kernels[at]


# What computed the results of emulated products, in the order of mm32_tier_calls (emulated/fallback.cu).
TIERS = ("fp16x3", "fp16x3 with a scaled lo", "bf16x6", "FMA", "tiles recomputed", "rows recomputed", "fp16")
_TIER_SOURCE, _TIER_COUNTERS = "emulated/fallback.cu", "mm32_tier_calls"


def tier_calls() -> dict[str, int]:
    """Return the number of calls of emulated kernels in this process, replays of CUDA graphs included, by the tier that computed
    the result; and in how many calls tiles, or rows, columns and single elements, were recomputed by multiply-adds.

    Waits for the devices that have run such kernels.
    """
    total = [0] * len(TIERS)
    for (source, _, _, _, _, index), loaded in list(_kernels.items()):
        if source == _TIER_SOURCE:
            with torch.cuda.device(index):
                torch.cuda.synchronize()
                counts = (ctypes.c_ulonglong * len(TIERS))()
                _check(driver.read_global(loaded.library, _TIER_COUNTERS, counts), f"reading {_TIER_COUNTERS}")
            total = [a + b for a, b in zip(total, counts, strict=True)]
    return dict(zip(TIERS, total, strict=True))


def _what(plan: Plan, launch: Launch) -> str:
    g = plan.gemm
    batch = f" batch {'x'.join(map(str, g.batch))}" if g.batch else ""
    return (
        f"kernel {plan.kernel} ({launch.entry} in {launch.source}) for M={g.m} N={g.n} K={g.k}{batch} layout {g.layout} "
        f"on {plan.card.name}"
    )


# The positions of a problem's pointers among the words of an argument.
_A, _B, _C, _BIAS = (getattr(_Problem, name).offset // 8 for name in ("a", "b", "c", "bias"))
_empty = dispatch.EMPTY["cuda"]


current_device = dispatch.current_device
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", dispatch.absent)
_Bases = tuple[int, int, int]  # addresses: of the workspace, and of the packed forms of A and of B


def _words(structure: ctypes.Structure) -> array:
    """Return an argument as 64-bit words: to change one takes a Python call 40 ns, to change a field of a structure 300 ns."""
    return array("Q", bytes(structure))


class _Argument:
    """A kernel's argument without its addresses, and which of its words are addresses in the workspace or a packed operand."""

    def __init__(self, problem: _Problem, space: Workspace | None) -> None:
        self.words = _words(problem if space is None else _params(problem, space, 0, 0, 0))
        self.moved: list[tuple[int, int, int]] = []  # which word, from which of the bases, and its offset
        if space is not None:
            for which in range(3):
                other = _words(_params(problem, space, *(int(base == which) for base in range(3))))
                self.moved += [(i, which, w) for i, w in enumerate(self.words) if other[i] != w]


class _Filled:
    """The arguments and configurations of a plan's launches, in memory that the driver reads. One call at a time uses them."""

    def __init__(self, arguments: list[_Argument], steps: list[tuple[Launch, int, int, int]]) -> None:
        self.stream = 0
        self.bases: _Bases | None = None
        self.arguments = [(array("Q", argument.words), argument.moved) for argument in arguments]
        self.words = [words for words, _ in self.arguments]
        self.launches = []  # configuration, kernel and parameters of each, as the driver takes them
        self._configs = []
        self._parameters = []  # kept alive
        for launch, kernel, grid, which in steps:
            attributes = driver.attributes(launch.dependent, launch.cluster)
            config = driver.LaunchConfig(
                (grid, 1, 1), (launch.block, 1, 1), launch.shared, None, attributes, len(attributes)
            )
            parameters = (ctypes.c_void_p * 1)(self.words[which].buffer_info()[0])
            self._configs.append(config)
            self._parameters.append(parameters)
            addresses = ctypes.addressof(config), kernel, ctypes.addressof(parameters)
            self.launches.append(tuple(ctypes.c_void_p(address) for address in addresses))

    def move(self, stream: int, bases: _Bases | None) -> None:
        """Switch to another stream or workspace."""
        if stream != self.stream:
            for config in self._configs:
                config.stream = stream
            self.stream = stream
        if bases is not None and bases != self.bases:
            for words, moved in self.arguments:
                for word, which, offset in moved:
                    words[word] = bases[which] + offset
            self.bases = bases


class Executable:
    """A plan made ready for one device: its kernels are loaded, and their arguments are filled in except for the pointers.

    Calling it is what an eager matmul costs on the host, so everything that can be looked up or formatted beforehand is.
    """

    def __init__(self, plan: Plan, index: int) -> None:
        self.plan, self.index = plan, index
        self._launch = driver.library().cuLaunchKernelEx
        arch = plan.card.arch
        # of each launch: the launch, its kernel, its number of blocks, and which argument it takes
        self._steps: list[tuple[Launch, int, int, int]] = []
        with torch.cuda.device(index):
            cubins: dict[_Code, bytes] = {}
            if _not_loaded(plan, arch, index):  # otherwise do not wait for another thread's compilation
                torch.cuda.set_device(index)  # makes its context current in a thread that has not used CUDA yet
                with _lock:
                    cubins = _cubins(_not_loaded(plan, arch, index), arch)
            spaces = []
            for launch in plan.launches:
                kernel = _kernel(launch, arch, index, _what(plan, launch), cubins).kernel
                if (space := plan.workspace_of(launch)) not in spaces:
                    spaces.append(space)
                self._steps.append((launch, kernel, launch.grid(plan.gemm), spaces.index(space)))
        problem = _template(plan.gemm)
        self._arguments = [_Argument(problem, space) for space in spaces]
        space = plan.workspace
        self._size = None if space is None else (space.bytes,)
        self._prepacked = (False, False) if space is None else space.prepacked
        # The ones that no call uses now. A call takes one off the list and puts it back. Both are atomic for other threads, and
        # for a signal handler that multiplies. There are as many as there were calls at once.
        self._free: list[_Filled] = []

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        packed_a: torch.Tensor | None = None,
        packed_b: torch.Tensor | None = None,
    ) -> None:
        """Launch the plan on the current stream of the device.

        The tensors are those that the plan's Gemm describes, and the memory of the operands that it takes prepacked. The
        workspace comes from torch's allocator and goes back to it in the stream's order.

        Raises `LaunchError`. An error inside a kernel surfaces at the caller's next synchronisation, as with any CUDA call.
        """
        if current_device() != self.index:
            with torch.cuda.device(self.index):
                return self(a, b, bias, out, packed_a, packed_b)
        addend = 0 if bias is None else bias.data_ptr()
        return self.launch(a.data_ptr(), b.data_ptr(), addend, out.data_ptr(), packed_a, packed_b)

    def launch(
        self,
        a: int,
        b: int,
        bias: int,
        out: int,
        packed_a: torch.Tensor | None = None,
        packed_b: torch.Tensor | None = None,
    ) -> None:
        """Launch the plan with the tensors' addresses (`bias` is 0 for none). The plan's device has to be the current one."""
        if self._size is None:
            self._start(a, b, bias, out, None)
            return
        memory = _empty(self._size, (1,), torch.uint8)
        base = memory.data_ptr()
        base_a = packed_a.data_ptr() if packed_a is not None and self._prepacked[0] else base
        base_b = packed_b.data_ptr() if packed_b is not None and self._prepacked[1] else base
        self._start(a, b, bias, out, (base, base_a, base_b))

    def pack(self, operand: torch.Tensor) -> torch.Tensor:
        """Launch a plan that packs an operand (plan.pack), and return the plan's workspace, which holds it packed."""
        assert self._size is not None
        with torch.cuda.device(self.index):
            # Zeros: no kernel writes what lies between the parts, which has to be the same each time.
            memory = torch.zeros(self._size, dtype=torch.uint8, device=operand.device)
            at = operand.data_ptr()  # for both operands: the other has no rows and is not read
            self._start(at, at, 0, 0, (memory.data_ptr(),) * 3)
        return memory

    def _start(self, a: int, b: int, bias: int, out: int, bases: _Bases | None) -> None:
        try:
            filled = self._free.pop()
        except IndexError:
            filled = _Filled(self._arguments, self._steps)
        stream = _current_stream(self.index)
        if stream != filled.stream or bases != filled.bases:
            filled.move(stream, bases)
        for words in filled.words:
            words[_A], words[_B], words[_C], words[_BIAS] = a, b, out, bias
        launch = self._launch
        for config, kernel, parameters in filled.launches:
            if status := launch(config, kernel, parameters, None):
                self._again(status, filled, (config, kernel, parameters))
        self._free.append(filled)

    def _again(self, status: int, filled: _Filled, arguments: tuple[ctypes.c_void_p, ...]) -> None:
        """Repeat a launch that failed if it may succeed now. Raises `LaunchError` if it fails."""
        if status == driver.INVALID_CONTEXT:
            torch.cuda.set_device(self.index)  # a thread that has not used CUDA yet: binds the device's context to it
            status = self._launch(*arguments, None)
        _check(status, f"launching {_what(self.plan, self._steps[filled.launches.index(arguments)][0])}")
