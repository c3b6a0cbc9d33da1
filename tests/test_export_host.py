"""The Python side of exported files, without a card: what it passes to a stand-in for the built library, and what the built
library asks a stand-in for CUDA to launch."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from mm32 import gemm
from mm32.cuda import launch
from mm32.export import export as export_for
from mm32.export import export_script
from mm32.plan import H200
from support.export import (
    CARVEOUT,
    FORMS,
    SHARED_BYTES,
    Recorder,
    inputs,
    loader,
    matrices,
    once_for_each_launch,
    plan_of,
    two_forms,
)

ROOT = Path(__file__).parent.parent


# The card is given, since a fixture pretends that there is a card, of which nothing else is known.
export = partial(export_for, device=H200)


@pytest.fixture
def load(tmp_path, monkeypatch) -> Callable[[str], ModuleType]:
    return loader(tmp_path, tmp_path / "builds", monkeypatch)


# ---------------------------------------------------------------------------------------------------------------------
# What the Python side passes to the kernel, without a card: a stand-in for the built library computes from the pointers.


STREAM = 4711


def stand_in_library(calls: list):
    def array(pointer, rows, columns, row, column):
        size = 1 + max(rows - 1, 0) * row + max(columns - 1, 0) * column
        flat = np.ctypeslib.as_array((ctypes.c_float * size).from_address(pointer))
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4 * row, 4 * column))

    def mm32_launch(m, n, k, a, a_row, a_col, b, b_row, b_col, c, bias, bias_stride, *workspace_and_stream):
        calls.append({"a": a, "b": b, "a_strides": (a_row, a_col), "b_strides": (b_row, b_col)})
        C = array(c, m, n, n, 1)
        C[:] = array(a, m, k, a_row, a_col) @ array(b, k, n, b_row, b_col) if k else 0
        C += array(bias, 1, n, 0, bias_stride) if bias is not None else 0

    return lambda index: SimpleNamespace(mm32_launch=mm32_launch)


@pytest.fixture
def on_cpu(monkeypatch):
    """A function that lets an exported module's operator run on CPU tensors, and returns the list of its calls."""
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: SimpleNamespace(cuda_stream=STREAM))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a card")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    calls: list = []

    def prepare(module: ModuleType) -> list:
        monkeypatch.setattr(module, "_ready", stand_in_library(calls))
        module._product.register_kernel("cpu")(module._compute)
        return calls

    return prepare


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", gemm.LAYOUTS)
@pytest.mark.parametrize("kernel", ["naive", "simt"])
def test_pointers_sizes_and_strides(load, on_cpu, layout, bias, kernel):
    module = load(export(layout, m=12, n=8, k=16, bias=bias, kernel=kernel))
    calls = on_cpu(module)
    model = module.ModelNew()
    for m, n, k in ((12, 8, 16), (4, 20, 8), (4, 4, 4), (4, 8, 0), (0, 8, 4), (4, 0, 4)):
        tensors = inputs(layout, m, n, k, bias)
        a, b = matrices(layout, *tensors[:2])
        expected = a @ b + (tensors[2] if bias else 0)
        calls.clear()
        result = model(*tensors)
        assert result.shape == (m, n)
        assert result.is_contiguous()
        torch.testing.assert_close(result, expected)
        assert len(calls) == (0 if m * n == 0 else 1)
        if calls and k:
            assert (calls[0]["a"], calls[0]["b"]) == (tensors[0].data_ptr(), tensors[1].data_ptr())


def test_views_are_read_where_they_lie(load, on_cpu):
    module = load(export("tt", m=12, n=8, k=16, kernel="naive"))
    calls = on_cpu(module)
    # A has rows 26 apart that are not aligned to 16 bytes; B is stored the other way round.
    A, B = (torch.randn(16, 2, 13)[:, 1, 1:], torch.randn(16, 8).T)
    torch.testing.assert_close(module.ModelNew()(A, B), A.T @ B.T)
    assert calls == [{"a": A.data_ptr(), "b": B.data_ptr(), "a_strides": (1, 26), "b_strides": (8, 1)}]


def test_operands_read_by_16_bytes_are_copied_only_where_they_must(load, on_cpu):
    module = load(export("tn", m=12, n=8, k=16, kernel="simt"))  # loads both operands by 16 bytes
    calls = on_cpu(module)
    B = torch.randn(16, 8)
    buffer = torch.randn(16 * 40 + 4)
    for A, copied in (
        (torch.randn(16, 12), False),
        (torch.randn(16, 40)[:, 8:20], False),  # rows 40 apart
        (torch.randn(16, 41)[:, 4:16], True),  # rows 41 apart
        (torch.randn(12, 16).T, True),  # not contiguous along M
        (buffer[1 : 1 + 16 * 12].view(16, 12), True),  # not aligned to 16 bytes
        (buffer[4 : 4 + 16 * 12].view(16, 12), False),
    ):
        calls.clear()
        torch.testing.assert_close(module.ModelNew()(A, B), A.T @ B)
        assert (calls[0]["a"] != A.data_ptr()) == copied
        row, column = calls[0]["a_strides"]
        assert (row, column % 4) == (1, 0)
        assert calls[0]["b"] == B.data_ptr()


def test_operands_packed_by_16_bytes_are_copied_only_where_they_must(load, on_cpu):
    """K must be contiguous for A in layout n and for B in layout t."""
    module = load(export("nt", m=12, n=8, k=16, kernel="tensorcore"))
    calls = on_cpu(module)
    B = torch.randn(8, 16)
    for A, copied in (
        (torch.randn(12, 16), False),
        (torch.randn(12, 40)[:, 8:24], False),
        (torch.randn(12, 41)[:, 4:20], True),
        (torch.randn(16, 12).T, True),
        (torch.randn(12, 20)[:, 1:17], True),
    ):
        calls.clear()
        torch.testing.assert_close(module.ModelNew()(A, B), A @ B.T)
        assert (calls[0]["a"] != A.data_ptr()) == copied
        row, column = calls[0]["a_strides"]
        assert (row % 4, column) == (0, 1)
        assert calls[0]["b"] == B.data_ptr()


@pytest.mark.parametrize("kernel", ["tensorcore", "mma"])
def test_lines_that_are_not_aligned_are_copied_only_where_they_are_not_contiguous(load, on_cpu, kernel):
    module = load(export("nt", m=13, n=9, k=15, kernel=kernel))
    assert (
        "A slice is read where it lies; of an operand whose rows are not contiguous a copy is made first."
        in module.__doc__
    )
    calls = on_cpu(module)
    B = torch.randn(9, 15)
    for A, copied in (
        (torch.randn(13, 15), False),
        (torch.randn(13, 41)[:, 3:18], False),
        (torch.randn(15, 13).T, True),
        (torch.randn(13, 30)[:, ::2], True),
    ):
        calls.clear()
        torch.testing.assert_close(module.ModelNew()(A, B), A @ B.T)
        assert (calls[0]["a"] != A.data_ptr()) == copied
        assert calls[0]["a_strides"][1] == 1
        assert calls[0]["b"] == B.data_ptr()


def test_single_rows_of_any_length(load, on_cpu):
    """A plan for K = 1 or M = 1 may use 16-byte accesses at sizes that are not multiples of 4, since there is no second row that
    could be misaligned. The sizes that a file was exported for are always taken."""
    for layout, (m, n, k) in itertools.product(gemm.LAYOUTS, ((1, 5, 7), (5, 7, 1), (1, 1, 1), (3, 1, 5))):
        module = load(export(layout, m=m, n=n, k=k, kernel="simt"))
        calls = on_cpu(module)
        tensors = inputs(layout, m, n, k)
        a, b = matrices(layout, *tensors)
        torch.testing.assert_close(module.ModelNew()(*tensors), a @ b)
        tensors = inputs(layout, 4, 8, 12)  # several rows where the plan had one
        a, b = matrices(layout, *tensors)
        torch.testing.assert_close(module.ModelNew()(*tensors), a @ b)
        if "#define MM32_A_LOAD 0" in module.CUDA_SOURCE:
            assert (calls[-1]["a_strides"][0], calls[-1]["a_strides"][1] % 4) == (1, 0)
        if "#define MM32_B_LOAD 0" in module.CUDA_SOURCE:
            assert (calls[-1]["b_strides"][0] % 4, calls[-1]["b_strides"][1]) == (0, 1)
        module = load(export(layout, m=m, n=n, k=k, kernel="tensorcore"))
        on_cpu(module)
        tensors = inputs(layout, m, n, k)
        a, b = matrices(layout, *tensors)
        torch.testing.assert_close(module.ModelNew()(*tensors), a @ b)


def test_failed_launch_raises_with_cudas_words(load, on_cpu, monkeypatch):
    module = load(export("nn", m=12, n=8, k=16, kernel="simt"))
    on_cpu(module)
    failing = SimpleNamespace(mm32_launch=lambda *_: b"launching mm32_simt: invalid argument")
    monkeypatch.setattr(module, "_ready", lambda _: failing)
    with pytest.raises(RuntimeError, match="M=12 N=8 K=16 on a card: launching mm32_simt: invalid argument"):
        module.ModelNew()(*inputs("nn", 12, 8, 16))


def test_gradients_are_refused(load, on_cpu):
    module = load(export("nn", m=12, n=8, k=16, kernel="naive"))
    on_cpu(module)
    A, B = inputs("nn", 12, 8, 16, requires_grad=True)
    with pytest.raises(Exception, match="no autograd formula was registered"):
        module.ModelNew()(A, B).sum().backward()


def test_linear_has_the_references_parameters(load, on_cpu):
    spec = importlib.util.spec_from_file_location("linear_relu", ROOT / "examples" / "linear_relu.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    module = load(export("nt", m=12, n=8, k=16, bias=True, kernel="naive", linear=True))
    on_cpu(module)
    assert module.get_init_inputs() == [16, 8]
    torch.manual_seed(0)
    wanted = reference.Model(*module.get_init_inputs())
    torch.manual_seed(0)
    model = module.ModelNew(*module.get_init_inputs())
    assert model.state_dict().keys() == wanted.state_dict().keys()
    assert all(torch.equal(value, wanted.state_dict()[name]) for name, value in model.state_dict().items())
    (x,) = module.get_inputs()
    assert x.shape == (12, 16)
    torch.testing.assert_close(model(x), x @ wanted.weight.T + wanted.bias)


@pytest.mark.parametrize("layout", gemm.LAYOUTS)
def test_inputs_are_the_references(load, layout):
    module = load(export(layout, m=12, n=8, k=16, bias=True, kernel="naive"))
    A, B, bias = module.get_inputs()
    a, b = matrices(layout, A, B)
    assert (a.shape, b.shape, bias.shape) == ((12, 16), (16, 8), (8,))
    assert (A.dtype, A.is_contiguous(), B.is_contiguous()) == (torch.float32, True, True)
    assert module.get_init_inputs() == []


# ---------------------------------------------------------------------------------------------------------------------
# A file compiles, the host's side included, and launches what it should.


def sizes_of(plan) -> dict[str, int]:
    """Return the bytes of each kernel's argument."""
    return {s.entry: ctypes.sizeof(launch._Params if s.takes_workspace else launch._Problem) for s in plan.launches}


@pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is not on the PATH: exported files are not compiled here"
)
@pytest.mark.parametrize(("kernel", "layout", "sizes", "options"), list(once_for_each_launch()))
def test_compiles_and_launches_what_the_library_launches(
    load, on_cpu, tmp_path, monkeypatch, request, kernel, layout, sizes, options
):
    """A runtime that reports launches shows the same kernels, grids, attributes and bytes of every argument. Kernels for tensor
    cores, whose machine code takes seconds, are assembled only by make test-all and by the two tests below."""
    plan = plan_of(kernel, layout, sizes, options)
    assemble = request.config.getoption("all") or kernel not in ("tensorcore", "mma")
    recorder = Recorder(tmp_path, sizes_of(plan), assemble=assemble)
    module = load(export_script(plan, layout))
    ready = module._ready
    on_cpu(module)
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", recorder.load_inline)
    seen = []

    def watched(index):
        return SimpleNamespace(mm32_launch=lambda *given: seen.append(given) or ready(index).mm32_launch(*given))

    monkeypatch.setattr(module, "_ready", watched)
    tensors = inputs(layout, *sizes, bias=options.get("bias", False))
    C = module.ModelNew()(*tensors)
    C = module.ModelNew()(*tensors)
    assert C.shape == sizes[:2]

    attributes = []
    for step in plan.launches:
        attributes.append((step.entry, SHARED_BYTES, step.shared))
        attributes.append((step.entry, CARVEOUT, 100 if step.takes_workspace else -1))
    assert recorder.attributes == attributes  # set once, not at every call
    expected = []
    for given in seen:
        problem = launch._Problem.from_buffer_copy(launch._template(plan.gemm))
        problem.a.data, problem.b.data = (t.data_ptr() for t in tensors[:2])
        problem.c.data = given[9]
        problem.bias = tensors[2].data_ptr() if plan.gemm.bias is not None else None
        workspace = given[-2]
        for step in plan.launches:
            space = plan.workspace_of(step)
            made = problem if space is None else launch._params(problem, space, *(workspace,) * 3)
            grid = step.grid(plan.gemm)
            expected.append((step.entry, grid, step.block, step.shared, step.dependent, STREAM, bytes(made)))
    assert recorder.launches == expected
    assert seen[-1][9] == C.data_ptr()


@pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is not on the PATH: exported files are not compiled here"
)
@pytest.mark.slow
def test_compiles_a_source_in_two_forms(load, on_cpu, tmp_path, monkeypatch):
    plan = two_forms()
    recorder = Recorder(tmp_path, sizes_of(plan))
    module = load(export_script(plan, "nn"))
    ready = module._ready
    on_cpu(module)
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", recorder.load_inline)
    monkeypatch.setattr(module, "_ready", ready)
    module.ModelNew()(*inputs("nn", 256, 2048, 8192))
    assert recorder.kernels == [
        "pack_products_3::mm32_scale",
        "pack_products_3::mm32_pack",
        "tensorcore_products_3::mm32_tensorcore",
        "reduce_guarded_0::mm32_reduce",
        "pack_products_6::mm32_pack",
        "tensorcore_products_6::mm32_tensorcore",
        "reduce_guarded_1::mm32_reduce",
        "fallback::mm32_fallback",
    ]
    given = [launch._Params.from_buffer_copy(argument) for *_, argument in recorder.launches]
    apart = [params.panels[1] - params.panels[0] for params in given]
    space = [plan.workspace.lower if step.lower else plan.workspace for step in plan.launches]
    assert apart == [of_launch.panels[1] - of_launch.panels[0] for of_launch in space]
    assert [params.parts for params in given] == [of_launch.parts for of_launch in space]
    assert [params.first_rows[0] for params in given] == [of_launch.first_rows[0] for of_launch in space]


@pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is not on the PATH: exported files are not compiled here"
)
def test_launches_overlap_only_on_cards_that_can(load, on_cpu, tmp_path, monkeypatch):
    """A file that was planned for Hopper also runs on Ampere, without programmatic launches."""
    sizes = (130, 200, 321)
    plan = plan_of("mma", "nn", sizes, {})
    assert [step.entry for step in plan.launches if step.dependent] == ["mm32_pack", "mm32_fallback"]
    recorder = Recorder(tmp_path, dict.fromkeys((step.entry for step in plan.launches), 1), arch="8.0")
    module = load(export_script(plan, "nn"))
    ready = module._ready
    on_cpu(module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", recorder.load_inline)
    monkeypatch.setattr(module, "_ready", ready)
    module.ModelNew()(*inputs("nn", *sizes))
    assert [(entry, dependent) for entry, _, _, _, dependent, _, _ in recorder.launches] == [
        (step.entry, False) for step in plan.launches
    ]


def test_the_forms_have_every_launch():
    """The tests above compile everything that plans launch: simt's tiles, stream-K and narrow form, tensor cores with packed
    operands and with inline packing, with split-K and without."""
    plans = [plan_of(*form.values) for form in FORMS]
    launched = {(plan.kernel, step.entry) for plan in plans for step in plan.launches}
    beside = ("mm32_scale", "mm32_pack", "mm32_reduce", "mm32_fallback")
    assert {(kernel, entry) for kernel in ("mma", "tensorcore") for entry in (*beside, f"mm32_{kernel}")} <= launched
    assert {("simt", entry) for entry in ("mm32_simt", "mm32_fixup", "mm32_narrow", "mm32_reduce")} <= launched
    multiplies = [dict(s.constants) for plan in plans for s in plan.launches if s.entry == "mm32_tensorcore"]
    assert {(c["INLINE_PACK"], c["SPLIT_K"]) for c in multiplies} == {(d, s) for d in (0, 1) for s in (0, 1)}
    assert {(c["INLINE_PACK"], c["PRODUCTS"]) for c in multiplies} == {(d, p) for d in (0, 1) for p in (1, 3)} | {
        (0, 6)
    }
    assert {c[side] for c in multiplies if c["INLINE_PACK"] for side in ("A_LOAD", "B_LOAD")} == {0, 1, 2, 3}
