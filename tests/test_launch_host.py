"""The launcher and the fast path to it, without a card: a driver that records what it is given (driver_stub.py)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import mm32
from mm32 import dispatch, fast_path, functions, gemm, prepared, transforms
from mm32.cuda import cublas, driver, launch
from mm32.errors import LaunchError
from mm32.plan import H200, Plan, plan
from support import driver_stub
from support.prepared import calls_made, cuda_under_cpu

pytestmark = pytest.mark.filterwarnings("ignore:Warning only once for all operators")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[driver_stub.Driver]:
    """CUDA's implementation of the operators under the CPU key, with a driver that records its launches."""
    made = driver_stub.install(monkeypatch)
    monkeypatch.setattr(cublas, "_PRODUCTS", _kernels("CPU", ".out"))
    monkeypatch.setattr(cublas, "_NEW", _kernels("CPU", ""))
    with cuda_under_cpu():
        yield made


def _kernels(key: str, overload: str) -> dict[int, Any]:
    return {
        rank: torch.library.get_kernel(f"aten::{name}{overload}", key).call_boxed
        for rank, name in ((2, "mm"), (3, "bmm"))
    }


@pytest.fixture
def slow_paths(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """The calls that took the slow path since this list was last cleared."""
    calls: list[tuple] = []
    real = functions._matmul

    def noted(*args: Any) -> torch.Tensor:
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(functions, "_matmul", noted)
    return calls


def operands(m: int = 64, k: int = 96, n: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(m, k), torch.randn(k, n)


# ---------------------------------------------------------------------------------------------------------------------
# The driver's structures


def test_structures_and_numbers_are_those_of_cuda() -> None:
    """They are laid out as in cuda-bindings, which are made from cuda.h."""
    cuda = pytest.importorskip("cuda.bindings.driver")
    theirs = cuda.CUlaunchConfig()
    theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ = 11, 12, 13
    theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ = 14, 15, 16
    theirs.sharedMemBytes, theirs.hStream = 17, 18
    attribute, value = cuda.CUlaunchAttribute(), cuda.CUlaunchAttributeValue()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    value.programmaticStreamSerializationAllowed = 1
    attribute.value = value
    clusters, dimension = cuda.CUlaunchAttribute(), cuda.CUlaunchAttributeValue()
    clusters.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dimension.clusterDim.x, dimension.clusterDim.y, dimension.clusterDim.z = 8, 1, 1
    clusters.value = dimension
    theirs.attrs, theirs.numAttrs = [attribute, clusters], 2
    seen = driver.LaunchConfig.from_address(int(theirs.getPtr()))
    assert (tuple(seen.grid), tuple(seen.block)) == ((11, 12, 13), (14, 15, 16))
    assert (seen.shared, seen.stream, seen.attribute_count) == (17, 18, 2)
    assert ctypes.sizeof(driver.LaunchAttribute) == 72
    ours = driver.attributes(dependent=True, cluster=8)
    assert [bytes(x)[:12] for x in seen.attributes[:1]] == [bytes(ours[0])[:12]]
    assert bytes(seen.attributes[1])[:20] == bytes(ours[1])[:20]
    names = cuda.CUfunction_attribute
    assert driver.MAX_DYNAMIC_SHARED_SIZE_BYTES == names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert driver.PREFERRED_SHARED_MEMORY_CARVEOUT == names.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    assert cuda.CUresult.CUDA_SUCCESS == driver.SUCCESS
    assert cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT == driver.INVALID_CONTEXT


# ---------------------------------------------------------------------------------------------------------------------
# What is launched


@pytest.mark.parametrize("kernel", ["tiled", "simt", "tensorcore"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 32, 96), (1000, 3, 4096), (512, 512, 4096)])
def test_each_launch_is_the_plans(
    kernel: str, m: int, n: int, k: int, card: driver_stub.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grid, block and shared memory, the tensors' addresses, and places in one workspace are the plan's: at the first call, which
    takes the slow path, and at later ones, with other tensors and on another stream."""
    for stream in (0, 0, 0x77000, 0):
        monkeypatch.setattr(launch, "_current_stream", lambda index, stream=stream: stream)
        a, b, bias = torch.randn(k, m).T, torch.randn(k, n), torch.randn(n)
        card.launched.clear()
        c = mm32.matmul(a, b, bias=bias, activation="relu", kernel=kernel)
        made = plan(gemm.describe(a, b, bias, c, "relu"), H200, kernel)
        assert len(card.launched) == len(made.launches)
        bases = set()
        for done, step in zip(card.launched, made.launches, strict=True):
            assert (done.entry, done.shared, done.stream) == (step.entry, step.shared, stream)
            assert (done.grid, done.block) == ((step.grid(made.gemm), 1, 1), (step.block, 1, 1))
            assert (done.dependent, done.cluster) == (step.dependent, step.cluster)
            problem = launch._template(made.gemm)
            problem.a.data, problem.b.data, problem.c.data = a.data_ptr(), b.data_ptr(), c.data_ptr()
            problem.bias = bias.data_ptr()
            expected: Any = problem
            if (space := made.workspace_of(step)) is not None:
                base = done.params().partial_sums - space.partial_sums
                bases.add(base)
                expected = launch._params(problem, space, base, base, base)
            assert done.words == tuple(launch._words(expected))
        assert len(bases) == int(made.workspace is not None)
    assert sorted(a for a, _ in card.attributes) == sorted(
        attribute
        for step in {(s.source, s.entry, s.constants, s.shared): s for s in made.launches}.values()
        for attribute, wanted in (
            (driver.MAX_DYNAMIC_SHARED_SIZE_BYTES, step.shared > 48 * 1024),
            (driver.PREFERRED_SHARED_MEMORY_CARVEOUT, step.takes_workspace),
        )
        if wanted
    )


def test_a_packed_operand_keeps_its_memory(card: driver_stub.Driver) -> None:
    a, b = operands(512, 4096, 512)
    packed = torch.zeros(mm32.plan.packed_bytes(gemm.describe(a, b, None, a @ b), 1), dtype=torch.uint8)
    made = plan(gemm.describe(a, b, None, a @ b, merge=True), H200, "auto", (False, True))
    run, c = launch.Executable(made, -1), torch.empty(512, 512)
    run(a, b, None, c, None, packed)
    (multiply,) = [done for done in card.launched if done.entry == "mm32_tensorcore"][:1]
    assert made.workspace is not None
    assert multiply.params().panels[1] == packed.data_ptr() + made.workspace.panels[1]
    assert multiply.params().panels[0] != packed.data_ptr() + made.workspace.panels[0]


def test_a_thread_without_a_context_gets_one(card: driver_stub.Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", bound.append)
    a, b = operands()
    mm32.matmul(a, b, kernel="tiled")
    bound.clear()
    card.launched.clear()
    card.fails = [driver.INVALID_CONTEXT]
    mm32.matmul(a, b, kernel="tiled")
    assert (bound, len(card.launched)) == ([-1], 1)
    card.fails = [driver.INVALID_CONTEXT, 700]
    with pytest.raises(LaunchError, match=r"launching kernel tiled \(mm32_tiled in fma/tiled.cu\) for M=64.*_700"):
        mm32.matmul(a, b, kernel="tiled")
    card.fails = [2]
    with pytest.raises(LaunchError, match="CUDA_ERROR_2"):
        mm32.matmul(a, b, kernel="tiled")
    card.launched.clear()
    mm32.matmul(a, b, kernel="tiled")
    assert len(card.launched) == 1


def test_calls_at_once_have_arguments_of_their_own(card: driver_stub.Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for eight threads, and for a call in the middle of another's launch, as from a signal handler."""
    a, b = operands()
    c = mm32.matmul(a, b, kernel="tiled")
    inner, depth = card.cuLaunchKernelEx, []

    def interrupted(*arguments: Any) -> int:
        if not depth:
            depth.append(1)
            mm32.matmul(*operands(), kernel="tiled", out=torch.empty(64, 32))
        return inner(*arguments)

    made = prepared.CACHE.seen[(a.shape, b.shape, True, True, None, "fp32", "tiled", False, None)][0].run
    monkeypatch.setattr(made, "_launch", interrupted)
    card.launched.clear()
    c = mm32.matmul(a, b, kernel="tiled")
    assert len(card.launched) == 2
    assert card.launched[1].problem().c.data == c.data_ptr()
    assert card.launched[1].problem().a.data == a.data_ptr()
    depth.append(1)
    card.launched.clear()
    wanted: list[tuple[int, int, int]] = []
    kept = []

    def work() -> None:
        for _ in range(200):
            x, y = operands()
            z = mm32.matmul(x, y, kernel="tiled")
            kept.append((x, y, z))
            wanted.append((x.data_ptr(), y.data_ptr(), z.data_ptr()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = [(p.a.data, p.b.data, p.c.data) for p in (done.problem() for done in card.launched)]
    assert sorted(got) == sorted(wanted)


# ---------------------------------------------------------------------------------------------------------------------
# The fast path


def test_a_second_call_takes_the_fast_path(card: driver_stub.Driver, slow_paths: list) -> None:
    a, b = operands()
    bias, weight, out = torch.randn(32), torch.nn.Parameter(torch.randn(32, 96)), torch.empty(64, 32)
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: mm32.matmul(a, b, kernel="simt"),
        lambda: mm32.matmul(a, b, bias=bias, activation="gelu", kernel="simt"),
        lambda: mm32.matmul(a, b, out=out, kernel="simt"),
        lambda: mm32.matmul(a, b, bias=bias, out=out, kernel="simt"),
        lambda: mm32.matmul(a[None], b, kernel="simt"),
        lambda: mm32.matmul(a[0], b, kernel="simt"),
        lambda: mm32.linear(a, weight, kernel="simt"),
        lambda: mm32.linear(a, weight, bias, activation="relu", kernel="simt"),
        lambda: mm32.linear(a.view(2, 32, 96), weight, bias, kernel="simt"),
        lambda: mm32.linear(a, weight[0].detach(), kernel="simt"),
    ]
    with torch.no_grad():
        for call in calls:
            slow_paths.clear()
            first = call()
            assert len(slow_paths) == 1
            before = card.launched[-1]
            again_ = call()
            assert len(slow_paths) == 1, "the second call took the slow path too"
            after = card.launched[-1]
            assert (after.entry, after.grid) == (before.entry, before.grid)
            assert (again_.shape, again_.stride(), again_.dtype) == (first.shape, first.stride(), first.dtype)
            assert type(again_) is torch.Tensor
            same = after.problem()
            assert same.c.data == again_.data_ptr()
            assert (same.a.data, same.b.data) == (before.problem().a.data, before.problem().b.data)


def test_a_packed_operand_on_the_fast_path(card: driver_stub.Driver, slow_paths: list) -> None:
    a, b = operands(512, 4096, 512)
    bias = torch.randn(512)
    packed = mm32.pack(b)
    assert packed.nbytes > 0
    for call in (
        lambda: mm32.matmul(a, packed),
        lambda: mm32.linear(a, packed, bias, activation="relu"),
        lambda: mm32.matmul(a, packed, out=torch.empty(512, 512)),
    ):
        slow_paths.clear()
        seen = []
        for _ in range(3):
            card.launched.clear()
            result = call()
            (multiply,) = [done for done in card.launched if done.entry == "mm32_tensorcore"][:1]
            assert multiply.problem().c.data == result.data_ptr()
            assert multiply.problem().b.data == b.data_ptr()
            assert packed.memory.data_ptr() <= multiply.params().panels[1] < packed.memory.data_ptr() + packed.nbytes
            seen.append((multiply.entry, multiply.grid))
        assert len(set(seen)) == 1
        assert len(slow_paths) == 1
    b[0, 0] += 1
    with pytest.raises(RuntimeError, match="was modified in place"):
        mm32.matmul(a, packed)


def test_what_is_not_the_same_takes_the_slow_path(card: driver_stub.Driver, slow_paths: list) -> None:
    a, b = operands()
    mm32.matmul(a, b, kernel="simt")
    same = torch.randn(64, 96), torch.randn(96, 32)
    slow_paths.clear()
    mm32.matmul(*same, kernel="simt")
    assert slow_paths == []
    spaced = torch.randn(64, 100)[:, 1:97]
    others: list[Callable[[], object]] = [
        lambda: mm32.matmul(a.T.contiguous().T, b, kernel="simt"),
        lambda: mm32.matmul(a, b, kernel="tiled"),
        lambda: mm32.matmul(a, b, precision="ieee", kernel="simt"),
        lambda: mm32.matmul(a, b, activation="relu", kernel="simt"),
        lambda: mm32.matmul(spaced, b, kernel="simt"),
        lambda: mm32.matmul(spaced, b, kernel="simt"),  # takes the slow path each time: not aligned to 16 bytes
        lambda: mm32.matmul(a.clone().requires_grad_(), b, kernel="simt"),
        lambda: mm32.linear(a, b.T, kernel="simt"),
    ]
    for number, call in enumerate(others):
        before = len(slow_paths)
        call()
        assert len(slow_paths) > before, number
    with pytest.raises(RuntimeError, match="to have the same dtype"):
        mm32.matmul(a, b.double(), kernel="simt")
    square = torch.randn(64, 64)
    for _ in range(2):  # a guard cannot tell that one tensor is given twice
        slow_paths.clear()
        mm32.matmul(square, square, kernel="simt")
        assert len(slow_paths) == 1


class _Functions(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def test_whoever_watches_sees_the_operator(card: driver_stub.Driver, slow_paths: list) -> None:
    """Modes, transforms, forward mode and a profiler see it, even if the fast path was taken before."""
    a, b = operands()

    def call(x: torch.Tensor = a) -> torch.Tensor:
        return mm32.matmul(x, b, kernel="simt")

    call()
    slow_paths.clear()
    call()
    assert slow_paths == []
    with _Operators() as operators:
        call()
    assert "mm32.matmul.default" in operators.seen
    with _Functions():
        call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    assert "mm32::matmul" in {event.key for event in profile.key_averages()}
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(call(forward_ad.make_dual(a, a))).tangent is not None
    assert torch.vmap(call)(a[None]).shape == (1, 64, 32)
    assert torch.func.grad(lambda x: call(x).sum())(a).shape == a.shape
    tracked = a.clone().requires_grad_()
    assert call(tracked).requires_grad
    assert len(slow_paths) >= 7
    with torch.no_grad():
        assert not call(tracked).requires_grad
    with torch.inference_mode():
        assert [call().is_inference() for _ in range(3)] == [True] * 3
    with torch.autocast("cpu", torch.bfloat16):
        assert call().dtype == torch.float32
    slow_paths.clear()
    assert not call().is_inference()
    assert slow_paths == []


def test_a_gradient_is_recorded_after_calls_without_one(card: driver_stub.Driver) -> None:
    """A guard tells whether a tensor requires a gradient, but not whether gradients are recorded."""
    a, weight, bias = torch.randn(64, 96), torch.nn.Parameter(torch.randn(32, 96)), torch.randn(32)
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: mm32.linear(a, weight, bias, kernel="simt"),
        lambda: mm32.matmul(a, weight.T, kernel="simt"),
        lambda: mm32.matmul(a, weight.detach().T.requires_grad_(), activation="relu", kernel="simt"),
    ]
    for call in calls:
        for _ in range(2):
            with torch.no_grad():
                assert [call().requires_grad for _ in range(3)] == [False] * 3
            with torch.inference_mode():
                assert [call().requires_grad for _ in range(3)] == [False] * 3
            assert [call().requires_grad for _ in range(3)] == [True] * 3


def test_a_recorded_call_and_its_backward(card: driver_stub.Driver, slow_paths: list) -> None:
    """It bypasses the dispatcher: there is a launch forward and one for each wanted gradient, on the fast path from the second
    time on."""
    a, weight, bias = torch.randn(64, 96), torch.nn.Parameter(torch.randn(32, 96)), torch.nn.Parameter(torch.randn(32))
    for operand, launches in ((a, 2), (a.clone().requires_grad_(), 3)):
        for number in range(3):
            card.launched.clear()
            slow_paths.clear()
            with _counted("mm32::matmul") as operators:
                result = mm32.linear(operand, weight, bias, activation="relu", kernel="tiled")
                result.sum().backward()
            assert result.grad_fn is not None
            assert result.grad_fn.name() == "Mm32MatmulBackward"
            assert len(card.launched) == launches
            assert card.launched[0].problem().c.data == result.data_ptr()
            assert weight.grad is not None
            assert weight.grad.shape == weight.shape
            assert operators == []
            assert len(slow_paths) == (1 if number else launches + 1), number
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        mm32.linear(a, weight, bias, kernel="tiled").sum().backward()
    (event,) = [event for event in profile.key_averages() if event.key == "mm32::matmul"]
    assert event.count == 2
    with pytest.raises(ValueError, match="unknown activation 'soft'"):
        mm32.linear(a, weight, bias, activation="soft", kernel="tiled")  # type: ignore[arg-type]


@contextlib.contextmanager
def _counted(name: str) -> Iterator[list[str]]:
    """Yield a list that receives the calls of an operator through the dispatcher, in any thread."""
    seen: list[str] = []
    real = transforms.autograd

    def noted(*args: Any) -> torch.Tensor:
        seen.append(name)
        return real(*args)

    with torch.library._scoped_library("mm32", "IMPL") as library:
        library.impl("matmul", noted, "Autograd", with_keyset=True, allow_override=True)
        yield seen


def test_out_on_the_fast_path(card: driver_stub.Driver, slow_paths: list) -> None:
    """`out` is refused if it shares memory with an input, even after one of the same form that did not; its changes are
    counted."""
    memory = torch.zeros(40_000)
    a, b = memory[:1024].view(32, 32), memory[1024:2048].view(32, 32)
    out = memory[2048:3072].view(32, 32)
    for _ in range(2):
        assert mm32.matmul(a, b, out=out, kernel="simt") is out
    version = out._version
    mm32.matmul(a, b, out=out, kernel="simt")
    assert len(slow_paths) == 1
    assert out._version == version + 1
    for shared in (memory[:1024], memory[1024:2048], memory[512:1536]):
        with pytest.raises(RuntimeError, match="out overlaps"):
            mm32.matmul(a, b, out=shared.view(32, 32), kernel="simt")
    mm32.matmul(a, b, out=memory[4096:5120].view(32, 32), kernel="simt")
    assert len(slow_paths) == 4
    saved = torch.randn(32, 32, requires_grad=True)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        mm32.matmul(saved, b, out=out, kernel="simt")


@pytest.mark.parametrize("batched", [False, True])
def test_torchs_product_on_the_fast_path(
    batched: bool, card: driver_stub.Driver, slow_paths: list, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    def by_torch(problem: gemm.Gemm, *_: object) -> Plan:
        return Plan(problem, H200, "torch", (), estimates=(("torch", 1e-6),))

    monkeypatch.setattr(prepared, "planned", by_torch)
    monkeypatch.setattr(cublas, "offered", lambda: "fp32")
    a, b, bias = torch.randn(4, 48), torch.randn(48, 48), torch.randn(48)
    a = a.view(2, 2, 48) if batched else a
    calls: list[tuple[Callable[[], torch.Tensor], torch.Tensor]] = [
        (lambda: mm32.matmul(a, b), a @ b),
        (lambda: mm32.linear(a, b), a @ b.T),
        (lambda: mm32.linear(a, b, bias, activation="relu"), torch.relu(a @ b.T + bias)),
    ]
    for call, wanted in calls:
        slow_paths.clear()
        for taken_over in (False, False, True):  # whether mm32.enable has taken over torch's products
            monkeypatch.setattr(cublas, "taken_over", taken_over)
            result = call()
            assert result.shape == wanted.shape
            torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)
        assert len(slow_paths) == 1
    (seen,) = prepared.CACHE.seen[(a.shape, b.shape, True, True, None, "fp32", "auto", False, "fp32")]
    assert seen.product is not None
    vector = a.flatten()[:48]
    for _ in range(3):  # torch.matmul would use another kernel for a vector
        torch.testing.assert_close(mm32.matmul(vector, b), vector @ b, rtol=1e-4, atol=1e-4)
    (seen,) = prepared.CACHE.seen[(vector.shape, b.shape, True, True, None, "fp32", "auto", False, "fp32")]
    assert seen.product is None
    monkeypatch.setattr(cublas, "offered", lambda: None)  # as if torch had been allowed TF32 since
    slow_paths.clear()
    for _ in range(3):
        mm32.matmul(a, b)
    assert len(slow_paths) == 1
    assert card.launched == []


@pytest.mark.parametrize("guards", ["none", "of another signature", "that pass all"])
def test_a_torch_without_such_guards_takes_the_slow_path(
    guards: str, card: driver_stub.Driver, slow_paths: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other:
        def __init__(self, *tensors: torch.Tensor, **how: object) -> None:
            if guards == "of another signature":
                raise TypeError("unexpected keyword argument")

        def check(self, *tensors: torch.Tensor) -> bool:
            return True

    assert dispatch._guards() is not None
    monkeypatch.setattr(dispatch._compiled, "TensorGuards", None if guards == "none" else Other)
    assert dispatch._guards() is None
    monkeypatch.setattr(dispatch, "_Guards", None)
    for number in range(1, 4):
        mm32.matmul(*operands(), kernel="tiled")
        assert len(slow_paths) == number == len(card.launched)


def test_where_cuda_does_not_work_the_slow_path_says_so(
    card: driver_stub.Driver, slow_paths: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA does not work in a process that was forked from one that used it, for example."""
    a, b = operands()
    mm32.matmul(a, b, kernel="tiled")
    slow_paths.clear()

    def broken() -> int:
        raise RuntimeError("CUDA error: initialization error")

    monkeypatch.setattr(launch, "current_device", broken)
    with pytest.raises(RuntimeError, match="initialization error"):
        mm32.matmul(a, b, kernel="tiled")
    assert len(slow_paths) == 1
    monkeypatch.setattr(launch, "current_device", lambda: 5)  # another card is current
    monkeypatch.setattr(torch.cuda, "device", _as_current)
    card.launched.clear()
    mm32.matmul(a, b, kernel="tiled")
    assert len(slow_paths) == 2
    assert len(card.launched) == 1


@contextlib.contextmanager
def _as_current(index: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "current_device", lambda: index)
        yield


def test_a_fast_path_goes_with_its_entry(card: driver_stub.Driver, slow_paths: list) -> None:
    a, b = operands()
    for _ in range(2):
        mm32.matmul(a, b, kernel="simt")
    assert len(slow_paths) == 1
    prepared.CACHE.clear()
    mm32.matmul(a, b, kernel="simt")
    assert len(slow_paths) == 2


def test_addresses_that_are_not_aligned_take_the_slow_path(card: driver_stub.Driver, slow_paths: list) -> None:
    """They do so even with the shapes and strides of an earlier call whose addresses were aligned: its kernel loads 16 bytes at
    once."""
    (a, b), bias = operands(), torch.randn(32)
    for _ in range(2):
        mm32.matmul(a, b, bias=bias, kernel="simt")
    assert len(slow_paths) == 1

    def shifted(t: torch.Tensor) -> torch.Tensor:
        return torch.randn(t.numel() + 1)[1:].view(t.shape)

    for given in ((shifted(a), b, bias), (a, shifted(b), bias), (a, b, shifted(bias))):
        slow_paths.clear()
        mm32.matmul(*given[:2], bias=given[2], kernel="simt")
        assert len(slow_paths) == 1
    slow_paths.clear()
    mm32.matmul(a, b, bias=bias, kernel="simt")
    assert slow_paths == []


def test_what_is_forgotten_while_a_call_runs_has_no_fast_path(
    card: driver_stub.Driver, slow_paths: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mm32.set_workspace_limit in another thread does this, for example: the plan was made with the old limit."""
    a, b = operands()
    learn = fast_path.learn

    def cleared(*known: Any) -> None:
        prepared.CACHE.clear()
        learn(*known)

    with monkeypatch.context() as patch:
        patch.setattr(fast_path, "learn", cleared)
        mm32.matmul(a, b, kernel="simt")
    assert not any(prepared.CACHE.seen.values())
    slow_paths.clear()
    mm32.matmul(a, b, kernel="simt")
    assert len(slow_paths) == 1


def test_fast_paths_of_one_form_are_few(card: driver_stub.Driver, slow_paths: list) -> None:
    """They are tried in turn, so with more of them calls would take longer than on the slow path."""
    _, b = operands()
    for number in range(fast_path.MAX_STATES + 3):
        mm32.matmul(torch.randn(64, 96 + 4 * number)[:, :96], b, kernel="simt")
    assert [len(states) for states in prepared.CACHE.seen.values()] == [fast_path.MAX_STATES]


def test_a_plan_that_is_dropped_takes_its_fast_path_along(
    card: driver_stub.Driver, slow_paths: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = operands()
    mm32.matmul(a, b, kernel="simt")
    monkeypatch.setattr(prepared.CACHE, "most", len(prepared.CACHE))
    mm32.matmul(*operands(32, 64, 16), kernel="simt")
    assert not any(form[0] == a.shape for form in prepared.CACHE.seen)


def test_in_a_forked_process_torch_says_so(card: driver_stub.Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaunchError, match=r"^loading: "):
        launch._check(3, "loading")
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess") as raised:
        launch._check(3, "loading")
    assert not isinstance(raised.value, LaunchError)


def test_no_memory_for_a_workspace_on_the_fast_path(card: driver_stub.Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(64, 8192, 64)
    mm32.matmul(a, b, kernel="simt")
    assert card.launched[-1].entry == "mm32_reduce"

    def short(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory, as this test has it")

    monkeypatch.setattr(launch, "_empty", short)
    with pytest.warns(UserWarning, match="no memory for .* bytes of workspace"):
        mm32.matmul(a, b, kernel="simt")
    assert card.launched[-1].entry == "mm32_simt"


def test_how_much_python_the_fast_path_is(card: driver_stub.Driver) -> None:
    """The number of functions called, in Python and C, is bounded: on any machine the host's time follows from it."""
    a, b = operands()
    weight = torch.randn(32, 96)
    assert calls_made(lambda: mm32.matmul(a, b, kernel="tiled")) <= 40
    assert calls_made(lambda: mm32.linear(a, weight, kernel="tiled")) <= 40


def test_a_packed_call_does_hardly_more_than_a_plain_one(card: driver_stub.Driver) -> None:
    """In addition it only checks whether the source is still what was packed, and which precision torch was asked for."""
    a, b, bias = *operands(40, 300, 30), torch.randn(30)
    packed_b, plain, frozen = mm32.pack(b), mm32.nn.Linear(300, 30).eval(), mm32.nn.Linear(300, 30).eval()
    mm32.freeze(frozen)
    with torch.no_grad():
        frozen(a)
        assert frozen._kept is not None
        assert frozen._kept.packed.nbytes > 0

        def product(second: Any) -> Callable[[], object]:
            return lambda: mm32.matmul(a, second, kernel="auto")

        assert calls_made(product(packed_b)) <= calls_made(lambda: mm32.matmul(a, b, kernel="tensorcore")) + 8
        linear = calls_made(lambda: mm32.linear(a, b.T, bias, kernel="tensorcore"))
        assert calls_made(lambda: mm32.linear(a, packed_b, bias)) <= linear + 8
        # A frozen layer also checks its weight's state, its stream, transforms and captures.
        assert calls_made(lambda: frozen(a)) <= calls_made(lambda: plain(a)) + 36


def test_a_first_call_imports_nothing() -> None:
    """Once mm32 is imported, a call imports neither sympy, which torch._check would import, nor the compiler if nothing has to be
    compiled."""
    program = """
        import sys
        import pytest, torch
        import mm32
        from mm32 import dispatch, ops
        from support import driver_stub

        driver_stub.install(pytest.MonkeyPatch())
        dispatch.learn("cpu", ops.run_cuda)
        before = set(sys.modules)
        mm32.matmul(torch.ones(512, 4096), torch.ones(4096, 512), kernel="tensorcore")
        mm32.linear(torch.ones(8, 64), torch.ones(16, 64, requires_grad=True), activation="relu", kernel="simt").sum().backward()
        print(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] not in ("mm32", "torch")))
    """
    path = os.pathsep.join(str(Path(__file__).parents[n] / folder) for n, folder in ((0, ""), (1, "src")))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.stdout.strip() == "[]", done.stderr
