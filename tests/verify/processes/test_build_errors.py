"""Candidates that build an extension: one that works, and the first error of those that do not."""

from __future__ import annotations

import pytest

from mm32.verify import Verdict
from mm32.verify.worker.build_errors import explain, first_error, first_line, other_hint
from support.verify.fixtures import HEAD, Run

NINJA = """Error building extension 'gemm': [1/3] c++ -MMD -MF main.o.d -std=c++17 -c main.cpp -o main.o
FAILED: [code=1] main.o
c++ -MMD -MF main.o.d -DTORCH_EXTENSION_NAME=gemm -c /tmp/x/main.cpp -o main.o
In file included from /site/torch/include/ATen/ATen.h:3,
                 from /tmp/x/main.cpp:1:
/site/torch/include/c10/macros.h:7:9: warning: something unimportant [-Wsomething]
/tmp/x/main.cpp: In function ‘at::Tensor gemm(at::Tensor, at::Tensor)’:
/tmp/x/main.cpp:12:5: error: ‘tmp’ was not declared in this scope
   12 |     tmp = a + b;
      |     ^~~
/tmp/x/main.cpp:13:5: error: expected ‘;’ before ‘}’ token
ninja: build stopped: subcommand failed.
"""


def test_the_first_error_with_its_source() -> None:
    found = explain(RuntimeError(NINJA))
    assert found is not None
    assert found.message == "main.cpp:12: error: ‘tmp’ was not declared in this scope"
    assert found.context == "   12 |     tmp = a + b;\n      |     ^~~"
    assert "not declared where it is used" in found.hint


@pytest.mark.parametrize(
    ("output", "message", "hint"),
    [
        (
            '/tmp/x/cuda.cu(31): error: identifier "threadIdxx" is undefined\n      int i = threadIdxx.x;\n              ^\n',
            'cuda.cu:31: error: identifier "threadIdxx" is undefined',
            "not declared",
        ),
        (
            "main.cpp:2:10: fatal error: missing.h: No such file or directory\n    2 | #include <missing.h>\n",
            "main.cpp:2: error: missing.h: No such file or directory",
            "a header is missing",
        ),
        (
            "/site/torch/include/c10/util/C++17.h:27:2: error: #error You need C++17 or later to compile PyTorch\n",
            "C++17.h:27: error: #error You need C++17 or later to compile PyTorch",
            "drop the -std flag",
        ),
        ("/usr/bin/ld: cannot find -lnosuch: No such file or directory\n", "cannot find -lnosuch", ""),
        (
            "main.o: in function `f':\nmain.cpp:(.text+0x5): undefined reference to `g()'\n",
            "undefined reference to `g()'",
            "nowhere",
        ),
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_999'\n",
            "Unsupported gpu architecture 'compute_999'",
            "",
        ),
        (
            "FAILED: [code=127] main.o\nc++ -c main.cpp\n/bin/sh: 1: c++: not found\n",
            "c++: not found",
            "apt install g++",
        ),
        ("/bin/bash: line 1: g++-12: command not found\n", "g++-12: not found", "no C++ compiler is here"),
        ("/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found\n", "nvcc: not found", "no CUDA toolkit here"),
        (
            "/site/torch/csrc/python_headers.h:12:10: fatal error: Python.h: No such file or directory\n",
            "python_headers.h:12: error: Python.h: No such file or directory",
            "apt install python3-dev",
        ),
    ],
)
def test_first_errors_of_compilers_and_linkers(output: str, message: str, hint: str) -> None:
    found = first_error("[1/2] building\n" + output)
    assert found is not None
    assert message in found.message
    assert hint in found.hint


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (TypeError("ModelNew.__init__() missing 1 required positional argument: 'k'"), "get_init_inputs()"),
        (TypeError("ModelNew.forward() takes 2 positional arguments but 3 were given"), "get_inputs()"),
        (ModuleNotFoundError("No module named 'cutlass'"), "the environment that mm32 runs in"),
        (SyntaxError("(unicode error) 'utf-8' codec can't decode byte 0xff in position 0"), "save the script as UTF-8"),
        (ValueError("no"), ""),
    ],
)
def test_mistakes_that_are_no_builds_have_hints_and_stay_what_they_are(error: Exception, hint: str) -> None:
    assert explain(error) is None
    found = other_hint(error)
    assert hint in found
    assert bool(hint) == bool(found)


def test_other_exceptions_are_left_alone() -> None:
    assert explain(ValueError("no")) is None
    assert explain(RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")) is None
    assert first_error("all is well\n") is None
    assert first_line(RuntimeError("first\nsecond")) == "RuntimeError: first"
    assert first_line(SystemExit(3)) == "the script called sys.exit(3)"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError("CUDA_HOME environment variable is not set. Please set it."), "no CUDA toolkit"),
        (RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)"), "pip install ninja"),
        (AssertionError("Torch not compiled with CUDA enabled"), "has no GPU"),
        (TypeError("load_inline() got an unexpected keyword argument 'cuda_source'"), "load_inline"),
    ],
)
def test_causes_outside_the_compiler_have_a_hint(error: BaseException, hint: str) -> None:
    found = explain(error)
    assert found is not None
    assert found.message == first_line(error)
    assert hint in found.hint


def extension(body: str, functions: str = "['gemm']", declaration: str = "") -> str:
    return f'''{HEAD}
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/Exceptions.h>
#include <ATen/ops/empty.h>
{declaration}
{body}
"""
module = load_inline(name="gemm", cpp_sources=source, functions={functions}, extra_cflags=["-O1"], no_implicit_headers=True)

class ModelNew(nn.Module):
    def forward(self, A, B):
        return module.gemm(A, B)
'''


GEMM = """
at::Tensor gemm(at::Tensor a, at::Tensor b) {
    a = a.contiguous(), b = b.contiguous();
    int64_t k = a.size(0), m = a.size(1), n = b.size(0);
    at::Tensor c = at::empty({m, n}, a.options());
    const float *x = a.const_data_ptr<float>(), *y = b.const_data_ptr<float>();
    float *z = c.data_ptr<float>();
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++) sum += x[l * m + i] * y[j * k + l];
            z[i * n + j] = sum < 0 ? 0 : sum;
        }
    return c;
}
"""


@pytest.mark.compiler
def test_an_extension_is_built_and_is_the_same(run: Run) -> None:
    report = run(extension(GEMM), trials=1, timeout=240.0)
    assert report.verdict.same, report.reason
    assert report.trials[0]["same"]
    assert report.trials[0]["candidate"]["normwise"] > 0
    assert {p["status"] for p in report.probes} == {"same"}


@pytest.mark.compiler
def test_an_extension_that_does_not_compile_shows_its_first_error(run: Run) -> None:
    # Without headers, which take seconds to compile; the errors about what is then missing come later.
    source = extension("int gemm() {\n    flaot sum = 0;\n    return sum;\n}").replace("#include <", "// <")
    report = run(source, trials=1, timeout=240.0)
    assert report.verdict is Verdict.NOT_BUILT
    assert report.exit_code == 6
    assert report.reason.startswith("main.cpp:")
    assert "error: ‘flaot’ was not declared" in report.reason or "'flaot'" in report.reason
    assert "flaot sum = 0;" in report.error["context"]
    assert len(report.error["context"].splitlines()) <= 4


@pytest.mark.compiler
@pytest.mark.slow
def test_an_undefined_symbol_is_named(run: Run) -> None:
    body = "at::Tensor helper(at::Tensor);\nat::Tensor gemm(at::Tensor a, at::Tensor b) { return helper(a); }"
    report = run(extension(body), trials=1, timeout=240.0)
    assert report.verdict is Verdict.NOT_BUILT
    assert "undefined symbol when the extension is loaded: helper(at::Tensor)" in report.reason
    assert "defined nowhere" in report.error["hint"]


def test_a_cuda_candidate_without_a_gpu(run: Run) -> None:
    source = HEAD + "class ModelNew(nn.Module):\n    def forward(self, A, B): return A.cuda()\n"
    report = run(source, trials=1)
    assert report.verdict is Verdict.NOT_BUILT
    assert "no GPU" in report.error["hint"]
