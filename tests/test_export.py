"""Exported files: what they say, what they refuse, that they compile, and (gpu) that they compute what mm32 computes."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import importlib.util
import itertools
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import mm32
from mm32 import environment, gemm
from mm32 import plan as planning
from mm32.export import export, export_script, write

ROOT = Path(__file__).parent.parent
KERNELS = ("naive", "dot", "tiled", "simt")
numbers = itertools.count()


@pytest.fixture
def load(tmp_path, monkeypatch):
    """A function that imports an exported file's text as a module; what it builds goes to a folder of this test."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))

    def load_(text: str) -> ModuleType:
        path = tmp_path / f"exported_{next(numbers)}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load_


@pytest.fixture
def no_build(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing should be built here")

    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", refuse)


def inputs(layout: str, m: int, n: int, k: int, bias: bool = False, **kwargs) -> list[torch.Tensor]:
    shapes = [(m, k) if layout[0] == "n" else (k, m), (k, n) if layout[1] == "n" else (n, k)] + [(n,)] * bias
    return [torch.randn(shape, **kwargs) for shape in shapes]


def matrices(layout: str, A: torch.Tensor, B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return A if layout[0] == "n" else A.T, B if layout[1] == "n" else B.T


def cuda_source(text: str) -> str:
    return text.split('CUDA_SOURCE = r"""')[1].split('"""')[0]


# ---------------------------------------------------------------------------------------------------------------------
# What a file says.


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("layout", gemm.LAYOUTS)
def test_constants_and_launch_are_the_plans(kernel, layout):
    asked = gemm.from_layout(layout, 96, 80, 64, bias=True, activation="silu")
    plan = planning.plan(asked, planning.H200, kernel)
    source = cuda_source(export_script(plan, layout))
    defined = dict(re.findall(r"^#define MM32_(\w+) (\d+)$", source, flags=re.M))
    del defined["MAX_BATCH_RANK"]  # problem.cuh's own
    expected = {**dict(plan.constants), "BLOCK": plan.launch.block, "SHARED": plan.launch.shared}
    assert {name: int(value) for name, value in defined.items()} == expected
    assert f"{plan.launch.entry}<<<grid, MM32_BLOCK, MM32_SHARED, stream>>>(p);" in source
    assert f"units < {planning.MAX_GRID}LL" in source
    expression = re.search(r"const long long units = (.*);  //", source)[1]
    for m, n in ((1, 1), (96, 80), (97, 129), (4096, 8192)):
        units = eval(expression, {"ceil_div": lambda a, b: -(-a // b), "m": m, "n": n})
        assert units == plan.launch.grid(gemm.from_layout(layout, m, n, 64))


@pytest.mark.parametrize("kernel", KERNELS)
def test_source_is_the_librarys(kernel):
    from mm32.cuda.compile import full_source

    text = export("tt", 96, 80, 64, kernel=kernel)
    assert full_source(f"{kernel}.cu").strip() in cuda_source(text)
    assert "#include" not in cuda_source(text)


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
    assert not re.search(r"@[A-Z_]+@", text)


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
def test_text_is_formatted(tmp_path):
    forms = [(layout, kernel, False) for layout in gemm.LAYOUTS for kernel in KERNELS] + [("nt", "simt", True)]
    for number, (layout, kernel, linear) in enumerate(forms):
        for size in (96, 97):
            options = {"bias": number % 2 == 0, "activation": "leaky_relu" if number % 3 == 0 else None}
            text = export(layout, size, size, size, kernel=kernel, linear=linear, **options)
            (tmp_path / f"f{number}_{size}.py").write_text(text)
    for command in (["check"], ["format", "--diff"]):
        ruff = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--no-cache",
            "--config",
            str(ROOT / "pyproject.toml"),
            str(tmp_path),
        ]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_same_request_same_file_other_request_other_name():
    text = export("tt", 96, 80, 64, kernel="naive")
    assert export("tt", 96, 80, 64, kernel="naive") == text
    others = [export("tt", 96, 80, 68, kernel="naive"), export("tn", 96, 80, 64, kernel="naive")]
    names = {re.search(r'^NAME = "(mm32_export_[0-9a-f]{12})"', t, flags=re.M)[1] for t in (text, *others)}
    assert len(names) == 3


def test_card_that_a_kernel_needs(monkeypatch):
    text = export("tt", 96, 80, 64, kernel="simt")
    assert "if capability < (8, 0):" in text
    assert "a card of compute capability 8.0 or later;" in ast.get_docstring(ast.parse(text))
    monkeypatch.setattr(
        planning, "unsupported", lambda _, device: None if device.capability == (9, 0) else "not Hopper"
    )
    text = export("tt", 96, 80, 64, kernel="simt")
    assert "if capability != (9, 0):" in text
    assert "a card of compute capability 9.0;" in ast.get_docstring(ast.parse(text))


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
    with pytest.raises(ValueError, match="1024 bytes of workspace"):
        export_script(replace(plan, workspace=1024), "tt")


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
    import inspect

    from torch.utils import cpp_extension

    monkeypatch.undo()
    assert {"no_implicit_headers", "is_python_module"} <= set(inspect.signature(cpp_extension.load_inline).parameters)


# ---------------------------------------------------------------------------------------------------------------------
# What the Python side hands to the kernel, without a card: a stand-in for the built library computes from the pointers.


def stand_in_library(calls: list):
    def array(pointer, rows, columns, row, column):
        size = 1 + max(rows - 1, 0) * row + max(columns - 1, 0) * column
        flat = np.ctypeslib.as_array((ctypes.c_float * size).from_address(pointer))
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4 * row, 4 * column))

    def mm32_launch(m, n, k, a, a_row, a_col, b, b_row, b_col, c, bias, bias_stride, stream):
        calls.append({"a": a, "b": b, "a_strides": (a_row, a_col), "b_strides": (b_row, b_col)})
        C = array(c, m, n, n, 1)
        C[:] = array(a, m, k, a_row, a_col) @ array(b, k, n, b_row, b_col) if k else 0
        C += array(bias, 1, n, 0, bias_stride) if bias is not None else 0

    return lambda capability: SimpleNamespace(mm32_launch=mm32_launch)


@pytest.fixture
def on_cpu(monkeypatch):
    """Lets an exported module's operator run on CPU tensors, and returns the calls that it made."""
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: SimpleNamespace(cuda_stream=0))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    calls: list = []

    def prepare(module: ModuleType) -> list:
        monkeypatch.setattr(module, "_library", stand_in_library(calls))
        module._product.register_kernel("cpu")(module._product._init_fn)
        return calls

    return prepare


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", gemm.LAYOUTS)
@pytest.mark.parametrize("kernel", ["naive", "simt"])
def test_pointers_sizes_and_strides(load, on_cpu, layout, bias, kernel):
    module = load(export(layout, 12, 8, 16, bias=bias, kernel=kernel))
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
    module = load(export("tt", 12, 8, 16, kernel="naive"))
    calls = on_cpu(module)
    A, B = (
        torch.randn(16, 2, 13)[:, 1, 1:],
        torch.randn(16, 8).T,
    )  # rows 26 apart, off 16 bytes; stored the other way round
    torch.testing.assert_close(module.ModelNew()(A, B), A.T @ B.T)
    assert calls == [{"a": A.data_ptr(), "b": B.data_ptr(), "a_strides": (1, 26), "b_strides": (8, 1)}]


def test_operands_read_by_16_bytes_are_copied_only_where_they_must(load, on_cpu):
    module = load(export("tn", 12, 8, 16, kernel="simt"))  # loads both operands by 16 bytes
    calls = on_cpu(module)
    B = torch.randn(16, 8)
    buffer = torch.randn(16 * 40 + 4)
    for A, copied in (
        (torch.randn(16, 12), False),
        (torch.randn(16, 40)[:, 8:20], False),  # rows 40 apart
        (torch.randn(16, 41)[:, 4:16], True),  # rows 41 apart
        (torch.randn(12, 16).T, True),  # not contiguous along M
        (buffer[1 : 1 + 16 * 12].view(16, 12), True),  # not on 16 bytes
        (buffer[4 : 4 + 16 * 12].view(16, 12), False),
    ):
        calls.clear()
        torch.testing.assert_close(module.ModelNew()(A, B), A.T @ B)
        assert (calls[0]["a"] != A.data_ptr()) == copied
        row, column = calls[0]["a_strides"]
        assert (row, column % 4) == (1, 0)
        assert calls[0]["b"] == B.data_ptr()


def test_single_rows_of_any_length(load, on_cpu):
    """A plan for K = 1 or M = 1 may use 16-byte accesses at sizes that are not multiples of 4: no second row is there to be
    out of step. The sizes that a file was exported for are always taken."""
    for layout, (m, n, k) in itertools.product(gemm.LAYOUTS, ((1, 5, 7), (5, 7, 1), (1, 1, 1), (3, 1, 5))):
        module = load(export(layout, m, n, k, kernel="simt"))
        calls = on_cpu(module)
        tensors = inputs(layout, m, n, k)
        a, b = matrices(layout, *tensors)
        torch.testing.assert_close(module.ModelNew()(*tensors), a @ b)
        tensors = inputs(layout, 4, 8, 12)  # many rows where the plan knew one
        a, b = matrices(layout, *tensors)
        torch.testing.assert_close(module.ModelNew()(*tensors), a @ b)
        if "#define MM32_A_LOAD 0" in module.CUDA_SOURCE:
            assert (calls[-1]["a_strides"][0], calls[-1]["a_strides"][1] % 4) == (1, 0)
        if "#define MM32_B_LOAD 0" in module.CUDA_SOURCE:
            assert (calls[-1]["b_strides"][0] % 4, calls[-1]["b_strides"][1]) == (0, 1)


def test_failed_launch_raises_with_cudas_words(load, on_cpu, monkeypatch):
    module = load(export("nn", 12, 8, 16, kernel="simt"))
    on_cpu(module)
    failing = SimpleNamespace(mm32_launch=lambda *_: b"invalid argument")
    monkeypatch.setattr(module, "_library", lambda _: failing)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a card")
    with pytest.raises(
        RuntimeError, match=r"launching mm32_simt for M=12 N=8 K=16, .* failed on a card: invalid argument"
    ):
        module.ModelNew()(*inputs("nn", 12, 8, 16))


def test_gradients_are_refused(load, on_cpu):
    module = load(export("nn", 12, 8, 16, kernel="naive"))
    on_cpu(module)
    A, B = inputs("nn", 12, 8, 16, requires_grad=True)
    with pytest.raises(Exception, match="no autograd formula was registered"):
        module.ModelNew()(A, B).sum().backward()


def test_linear_has_the_references_parameters(load, on_cpu):
    spec = importlib.util.spec_from_file_location("linear_relu", ROOT / "examples" / "linear_relu.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    module = load(export("nt", 12, 8, 16, bias=True, kernel="naive", linear=True))
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
    module = load(export(layout, 12, 8, 16, bias=True, kernel="naive"))
    A, B, bias = module.get_inputs()
    a, b = matrices(layout, A, B)
    assert (a.shape, b.shape, bias.shape) == ((12, 16), (16, 8), (8,))
    assert (A.dtype, A.is_contiguous(), B.is_contiguous()) == (torch.float32, True, True)
    assert module.get_init_inputs() == []


def test_traces_as_one_graph(load, no_build):
    """On meta tensors: the operator's fake gives the shape, and nothing is built. Two files live side by side."""
    modules = [load(export(layout, 96, 80, 64, kernel="simt")) for layout in ("tt", "nn", "tt")]
    for module, layout in zip(modules, ("tt", "nn", "tt"), strict=True):
        compiled = torch.compile(module.ModelNew(), fullgraph=True, backend="eager")
        result = compiled(*inputs(layout, 24, 40, 16, device="meta"))
        assert (result.shape, result.device.type) == ((24, 40), "meta")


# ---------------------------------------------------------------------------------------------------------------------
# That it compiles, the host's side included.


@pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is not on the PATH: exported files are not compiled here"
)
@pytest.mark.parametrize(
    ("kernel", "layout", "options"),
    [
        *((kernel, layout, {}) for kernel in KERNELS for layout in ("tt", "nn")),
        ("simt", "nt", {"bias": True, "activation": "gelu"}),
        ("simt", "tn", {"activation": "relu"}),
        ("tiled", "tn", {"bias": True, "activation": "tanh"}),
    ],
)
def test_compiles_with_nvcc(tmp_path, kernel, layout, options):
    source = tmp_path / "exported.cu"
    source.write_text(cuda_source(export(layout, 2048, 4096, 8192, kernel=kernel, **options)))
    flags = ["-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-Xcompiler", "-fPIC,-Wall,-Werror"]
    done = subprocess.run(
        ["nvcc", *flags, "-shared", "-o", str(tmp_path / "exported.so"), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert hasattr(ctypes.CDLL(str(tmp_path / "exported.so")), "mm32_launch")


# ---------------------------------------------------------------------------------------------------------------------
# On a card.


def here() -> planning.Device:
    return environment.planning_device()[0]


def check(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, act) -> None:
    """Within K * 2^-24 of the float64 result, relative to what is summed: IEEE fp32 in any order."""
    exact = a.double() @ b.double() + (0 if bias is None else bias.double())
    bound = a.double().abs() @ b.double().abs() + (0 if bias is None else bias.double().abs())
    error = ((result.double() - act(exact)).abs() / (bound + 1e-30)).max().item() if result.numel() else 0.0
    assert error <= (a.shape[1] + 2) * 2**-24, error


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("layout", gemm.LAYOUTS)
def test_computes_what_mm32_computes(load, kernel, layout):
    """The size it was exported for, others, and views; for simt also exported for sizes that no 16-byte access fits."""
    files = [((96, 80, 64), [(96, 80, 64), (300, 132, 260), (4, 4, 4), (8, 12, 0), (0, 4, 4)])]
    odd = [(97, 81, 63), (1, 1, 1), (129, 65, 33), (5, 3, 0)]
    if kernel == "simt":
        files.append(((97, 81, 63), odd))
    else:
        files[0][1].extend(odd)
    for exported_for, sizes in files:
        model = load(
            export(layout, *exported_for, bias=True, activation="relu", kernel=kernel, device=here())
        ).ModelNew()
        for m, n, k in sizes:
            A, B, bias = inputs(layout, m, n, k, bias=True, device="cuda")
            a, b = matrices(layout, A, B)
            result = model(A, B, bias)
            assert torch.equal(result, mm32.matmul(a, b, bias=bias, activation="relu", kernel=kernel)), (m, n, k)
            check(result, a, b, bias, torch.relu)
        # A slice of wider tensors, 16 bytes in.
        m, n, k = exported_for
        A, B = (torch.randn(t.shape[0], t.shape[1] + 8, device="cuda")[:, 4:-4] for t in inputs(layout, m, n, k))
        bias = torch.randn(2 * n, device="cuda")[::2]
        a, b = matrices(layout, A, B)
        result = model(A, B, bias)
        assert torch.equal(result, mm32.matmul(a, b, bias=bias, activation="relu", kernel=kernel))


@pytest.mark.gpu
def test_large_shared_memory_and_default_sizes(load):
    module = load(export("tt", 512, 1024, 256, kernel="simt", device=here()))
    A, B = (t.cuda() for t in module.get_inputs())
    result = module.ModelNew()(A, B)
    assert torch.equal(result, mm32.matmul(A.T, B.T, kernel="simt"))


@pytest.mark.gpu
@pytest.mark.parametrize("activation", gemm.ACTIVATIONS)
def test_activations(load, activation):
    from mm32.cpu import activate

    module = load(export("nt", 96, 80, 64, bias=True, activation=activation, kernel="tiled", device=here()))
    A, B, bias = inputs("nt", 96, 80, 64, bias=True, device="cuda")
    expected = activate(A.double() @ B.double().T + bias.double(), activation)
    torch.testing.assert_close(module.ModelNew()(A, B, bias).double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.gpu
def test_cpu_tensors_come_back_to_the_cpu(load):
    module = load(export("tt", 96, 80, 64, kernel="naive", device=here()))
    A, B = module.get_inputs()
    result = module.ModelNew()(A, B)
    assert result.device.type == "cpu"
    check(result, A.T, B.T, None, lambda x: x)


@pytest.mark.gpu
def test_current_stream_and_graph_capture(load):
    model = load(export("tt", 96, 80, 64, kernel="simt", device=here())).ModelNew()
    A, B = inputs("tt", 96, 80, 64, device="cuda")
    model(A, B)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # a launch on any other stream would be an error here, or missing from the graph
        C = model(A, B)
    A.normal_()
    C.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(C, mm32.matmul(A.T, B.T, kernel="simt"))


@pytest.mark.gpu
def test_compiles_as_one_graph_beside_another_file(load):
    first = load(export("tt", 96, 80, 64, activation="relu", kernel="simt", device=here())).ModelNew()
    second = load(export("nn", 96, 80, 64, kernel="tiled", device=here())).ModelNew()
    A, B = inputs("tt", 96, 80, 64, device="cuda")
    D = torch.randn(80, 40, device="cuda")

    def both(A, B, D):
        return second(first(A, B) + 1, D) * 2

    expected = mm32.matmul(mm32.matmul(A.T, B.T, activation="relu", kernel="simt") + 1, D, kernel="tiled") * 2
    assert torch.equal(both(A, B, D), expected)
    compiled = torch.compile(both, fullgraph=True)
    assert torch.equal(compiled(A, B, D), expected)


@pytest.mark.gpu
def test_wrong_shapes_on_a_card(load, no_build):
    model = load(export("tt", 96, 80, 64, kernel="simt", device=here())).ModelNew()
    with pytest.raises(RuntimeError, match="must have the same K"):
        model(torch.zeros(64, 96, device="cuda"), torch.zeros(80, 65, device="cuda"))
    with pytest.raises(RuntimeError, match="N in multiples of 4"):
        model(torch.zeros(64, 96, device="cuda"), torch.zeros(81, 64, device="cuda"))
    with pytest.raises(RuntimeError, match="on one device"):
        model(torch.zeros(64, 96, device="cuda"), torch.zeros(80, 64))


@pytest.mark.gpu
def test_build_failure_shows_the_compilers_message(load):
    text = export("tt", 96, 80, 64, kernel="naive", device=here()).replace("Problem p{};", "Problem p{} oops;")
    with pytest.raises(RuntimeError, match=r"error: expected a .;"):
        load(text).ModelNew()(*inputs("tt", 96, 80, 64, device="cuda"))
