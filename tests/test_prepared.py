"""The key of a call's form, the cache, and what runs where mm32's kernels cannot; with stand-ins for cards and compilers."""

from __future__ import annotations

import builtins
import itertools
import logging
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import mm32
from mm32 import gemm, prepared, torch_product
from mm32 import plan as planning
from mm32.cuda import compile as compiler
from mm32.cuda import launch
from mm32.errors import CompileError
from mm32.gemm import from_layout
from mm32.plan import H200, Card
from mm32.prepared import Cache, Call, Entry, Form
from support import driver_stub
from support.prepared import Executable, close

T4 = Card("Tesla T4", (7, 5), 40, 65536)
NEEDS = "its kernels need cuda-core with NVRTC"

# ---------------------------------------------------------------------------------------------------------------------
# Keys


def key(**fields: Any) -> tuple:
    given = {"operation": "matmul", "precision": "fp32", "kernel": "auto", "scales": prepared.NO_SCALES, **fields}
    return tuple(given.get(name) for name in Call._fields)


def test_a_plain_key_is_found_by_its_names_and_the_other_way_round() -> None:
    a, b = torch.ones(3, 4), torch.ones(5, 4).T
    plain = key(a=prepared.form(a), b=prepared.form(b))
    named = Call.of(plain)
    assert named == plain
    assert hash(named) == hash(plain)
    assert (named.a, named.addend) == (Form(*prepared.form(a)), None)
    assert (named.b.shape, named.b.strides, named.b.dtype, named.b.device) == ((4, 5), (1, 4), torch.float32, -1)
    assert named.kernel == "auto"


def test_all_that_a_plan_depends_on_is_in_the_form() -> None:
    base = torch.empty(400)
    tensors = [
        base[:12].view(3, 4),
        base[:12].view(4, 3),
        base[:12].view(4, 3).T,
        base[1:13].view(3, 4),
        base[:12].view(3, 4).double(),
        base[:12].view(3, 4).to("meta").new_empty(3, 4)[:2],
    ]
    forms = [prepared.form(t) for t in tensors]
    assert len(set(forms)) == len(forms)
    assert prepared.form(base[4:16].view(3, 4)) == forms[0]


# ---------------------------------------------------------------------------------------------------------------------
# The cache


def test_the_cache_is_bounded_and_keeps_what_is_used() -> None:
    cache = Cache(10)
    entries = {(i,): Entry() for i in range(50)}
    for name, entry in entries.items():
        cache.keep(name, entry)
        cache.find((0,))  # entry 0 is used all the time
        assert len(cache) <= 10
    assert cache.find((0,)) is entries[(0,)]
    assert cache.find((49,)) is entries[(49,)]
    assert sum(cache.find(name) is not None for name in entries) == 10
    cache.keep((49,), entries[(1,)])
    assert cache.find((49,)) is entries[(1,)]
    cache.clear()
    assert len(cache) == 0
    assert cache.find((0,)) is None
    with pytest.raises(TypeError):
        cache.find(([],))


def test_threads_share_the_cache() -> None:
    cache, failures = Cache(16), []

    def work(number: int) -> None:
        rng = random.Random(number)
        try:
            for _ in range(3000):
                i = rng.randrange(40)
                found = cache.find((i,))
                if found is None:
                    entry = Entry()
                    entry_of[id(entry)] = i
                    kept.append(entry)
                    cache.keep((i,), entry)
                else:
                    assert entry_of[id(found)] == i
                assert len(cache) <= 16
        except BaseException as error:
            failures.append(error)

    entry_of: dict[int, int] = {}
    kept: list[Entry] = []  # keeps entries alive, so that no id is used again
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


# ---------------------------------------------------------------------------------------------------------------------
# A card, for which the CPU stands in


def operands(m: int = 40, k: int = 300, n: int = 30) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(m, k), torch.randn(n, k).T, torch.randn(n)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_form_is_prepared_once(card: Callable, seed: int) -> None:
    a, b, bias = operands()
    for _ in range(3):
        close(mm32.matmul(a, b), a @ b)
        close(mm32.matmul(a, b, bias=bias, activation="relu"), torch.relu(a @ b + bias))
        out = torch.empty(40, 30)
        assert mm32.matmul(a, b, out=out) is out
        close(out, a @ b)
    assert len(Executable.made) == 2 + 1  # with out, a call has another form, even if out is like a new result
    assert len(prepared.CACHE) == 3


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_packed_operand_is_used_past_the_dispatcher(card: Callable, seed: int) -> None:
    a, b, bias = operands()
    packed_b, packed_a = mm32.pack(b), mm32.pack(a, side="left")
    assert packed_b.reason is None or not torch.cuda.is_available()
    assert packed_b.nbytes > 0
    for x, y in ((a, packed_b), (packed_a, b), (packed_a, packed_b)):
        for options in ({}, {"bias": bias, "activation": "gelu"}):
            close(
                mm32.matmul(x, y, **options),
                torch_product.activate(a @ b + options.get("bias", 0), options.get("activation")),
            )
    close(mm32.linear(a, packed_b, bias), a @ b + bias)
    assert all(
        plan.workspace.prepacked != (False, False) for plan in Executable.made if plan.reason != "packing an operand"
    )
    b[0, 0] += 1
    with pytest.raises(RuntimeError, match="was modified in place"):
        mm32.matmul(a, packed_b)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("kernel", ["auto", "simt", "tensorcore"])
def test_where_memory_for_a_workspace_is_short(
    kernel: str, card: Callable, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    a, b, _ = operands(64, 8192, 64)

    class Short(Executable):
        def __call__(self, *args: Any) -> None:
            if self.plan.workspace is not None:
                raise torch.OutOfMemoryError("out of memory, as this test has it")
            super().__call__(*args)

    monkeypatch.setattr(launch, "Executable", Short)
    if kernel == "tensorcore":
        with pytest.raises(torch.OutOfMemoryError):
            mm32.matmul(a, b, kernel=kernel)
        return
    with pytest.warns(
        UserWarning, match=r"no memory for \d+ bytes of workspace that kernel .* kernel '(simt|direct)' without it"
    ):
        close(mm32.matmul(a, b, kernel=kernel), a @ b)
    assert Executable.made[-1].workspace is None


# ---------------------------------------------------------------------------------------------------------------------
# Cards without kernels, and no compiler


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "mm32")
    return lambda: [record.getMessage() for record in caplog.records]


SHAPES = [((40, 30), (30, 20)), ((30,), (30, 20)), ((2, 1, 5, 30), (3, 30, 4)), ((5, 0), (0, 3)), ((0, 3), (3, 4))]


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_card_without_kernels_computes_by_torch(card: Callable, lines: Callable, seed: int) -> None:
    card(T4)
    for a_shape, b_shape in SHAPES:
        a, b = torch.randn(a_shape), torch.randn(b_shape)
        bias = torch.randn(b_shape[-1])
        for x in (a, a.mT.contiguous().mT if a.dim() > 1 else a):
            wanted = torch.tanh(a @ b + bias)
            close(mm32.matmul(x, b, bias=bias, activation="tanh"), wanted)
            out = torch.empty_like(wanted)
            close(mm32.matmul(x, b, bias=bias, activation="tanh", out=out), wanted)
    a, b = torch.randn(4, 300, requires_grad=True), torch.randn(300, 5)
    (grad,) = torch.autograd.grad(mm32.matmul(a, b).sum(), a)
    close(grad, b.sum(1).expand(4, 300))
    made = mm32.pack(b)
    assert made.nbytes == 0
    close(mm32.matmul(a.detach(), made), a.detach() @ b)
    assert Executable.made == []
    (line,) = lines()
    assert line.startswith("mm32 leaves its products to torch, in fp32: ")
    assert "Tesla T4 has 7.5" in line


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("kernel", planning.KERNELS)
def test_a_kernel_by_name_is_refused_there(kernel: str, card: Callable, lines: Callable) -> None:
    card(T4)
    with pytest.raises(ValueError, match=f"kernel '{kernel}' cannot run here: .*Tesla T4 has 7.5"):
        mm32.matmul(torch.ones(2, 3), torch.ones(3, 2), kernel=kernel)
    assert lines() == []


def test_the_plan_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`explain` prints it."""
    monkeypatch.setattr(launch, "card_of", lambda index: T4)
    page = prepared.planned(from_layout("tt", 300, 200, 100), 0).explain()
    assert (
        "kernel     torch: mm32's kernels are compiled for compute capability 8.0 and later; Tesla T4 has 7.5" in page
    )
    monkeypatch.setattr(torch.version, "hip", "6.4")
    page = prepared.planned(from_layout("tt", 300, 200, 100), 0).explain()
    assert "kernel     torch: mm32's kernels are for NVIDIA GPUs, and this torch is built for AMD's (ROCm)" in page
    with pytest.raises(planning.Unplannable, match=r"kernel 'simt' cannot run here: .*ROCm"):
        prepared.planned(from_layout("tt", 300, 200, 100), 0, "simt")
    with pytest.raises(ValueError, match="unknown kernel 'fast'"):
        prepared.planned(from_layout("tt", 300, 200, 100), 0, "fast")


class DynamicLibNotFoundError(RuntimeError):
    """The error that cuda-pathfinder raises if a package is there and its library is not."""


def wrapped(cause: Exception) -> CompileError:
    error = CompileError("compiling simt.cu failed")
    error.__cause__ = cause
    return error


MISSING = [
    ImportError("No module named 'cuda'"),
    DynamicLibNotFoundError("libnvrtc"),
    wrapped(ImportError("cuda.core")),
]


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("error", MISSING, ids=["bindings", "library", "cuda-core"])
def test_without_a_compiler_torch_computes(
    error: Exception, card: Callable, lines: Callable, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    tried = []

    def fail(plan: planning.Plan, index: int) -> None:
        tried.append(plan)
        raise error

    monkeypatch.setattr(launch, "Executable", fail)
    monkeypatch.setattr(prepared.prebuilt, "there", lambda: False)
    a, b, bias = operands()
    for _ in range(2):
        close(mm32.matmul(a, b, bias=bias, activation="silu"), torch.nn.functional.silu(a @ b + bias))
        close(mm32.matmul(a, b.contiguous()), a @ b)
    assert len(tried) == 1, "what is missing is found out once"
    (line,) = lines()
    assert NEEDS in line
    assert compiler.INSTALL in line
    assert f"kernel     torch: {NEEDS}" in prepared.planned(from_layout("nn", 99, 99, 99), 0).explain()
    assert mm32.pack(b).nbytes == 0
    with pytest.raises(CompileError):
        mm32.matmul(a, b, kernel="simt")
    assert len(tried) == 2


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_packing_without_a_compiler(
    card: Callable, lines: Callable, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Packing may be the first to find that there is no compiler."""

    def fail(plan: planning.Plan, index: int) -> None:
        raise ImportError("No module named 'cuda'")

    monkeypatch.setattr(launch, "Executable", fail)
    a, b, _ = operands()
    made = mm32.pack(b)
    assert made.nbytes == 0
    close(mm32.matmul(a, made), a @ b)
    assert len(lines()) == 1


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_kernel_that_does_not_compile_is_an_error(card: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a compiler is not missing, so the error is raised for "auto" too."""

    def fail(plan: planning.Plan, index: int) -> None:
        raise wrapped(RuntimeError("error: expected a ';'"))

    monkeypatch.setattr(launch, "Executable", fail)
    for kernel in ("auto", "simt"):
        with pytest.raises(CompileError):
            mm32.matmul(torch.ones(2, 300), torch.ones(300, 2), kernel=kernel)


def test_what_is_missing_is_told_from_the_real_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages themselves are hidden here, as on a machine that does not have them."""
    real = builtins.__import__

    def hidden(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("cuda."):
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    driver_stub.install(monkeypatch, compiles=True)
    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path))
    compiler.compiler_version.cache_clear()
    monkeypatch.setattr(builtins, "__import__", hidden)
    monkeypatch.setattr(prepared, "_said", set())
    plan = prepared.planned(from_layout("nn", 99, 99, 99), 0)
    run = prepared.executable(plan, 0)
    a, b, out = torch.ones(99, 99), torch.ones(99, 99), torch.empty(99, 99)
    run(a, b, None, out)
    assert (out == 99).all()
    assert run.plan.kernel == "torch"
    assert run.plan.reason.startswith(NEEDS)
    with pytest.raises(CompileError, match="compiling kernels needs cuda-core with NVRTC: pip install"):
        prepared.executable(planning.plan(from_layout("nn", 99, 99, 99), H200, "simt"), 0, "simt")


# ---------------------------------------------------------------------------------------------------------------------
# fp32 stays fp32


@pytest.fixture
def lower_precision() -> Iterator[None]:
    """Torch may use TF32 on cards, and bf16 on CPUs, as if the user had allowed it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("precision", gemm.PRECISIONS)
def test_torchs_product_is_fp32_where_torch_is_asked_for_less(
    precision: str, lower_precision: None, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The product is computed in float64 and rounded once, whatever torch would do in float32; with "tf32" it is torch's own."""
    a, b = torch.randn(64, 500), torch.randn(500, 64)
    seen, real = [], torch.matmul

    def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(x.dtype)
        return real(x, y)

    monkeypatch.setattr(torch, "matmul", matmul)
    got = mm32.matmul(a, b, precision=precision)
    assert got.dtype == torch.float32
    assert seen == [torch.float32 if precision == "tf32" else torch.float64]
    if precision != "tf32":
        assert torch.equal(got, (a.double() @ b.double()).float())
    mm32.matmul(a.double(), b.double(), precision=precision)
    assert seen[-1] == torch.float64


@pytest.mark.parametrize(
    ("hip", "capability", "fp32"),
    [
        (None, (7, 5), True),
        (None, (8, 0), False),
        ("6.4", (9, 4), False),
        ("6.4", (9, 0), True),
        ("6.4", (11, 0), True),
    ],
)
def test_a_card_without_tf32_needs_no_float64(
    hip: str | None, capability: tuple[int, int], fp32: bool, lower_precision: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert torch_product._multiplies_in_fp32(torch.device("cuda", 0)) == fp32


def test_what_torch_is_asked_for_is_read_by_device(lower_precision: None) -> None:
    assert [torch_product.torch_precision(device) for device in ("cuda", "cpu", "mps", "privateuseone")] == [
        "tf32",
        "bf16",
        "fp32",
        "fp32",
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Other types of devices

OTHER_DEVICE = """
import logging
import torch, mm32

records = []
class Note(logging.Handler):
    def emit(self, record):
        records.append(record.getMessage())
logging.getLogger("mm32").addHandler(Note())

# A device of its own: tensors that carry their values beside them, and operators that compute with those.
torch.utils.rename_privateuse1_backend("abacus")
class Module:
    @staticmethod
    def is_available(): return True
    @staticmethod
    def current_device(): return 0
    @staticmethod
    def device_count(): return 1
torch._register_device_module("abacus", Module)

class Abacus(torch.Tensor):
    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, strides=held.stride(), dtype=held.dtype, device="abacus:0")
    def __init__(self, held):
        self.held = held
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func.namespace == "mm32":  # what the dispatcher has for such a device
            return func.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1), *args)
        flat = lambda x: x.held if isinstance(x, Abacus) else x
        result = func(*map(flat, args), **{k: flat(v) for k, v in (kwargs or {}).items() if k != "device"})
        return cls(result) if isinstance(result, torch.Tensor) else result

a, b = torch.randn(3, 4), torch.randn(4, 5)
got = mm32.matmul(Abacus(a), Abacus(b), activation="relu")
assert isinstance(got, Abacus), type(got)
torch.testing.assert_close(got.held, torch.relu(a @ b))
mm32.matmul(Abacus(a), Abacus(b))
assert records == ["mm32 leaves its products to torch, in fp32: kernels are for CUDA tensors, and these are on abacus"], records
assert "abacus: torch.matmul" in mm32.explain(Abacus(a), Abacus(b))
try:
    mm32.matmul(Abacus(a), Abacus(b), kernel="simt")
except ValueError as error:
    assert "kernel 'simt' cannot run here: kernels are for CUDA tensors" in str(error), error
else:
    raise AssertionError("a kernel asked for by name ran")
print("done")
"""


def test_another_type_of_device_computes_by_torch() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OTHER_DEVICE], capture_output=True, text=True, timeout=120
    )
    assert (found.returncode, found.stdout.strip()) == (0, "done"), found.stderr


def test_every_backend_has_an_implementation() -> None:
    """The dispatcher's own table has one for each, also for devices that mm32 does not know."""
    for name in ("mm32::matmul", "mm32::matmul_out", "mm32::pack"):
        table = torch._C._dispatch_dump_table(name)
        for backend in ("CPU", "CUDA", "MPS", "XPU", "PrivateUse1"):
            (line,) = [line for line in table.splitlines() if line.startswith(f"{backend}:")]
            assert "fallthrough" not in line, line
            assert "[kernel]" in line or "[default backend kernel]" in line, line


def test_no_option_is_left_out_of_the_key() -> None:
    """Calls that differ in any option have different keys."""
    a = prepared.form(torch.empty(3, 3))
    fields: dict[str, list[Any]] = {
        "operation": ["matmul", "pack"],
        "addend": [None, a],
        "out": [None, a],
        "activation": [None, "relu"],
        "precision": ["fp32", "tf32"],
        "kernel": ["auto", "simt"],
        "packed_a": [None, a],
        "packed_b": [None, a],
        "torch": [None, "fp32"],
        "scales": [(1, 1), (0, 2)],
    }
    keys = {key(a=a, b=a, **dict(zip(fields, values, strict=True))) for values in itertools.product(*fields.values())}
    assert len(keys) == 2 ** len(fields)
