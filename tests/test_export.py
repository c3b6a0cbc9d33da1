"""Exported files: what they say and what they refuse. What they launch is in test_export_host.py, what that computes on a card in
test_export_gpu.py."""

from __future__ import annotations

import ast
import gc
import importlib.util
import inspect
import itertools
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from export_support import FORMS, cuda_source, forms, inputs, loader, plan_of
from mm32 import gemm
from mm32 import plan as planning
from mm32.cuda import compile as compiler
from mm32.export import FOR_HEADERS, OF_A_FORM, _chosen, _pieces, export, export_script, write
from mm32.plan import KERNELS

ROOT = Path(__file__).parent.parent
KERNEL_FILES = sorted(str(path.relative_to(compiler.KERNEL_DIR)) for path in compiler.KERNEL_DIR.rglob("*.cu*"))


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


@pytest.mark.parametrize(("kernel", "layout", "sizes", "options"), FORMS)
def test_constants_and_launches_are_the_plans(kernel, layout, sizes, options):
    plan = plan_of(kernel, layout, sizes, options)
    source = cuda_source(export_script(plan, layout))
    shared, *parts = re.split(r"^namespace (?=\w+ \{$)", source, flags=re.M)

    def defined(text: str) -> dict[str, int]:
        return {name: int(value) for name, value in re.findall(r"^#define MM32_(\w+) (\d+)$", text, flags=re.M)}

    everywhere = defined(shared)
    del everywhere["MAX_BATCH_RANK"]  # problem.cuh's own
    constants = {}
    for part in parts:
        body, end, _ = part.partition("}  // namespace")
        assert end
        assert re.findall(r"^#undef MM32_(\w+)$", body, flags=re.M) == list(defined(body))
        constants[body.split()[0]] = defined(body) | everywhere
    starts = re.findall(r'start\("(\w+)", (\w+)::\1, (.*), (\d+), (\d+),\s+(EARLY|IN_TURN), ([ps]), stream\);', source)
    assert len(starts) == len(plan.launches)
    for (entry, space, grid, block, dynamic, early, argument), step in zip(starts, plan.launches, strict=True):
        assert (entry, space, int(block), int(dynamic)) == (step.entry, Path(step.source).stem, step.block, step.shared)
        assert (early == "EARLY", argument == "s") == (step.dependent, step.takes_workspace)
        own = {name for name in everywhere if name not in dict(step.constants)}  # for headers that this source has not
        assert {n: v for n, v in constants[Path(step.source).stem].items() if n not in own} == dict(step.constants)
        for m, n in [sizes[:2]] if plan.workspace else [(1, 1), (96, 80), (97, 129), (4096, 8192), sizes[:2]]:
            blocks = eval(grid.replace("LL", ""), {"ceil_div": lambda a, b: -(-a // b), "min": min, "m": m, "n": n})
            assert blocks == step.grid(gemm.from_layout(layout, m, n, sizes[2]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_source_is_the_librarys(kernel):
    """Every line of every source and header is there, in order, but for how they are put together and for branches that the
    plan's constants rule out."""
    plan = plan_of(kernel, "tt", (256, 256, 16384), {"bias": True})
    text = cuda_source(export_script(plan, "tt"))
    assert re.findall("#include.*", text) == ["#include <cstdio>"]
    for step in plan.launches:
        texts, found = {}, {step.source}
        while found:
            texts |= {name: _chosen((compiler.KERNEL_DIR / name).read_text(), step.constants) for name in found}
            found = set(itertools.chain(*(re.findall(r'#include "(.*)"', body) for body in texts.values()))) - set(
                texts
            )
        assert "common/problem.cuh" in texts
        for body in texts.values():
            assert re.sub(r'^(#pragma once|#include ".*")\n', "", body, flags=re.M).strip() in text
    for name in ("struct Problem {", "struct Params {", "void copy_commit()"):
        assert text.count(name) <= 1


@pytest.mark.parametrize("source", KERNEL_FILES)
def test_branches_are_left_out_as_the_preprocessor_does(source):
    """Every form of a source, by the compiler's own preprocessor: the same lines with and without the branches left out."""
    text = re.sub("#include.*", "", (compiler.KERNEL_DIR / source).read_text())

    def processed(text: str, constants: tuple[tuple[str, int], ...]) -> list[str]:
        defined = [f"-DMM32_{name}={value}" for name, value in constants]
        command = ["g++", "-E", "-P", "-x", "c++", *defined, "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        return done.stdout.split()

    forms = {constants for _, name, constants, _ in planning.forms() if source in _pieces(name, constants)}
    for constants in random.Random(1).sample(sorted(forms), min(len(forms), 6)):
        chosen = _chosen(text, constants)
        assert processed(chosen, constants) == processed(text, constants)
        assert not re.search(r"#(if|elif) !?MM32_", chosen)
        assert ("#if MM32" in text) == (chosen != text)


def test_headers_that_stand_once_ask_for_no_other_constants():
    """An undefined constant is 0 to the preprocessor: a header that came to use another would change without a word."""
    for name in KERNEL_FILES:
        if name.endswith(".cu") or name in OF_A_FORM:
            continue
        code = re.sub(r"//.*", "", (compiler.KERNEL_DIR / name).read_text())
        used = set(re.findall(r"MM32_(\w+)", code)) - {"MAX_BATCH_RANK"}
        included = set(re.findall(r'#include "(.*)"', code))
        assert used <= set(FOR_HEADERS), name
        assert not included & set(OF_A_FORM), name
    for form in forms():
        for name in FOR_HEADERS:
            assert len({dict(step.constants).get(name) for step in plan_of(*form).launches} - {None}) <= 1


def test_python_side_needs_only_torch():
    for kernel, linear in itertools.product(KERNELS, (False, True)):
        tree = ast.parse(export("nt", 96, 80, 64, bias=True, activation="relu", kernel=kernel, linear=linear))
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                names.add(node.module.split(".")[0])
        assert names <= {"ctypes", "functools", "os", "sys", "torch"}


def test_docstring_tells_the_plan_and_the_command():
    asked = gemm.from_layout("tn", 96, 80, 64, activation="gelu")
    plan = planning.plan(asked, planning.H200, "simt")
    text = export_script(plan, "tn")
    said = " ".join(ast.get_docstring(ast.parse(text)).split())
    for line in plan.explain().splitlines():
        assert " ".join(line.split()) in said
    assert said.startswith("gelu(A.T @ B) in float32")
    assert "mm32 export --layout tn --kernel simt --activation gelu --m 96 --n 80 --k 64" in said
    assert "M and N in multiples of 4" in said
    assert "by one CUDA kernel" in said
    for form in forms():
        assert not re.search(r"@[A-Z_]+@", export_script(plan_of(*form), form[1]))


def test_docstring_of_a_file_with_a_workspace():
    said = " ".join(ast.get_docstring(ast.parse(export("tt", 2048, 4096, 8192, precision="tf32"))).split())
    assert said.startswith("A.T @ B.T in float32, with TF32's accuracy, by 4 CUDA kernels")
    assert "Sizes M=2048 N=4096 K=8192, no other" in said
    assert "a card of compute capability 9.0;" in said
    assert "mm32 export --layout tt --kernel tensorcore --precision tf32 --m 2048 --n 4096 --k 8192" in said


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
def test_text_is_formatted(tmp_path):
    asked = [(layout, kernel, False) for layout in gemm.LAYOUTS for kernel in KERNELS] + [("nt", "simt", True)]
    for number, (layout, kernel, linear) in enumerate([*asked, ("nt", "tensorcore", True)]):
        for size in (96, 97):
            options = {"bias": number % 2 == 0, "activation": "leaky_relu" if number % 3 == 0 else None}
            text = export(layout, size, size, size, kernel=kernel, linear=linear, **options)
            python = text.replace(cuda_source(text), "")  # whose lines are as long as the kernels'
            (tmp_path / f"f{number}_{size}.py").write_text(python)
    config = ("--no-cache", "--config", str(ROOT / "pyproject.toml"))
    for command in (("check",), ("format", "--diff")):
        ruff = [sys.executable, "-m", "ruff", *command, *config, str(tmp_path)]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_same_request_same_file_other_request_other_name():
    text = export("tt", 96, 80, 64, kernel="naive")
    assert export("tt", 96, 80, 64, kernel="naive") == text
    others = [export("tt", 96, 80, 68, kernel="naive"), export("tn", 96, 80, 64, kernel="naive")]
    names = {re.search(r'^NAME = "(mm32_export_[0-9a-f]{12})"', t, flags=re.M)[1] for t in (text, *others)}
    assert len(names) == 3


def test_card_that_a_kernel_needs():
    text = export("tt", 96, 80, 64, kernel="simt")
    assert "if capability < (8, 0):" in text
    assert "a card of compute capability 8.0 or later;" in ast.get_docstring(ast.parse(text))
    text = export("tt", 96, 80, 64, kernel="tensorcore")
    assert "if capability != (9, 0):" in text
    assert "a card of compute capability 9.0;" in ast.get_docstring(ast.parse(text))
    text = export("tt", 96, 80, 640, kernel="mma")
    assert "if capability < (8, 0):" in text
    assert "EARLY = BUILT_FOR[0] >= 900;" in text, "launches cannot overlap on all of these cards"
    assert "a card of compute capability 8.0 or later;" in ast.get_docstring(ast.parse(text))


# ---------------------------------------------------------------------------------------------------------------------
# What is refused.


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match="unknown layout 'tx': mm32 has nn, nt, tn, tt"):
        export("tx", 8, 8, 8)
    with pytest.raises(ValueError, match="unknown kernel 'fast': mm32 has 'auto', 'naive', 'dot', 'tiled', 'simt'"):
        export("tt", 8, 8, 8, kernel="fast")
    with pytest.raises(ValueError, match="unknown activation 'swish': mm32 fuses None, 'relu', 'leaky_relu'"):
        export("tt", 8, 8, 8, activation="swish")
    with pytest.raises(ValueError, match=r"a linear layer has layout 'nt'.* not 'tt'"):
        export("tt", 8, 8, 8, linear=True)


def test_plan_must_be_the_layouts():
    plan = planning.plan(gemm.from_layout("tt", 96, 80, 64), planning.H200, "naive")
    with pytest.raises(ValueError, match="contiguous operands in a named layout; these are not 'nn'"):
        export_script(plan, "nn")


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
        ([(64, 97), (80, 64), (80,)], r"take M in multiples of 4; got M=97.*mm32 export --layout tt.* --m 97 --n 80 --k 64"),
        ([(64, 96), (81, 64), (81,)], r"take N in multiples of 4; got N=81"),
    ],
)  # fmt: skip
def test_shapes_are_refused_before_anything_is_built(load, no_build, tensors, message):
    model = load(export("tt", 96, 80, 64, bias=True, kernel="simt")).ModelNew()
    with pytest.raises(RuntimeError, match=message):
        model(*(torch.zeros(shape) for shape in tensors))


@pytest.mark.parametrize("sizes", [(96, 80, 68), (97, 80, 64), (96, 84, 64), (0, 80, 64), (192, 160, 128)])
def test_a_file_with_a_workspace_takes_its_own_sizes_only(load, no_build, sizes):
    module = load(export("tn", 96, 80, 64, activation="relu", kernel="tensorcore"))
    module.M, module.N, module.K = sizes  # what get_inputs() makes, not what the launches are for
    with pytest.raises(RuntimeError) as raised:
        module.ModelNew()(*module.get_inputs())
    m, n, k = sizes
    for words in ("for M=96 N=80 K=64", f"got M={m} N={n} K={k}"):
        assert words in str(raised.value)
    assert str(raised.value).endswith(f": mm32 export --layout tn --activation relu --m {m} --n {n} --k {k}")


def test_dtype_and_device_are_refused(load, no_build):
    model = load(export("nn", 8, 8, 8, kernel="naive")).ModelNew()
    with pytest.raises(RuntimeError, match=r"B must be a float32 tensor of shape \(K, N\); got torch.float64"):
        model(torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="all tensors must be on one device; A is on cpu and B on meta"):
        model(torch.zeros(8, 8), torch.zeros(8, 8, device="meta"))


def test_without_a_card_it_says_so(load, no_build, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = load(export("nn", 8, 8, 8, kernel="naive")).ModelNew()
    with pytest.raises(RuntimeError, match="ModelNew needs a CUDA device"):
        model(torch.zeros(8, 8), torch.zeros(8, 8))


def test_old_card_is_refused_before_the_build(load, no_build):
    module = load(export("nn", 8, 8, 8, kernel="naive"))
    with pytest.raises(RuntimeError, match=r"needs a card of compute capability 8\.0 or later; this one's is 7\.5"):
        module._library((7, 5))
    module = load(export("nn", 8, 8, 8, kernel="tensorcore"))
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
    module = load(export("nn", 8, 8, 8, kernel="naive"))
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
    """On meta tensors: the operator's fake gives the shape, and nothing is built. Files live side by side."""
    asked = [("tt", "simt"), ("nn", "simt"), ("tt", "simt"), ("nt", "tensorcore")]
    modules = [load(export(layout, 24, 40, 16, kernel=kernel)) for layout, kernel in asked]
    for module, (layout, _) in zip(modules, asked, strict=True):
        compiled = torch.compile(module.ModelNew(), fullgraph=True, backend="eager")
        result = compiled(*inputs(layout, 24, 40, 16, device="meta"))
        assert (result.shape, result.device.type) == ((24, 40), "meta")


def test_loaded_again_the_operator_is_the_same(load, no_build):
    """torch ends an operator that is defined again: who still held the first would call into freed memory."""
    text = export("tn", 24, 40, 16, kernel="tiled")
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
