"""Exported files: what they say and what they refuse. test_export_cuda.py tests their C++, test_export_host.py what they launch,
and test_export_gpu.py what that computes on a card."""

from __future__ import annotations

import ast
import gc
import importlib.util
import inspect
import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mm32 import gemm
from mm32 import plan as planning
from mm32.export import export, export_script, write
from mm32.plan import KERNELS
from support.export import cuda_source, forms, inputs, loader, plan_of

ROOT = Path(__file__).parent.parent


@pytest.fixture
def load(tmp_path, monkeypatch) -> Callable[[str], ModuleType]:
    return loader(tmp_path, tmp_path / "builds", monkeypatch)


@pytest.fixture
def no_build(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing should be built here")

    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", refuse)


# ---------------------------------------------------------------------------------------------------------------------
# What a file says.


def test_python_side_needs_only_torch():
    for kernel, linear in itertools.product(KERNELS, (False, True)):
        tree = ast.parse(export("nt", m=96, n=80, k=64, bias=True, activation="relu", kernel=kernel, linear=linear))
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                names.add(node.module.split(".")[0])
        assert names <= {"contextlib", "ctypes", "functools", "os", "sys", "torch"}


def test_licence_is_named_first():
    text = export("tt", m=96, n=80, k=64, kernel="naive")
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert cuda_source(text).startswith("\n// SPDX-License-Identifier: Apache-2.0\n")


def test_docstring_tells_the_plan_and_the_command():
    asked = gemm.from_layout("tn", 96, 80, 64, activation="gelu")
    plan = planning.plan(asked, planning.H200, "simt")
    text = export_script(plan, "tn")
    said = " ".join(ast.get_docstring(ast.parse(text)).split())
    for line in plan.explain().splitlines():
        assert " ".join(line.split()) in said
    assert said.startswith("gelu(A.T @ B) in float32")
    assert "mm32 export 96x64x80:tn --kernel simt --activation gelu" in said
    assert "M and N in multiples of 4" in said
    assert "by one CUDA kernel" in said
    for form in forms():
        assert not re.search(r"@[A-Z_]+@", export_script(plan_of(*form), form[1]))


def test_docstring_of_a_file_with_a_workspace():
    said = " ".join(ast.get_docstring(ast.parse(export("tt", m=2048, n=4096, k=8192, precision="tf32"))).split())
    assert said.startswith("A.T @ B.T in float32, with TF32's accuracy, by 4 CUDA kernels")
    assert "Sizes M=2048 N=4096 K=8192, no other" in said
    assert "a card of compute capability 9.0;" in said
    assert "mm32 export 2048x8192x4096:tt --kernel tensorcore --precision tf32" in said


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
def test_text_is_formatted(tmp_path):
    asked = [(layout, kernel, False) for layout in gemm.LAYOUTS for kernel in KERNELS] + [("nt", "simt", True)]
    for number, (layout, kernel, linear) in enumerate([*asked, ("nt", "tensorcore", True)]):
        for size in (96, 97):
            options = {"bias": number % 2 == 0, "activation": "leaky_relu" if number % 3 == 0 else None}
            text = export(layout, m=size, n=size, k=size, kernel=kernel, linear=linear, **options)
            python = text.replace(cuda_source(text), "")  # the C++ has lines as long as the kernels'
            (tmp_path / f"f{number}_{size}.py").write_text(python)
    config = ("--no-cache", "--config", str(ROOT / "pyproject.toml"))
    for command in (("check",), ("format", "--diff")):
        ruff = [sys.executable, "-m", "ruff", *command, *config, str(tmp_path)]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_same_request_same_file_other_request_other_name():
    text = export("tt", m=96, n=80, k=64, kernel="naive")
    assert export("tt", m=96, n=80, k=64, kernel="naive") == text
    others = [export("tt", m=96, n=80, k=68, kernel="naive"), export("tn", m=96, n=80, k=64, kernel="naive")]
    names = {re.search(r'^NAME = "(mm32_export_[0-9a-f]{12})"', t, flags=re.M)[1] for t in (text, *others)}
    assert len(names) == 3


def test_card_that_a_kernel_needs():
    text = export("tt", m=96, n=80, k=64, kernel="simt")
    assert "if capability < (8, 0):" in text
    assert "a card of compute capability 8.0 or later;" in ast.get_docstring(ast.parse(text))
    text = export("tt", m=96, n=80, k=64, kernel="tensorcore")
    assert "if capability != (9, 0):" in text
    assert "a card of compute capability 9.0;" in ast.get_docstring(ast.parse(text))
    text = export("tt", m=96, n=80, k=640, kernel="mma")
    assert "if capability < (8, 0):" in text
    assert "DEPENDENT = BUILT_FOR[0] >= 900;" in text, "launches cannot overlap on all of these cards"
    assert "a card of compute capability 8.0 or later;" in ast.get_docstring(ast.parse(text))


# ---------------------------------------------------------------------------------------------------------------------
# What is refused.


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match="unknown layout 'tx': mm32 has nn, nt, tn, tt"):
        export("tx", m=8, n=8, k=8)
    with pytest.raises(ValueError, match="unknown kernel 'fast': mm32 has 'auto', 'naive', 'dot', 'tiled', 'simt'"):
        export("tt", m=8, n=8, k=8, kernel="fast")
    with pytest.raises(ValueError, match="unknown activation 'swish': mm32 fuses None, 'relu', 'leaky_relu'"):
        export("tt", m=8, n=8, k=8, activation="swish")
    with pytest.raises(ValueError, match=r"a linear layer has layout 'nt'.* not 'tt'"):
        export("tt", m=8, n=8, k=8, linear=True)


def test_plan_must_be_the_layouts():
    plan = planning.plan(gemm.from_layout("tt", 96, 80, 64), planning.H200, "naive")
    with pytest.raises(ValueError, match="contiguous operands in a named layout; these are not 'nn'"):
        export_script(plan, "nn")


@pytest.mark.parametrize("kernel", ["auto", "naive", "tensorcore"])
@pytest.mark.parametrize("sizes", [(0, 80, 64), (96, 0, 64), (96, 80, 0), (0, 0, 0)])
def test_a_product_of_nothing_is_refused(sizes, kernel):
    m, n, k = sizes
    with pytest.raises(ValueError, match=rf"M, N and K of 1 or more; with M={m} N={n} K={k} nothing is multiplied"):
        export("tt", m=m, n=n, k=k, kernel=kernel)


def test_plans_that_no_file_can_hold_are_refused():
    asked = gemm.from_layout("tt", 2048, 4096, 8192)
    with pytest.raises(ValueError, match="this plan is for operands that were packed beforehand"):
        export_script(planning.plan(asked, planning.H200, prepacked=(False, True)), "tt")
    with pytest.raises(ValueError, match="one of kernel 'torch' has none"):
        export_script(planning.Plan(asked, planning.H200, "torch", ()), "tt")


def test_a_file_is_overwritten_only_with_force(tmp_path):
    path = tmp_path / "model_new.py"
    write(path, "first")
    with pytest.raises(FileExistsError):
        write(path, "second")
    assert path.read_text() == "first"
    write(path, "second", force=True)
    assert path.read_text() == "second"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([(64, 96), (80, 63), (80,)], r"A \(K, M\) and B \(N, K\) must have the same K; got A \(64, 96\), K=64, and B"),
        ([(64,), (80, 64), (80,)], r"A must be a float32 tensor of shape \(K, M\); got torch.float32 of shape \(64,\)"),
        ([(64, 96), (1, 80, 64), (80,)], r"B must be a float32 tensor of shape \(N, K\); got torch.float32 of shape \(1, 80"),
        ([(64, 96), (80, 64), (81,)], r"bias must have shape \(N,\) = \(80,\).*got \(81,\)"),
        ([(64, 96), (80, 64), (1, 80)], r"bias must be a float32 tensor of shape \(N,\); got torch.float32 of shape \(1, 80\)"),
        ([(64, 97), (80, 64), (80,)], r"take M in multiples of 4; got M=97.*mm32 export 97x64x80:tt --kernel simt --bias"),
        ([(64, 96), (81, 64), (81,)], r"take N in multiples of 4; got N=81"),
    ],
)  # fmt: skip
def test_shapes_are_refused_before_anything_is_built(load, no_build, tensors, message):
    model = load(export("tt", m=96, n=80, k=64, bias=True, kernel="simt")).ModelNew()
    with pytest.raises(RuntimeError, match=message):
        model(*(torch.zeros(shape) for shape in tensors))


@pytest.mark.parametrize("sizes", [(96, 80, 68), (97, 80, 64), (96, 84, 64), (0, 80, 64), (192, 160, 128)])
def test_a_file_with_a_workspace_takes_its_own_sizes_only(load, no_build, sizes):
    module = load(export("tn", m=96, n=80, k=64, activation="relu", kernel="tensorcore"))
    module.M, module.N, module.K = sizes  # changes what get_inputs() makes, not what the launches are for
    with pytest.raises(RuntimeError) as raised:
        module.ModelNew()(*module.get_inputs())
    m, n, k = sizes
    for words in ("for M=96 N=80 K=64", f"got M={m} N={n} K={k}"):
        assert words in str(raised.value)
    assert str(raised.value).endswith(f": mm32 export {m}x{k}x{n}:tn --activation relu")


def test_dtype_and_device_are_refused(load, no_build):
    model = load(export("nn", m=8, n=8, k=8, kernel="naive")).ModelNew()
    with pytest.raises(RuntimeError, match=r"B must be a float32 tensor of shape \(K, N\); got torch.float64"):
        model(torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="all tensors must be on one device; A is on cpu and B on meta"):
        model(torch.zeros(8, 8), torch.zeros(8, 8, device="meta"))


def test_without_a_card_it_says_so(load, no_build, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = load(export("nn", m=8, n=8, k=8, kernel="naive")).ModelNew()
    with pytest.raises(RuntimeError, match="ModelNew needs a CUDA device"):
        model(torch.zeros(8, 8), torch.zeros(8, 8))


def test_old_card_is_refused_before_the_build(load, no_build):
    module = load(export("nn", m=8, n=8, k=8, kernel="naive"))
    with pytest.raises(RuntimeError, match=r"needs a card of compute capability 8\.0 or later; this one's is 7\.5"):
        module._library((7, 5))
    module = load(export("nn", m=8, n=8, k=8, kernel="tensorcore"))
    for capability in ((8, 9), (10, 0)):
        with pytest.raises(RuntimeError, match=r"needs a card of compute capability 9\.0; this one's is"):
            module._library(capability)


def test_build_is_for_the_card_and_leaves_the_environment(load, monkeypatch):
    import os

    seen = {}

    def stand_in(**arguments):
        seen.update(arguments, arch=os.environ["TORCH_CUDA_ARCH_LIST"])
        raise RuntimeError("Error building extension: nvcc says no")

    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", stand_in)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.0;8.0")
    path = os.environ.get("PATH")
    module = load(export("nn", m=8, n=8, k=8, kernel="naive"))
    for capability, arch in (((8, 6), "8.6"), ((9, 0), "9.0a"), ((12, 0), "12.0a")):
        with pytest.raises(RuntimeError, match="nvcc says no"):
            module._library(capability)
        assert seen["arch"] == arch
        assert (os.environ["TORCH_CUDA_ARCH_LIST"], os.environ.get("PATH")) == ("7.0;8.0", path)
    assert seen["no_implicit_headers"] is True
    assert seen["is_python_module"] is False
    assert seen["extra_cuda_cflags"] == ["-std=c++17"]
    from torch.utils import cpp_extension

    monkeypatch.undo()
    assert {"no_implicit_headers", "is_python_module"} <= set(inspect.signature(cpp_extension.load_inline).parameters)


def test_traces_as_one_graph(load, no_build):
    """On meta tensors, the operator's fake implementation gives the shape, and nothing is built. Several files can be loaded at
    once."""
    asked = [("tt", "simt"), ("nn", "simt"), ("tt", "simt"), ("nt", "tensorcore")]
    modules = [load(export(layout, m=24, n=40, k=16, kernel=kernel)) for layout, kernel in asked]
    for module, (layout, _) in zip(modules, asked, strict=True):
        compiled = torch.compile(module.ModelNew(), fullgraph=True, backend="eager")
        result = compiled(*inputs(layout, 24, 40, 16, device="meta"))
        assert (result.shape, result.device.type) == ((24, 40), "meta")


def test_loaded_again_the_operator_is_the_same(load, no_build):
    """torch destroys an operator that is defined again, so a caller that still holds the first would call into freed memory."""
    text = export("tn", m=24, n=40, k=16, kernel="tiled")
    first, second = load(text), load(text)
    assert first._product is second._product
    for module in (first, second):
        assert module.product(*inputs("tn", 24, 40, 16, device="meta")).shape == (24, 40)
    del first, module
    gc.collect()
    assert second.product(*inputs("tn", 24, 40, 16, device="meta")).shape == (24, 40)
    third = load(text)
    assert third._product is second._product
    assert third._product._abstract_fn is third._shape, "the code is not that of the last time"
