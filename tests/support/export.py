"""What the tests of exported files share: loading a file's text, its operands, and a CUDA runtime that launches nothing and
reports what it was asked to launch."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch

from mm32 import gemm
from mm32 import plan as planning
from mm32.cuda import launch

numbers = itertools.count()


def loader(folder: Path, builds: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that imports an exported file's text as a module. The text goes to `folder`, its builds to `builds`."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(builds))

    def load(text: str) -> ModuleType:
        path = folder / f"exported_{next(numbers)}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # as an import does; torch.compile looks a module up by its name
        spec.loader.exec_module(module)
        return module

    return load


def here() -> planning.Card:
    """Return the card to plan for: this machine's, or an H200."""
    return launch.planning_device()[0]


def inputs(layout: str, m: int, n: int, k: int, bias: bool = False, **kwargs) -> list[torch.Tensor]:
    shapes = [(m, k) if layout[0] == "n" else (k, m), (k, n) if layout[1] == "n" else (n, k)] + [(n,)] * bias
    return [torch.randn(shape, **kwargs) for shape in shapes]


def matrices(layout: str, A: torch.Tensor, B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return A if layout[0] == "n" else A.T, B if layout[1] == "n" else B.T


def cuda_source(text: str) -> str:
    return text.split('CUDA_SOURCE = r"""')[1].split('"""')[0]


# ---------------------------------------------------------------------------------------------------------------------
# A stand-in for the CUDA runtime library, linked with a file's C++: it knows kernels by name and does not run them.

RUNTIME = """\
#include <cuda_runtime.h>
#include <cxxabi.h>
#include <map>
#include <string>

typedef void Launched(const char* name, unsigned blocks, unsigned threads, size_t shared, int dependent, void* stream, void* at);
typedef void Prepared(const char* name, int attribute, int value);

static Launched* launched;
static Prepared* prepared;
static std::map<const void*, std::string>& names() {
    static std::map<const void*, std::string> found;
    return found;
}

extern "C" {
void report_to(Launched* to, Prepared* and_to) { launched = to, prepared = and_to; }

void** __cudaRegisterFatBinary(void*) {
    static void* handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    const std::string whole = abi::__cxa_demangle(name, nullptr, nullptr, nullptr);  // "simt::mm32_simt(Problem)"
    names()[host] = whole.substr(0, whole.find('('));
}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaErrorNotSupported; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaErrorNotSupported; }

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
    const cudaLaunchAttribute* attribute = config->attrs;
    const int dependent = config->numAttrs > 0 && attribute->id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                          attribute->val.programmaticStreamSerializationAllowed == 1;
    const dim3 grid = config->gridDim, block = config->blockDim;
    int expected = dependent;
    if ((int)config->numAttrs > dependent && attribute[dependent].id == cudaLaunchAttributeClusterDimension) {
        const auto cluster = attribute[dependent].val.clusterDim;
        if (cluster.x < 2 || grid.x % cluster.x || cluster.y * cluster.z != 1) return cudaErrorInvalidConfiguration;
        expected++;
    }
    if ((int)config->numAttrs != expected || grid.y * grid.z * block.y * block.z != 1) return cudaErrorInvalidConfiguration;
    launched(names().at(kernel).c_str(), grid.x, block.x, config->dynamicSmemBytes, dependent, config->stream, arguments[0]);
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    prepared(names().at(kernel).c_str(), attribute, value);
    return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
}
"""

SHARED_BYTES, CARVEOUT = 8, 9  # cudaFuncAttributeMaxDynamicSharedMemorySize, ...PreferredSharedMemoryCarveout
FLAGS = ["-std=c++17", "-Xcompiler", "-fPIC,-Wall,-Werror", "-shared"]


class Recorder:
    """A builder in place of torch.utils.cpp_extension's, with nvcc and the stand-in, that records what the file asks for.

    `launches`: (kernel, blocks, threads, shared, dependent, stream, the argument's bytes) of each launch. `attributes`:
    (kernel, attribute, value). Both name a kernel without its namespace. `kernels`: the launched kernels, with their namespaces.
    `sizes`: the length of each kernel's argument. `arch`: what the file must build for. Without `assemble`, kernels are compiled
    only to PTX, in half the time."""

    def __init__(self, folder: Path, sizes: dict[str, int], arch: str = "9.0a", assemble: bool = True) -> None:
        self.folder, self.sizes, self.arch, self.assemble = folder, sizes, arch, assemble
        self.launches: list[tuple] = []
        self.attributes: list[tuple] = []
        self.kernels: list[str] = []

    def load_inline(self, *, name: str, cuda_sources: str, **_: object) -> str:
        assert os.environ["TORCH_CUDA_ARCH_LIST"] == self.arch
        number = self.arch.replace(".", "")
        runtime, source, built = (self.folder / name for name in ("runtime.cpp", "exported.cu", f"{name}.so"))
        runtime.write_text(RUNTIME)
        source.write_text(cuda_sources)
        command = [
            "nvcc",
            *FLAGS,
            f"-gencode=arch=compute_{number},code={'sm' if self.assemble else 'compute'}_{number}",
            "-cudart",
            "none",
            "-Xlinker",
            "-Bsymbolic",
            "-o",
            str(built),
            str(source),
            str(runtime),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        text, number, pointer = ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
        launched = ctypes.CFUNCTYPE(None, text, number, number, ctypes.c_size_t, number, pointer, pointer)
        prepared = ctypes.CFUNCTYPE(None, text, number, number)
        self.callbacks = launched(self.launched), prepared(self.prepared)
        ctypes.CDLL(str(built)).report_to(*self.callbacks)
        return str(built)

    def launched(
        self, name: bytes, blocks: int, threads: int, shared: int, dependent: int, stream: int, at: int
    ) -> None:
        self.kernels.append(name.decode())
        entry = entry_of(name)
        argument = ctypes.string_at(at, self.sizes[entry])
        self.launches.append((entry, blocks, threads, shared, bool(dependent), stream, argument))

    def prepared(self, name: bytes, attribute: int, value: int) -> None:
        self.attributes.append((entry_of(name), attribute, value))


def entry_of(name: bytes) -> str:
    return name.decode().rpartition("::")[2]


def forms() -> Iterator[tuple[str, str, tuple[int, int, int], dict]]:
    """Yield (kernel, layout, sizes, options) that together have every launch and every kind of load. Option "inline" says
    whether a tensorcore multiply packs its own operands; without it the planner chooses."""
    for kernel in ("naive", "dot", "tiled", "simt"):
        for layout in ("tt", "nn"):
            yield kernel, layout, (2048, 512, 256), {}
    yield "simt", "nt", (96, 80, 64), {"bias": True, "activation": "gelu"}
    yield "simt", "tn", (97, 81, 63), {"activation": "relu"}
    yield "simt", "nn", (4096, 3, 4096), {"bias": True, "activation": "relu"}
    yield "simt", "nn", (2, 4096, 4096), {"bias": True, "activation": "relu"}
    yield "simt", "nn", (8, 64, 65536), {"bias": True}  # partial sums in a workspace
    yield "simt", "tt", (1023, 16, 333), {}
    yield "simt", "nt", (2560, 2560, 2048), {"bias": True, "activation": "relu"}
    yield "tiled", "tn", (96, 80, 64), {"bias": True, "activation": "tanh"}
    for layout in ("nn", "nt", "tn", "tt"):
        yield "tensorcore", layout, (2048, 1024, 2048), {}
    yield "tensorcore", "tt", (2048, 4096, 2048), {"bias": True, "activation": "gelu_tanh"}
    yield "tensorcore", "tn", (256, 256, 16384), {"bias": True, "activation": "relu"}
    yield "tensorcore", "nn", (130, 200, 321), {"bias": True}
    yield "tensorcore", "nt", (256, 260, 16384), {"precision": "tf32", "activation": "silu"}
    yield "tensorcore", "tt", (2048, 4096, 2048), {"precision": "tf32"}
    for inline in (False, True):
        yield "tensorcore", "tn", (256, 260, 16384), {"inline": inline, "bias": True, "activation": "relu"}
        yield "tensorcore", "nn", (130, 203, 4097), {"inline": inline}
        yield "tensorcore", "nn", (130, 200, 324), {"inline": inline, "precision": "tf32"}
    for layout in ("nn", "tt"):
        yield "direct", layout, (32, 1024, 512), {"bias": True}  # its operands are swapped
    yield "direct", "tn", (30, 1024, 512), {}
    yield "direct", "nn", (33, 1022, 511), {"activation": "relu"}
    yield "direct", "nn", (512, 512, 512), {"bias": True, "activation": "relu"}
    yield "direct", "tt", (300, 301, 61), {}
    yield "mma", "tn", (2048, 1024, 2048), {"bias": True, "activation": "gelu"}
    yield "mma", "nt", (256, 256, 16384), {"bias": True}
    yield "mma", "nn", (130, 200, 321), {"precision": "tf32"}


FORMS = [pytest.param(*form, id="-".join(map(str, form))) for form in forms()]


def two_forms() -> planning.Plan:
    """Return a plan that launches emulated sources twice: for fp16x3, and for bf16x6, whose launches have their own Params."""
    plan = plan_of("tensorcore", "nn", (256, 2048, 8192), {"precision": "fp32", "inline": False})
    assert {dict(launch.constants).get("PRODUCTS") for launch in plan.launches} == {3, 6, None}
    return plan


def plan_of(kernel: str, layout: str, sizes: tuple[int, int, int], options: dict) -> planning.Plan:
    options = dict(options)
    inline = options.pop("inline", None)
    if inline is not None:
        tiles = tuple(tile for tile in planning.emulated.TENSOR_TILES if tile.inline == inline)
        with mock.patch.object(planning.emulated, "TENSOR_TILES", tiles):
            return plan_of(kernel, layout, sizes, options)
    return planning.plan(gemm.from_layout(layout, *sizes, **options), planning.H200, kernel)


def once_for_each_launch() -> Iterator[object]:
    """Yield FORMS, with a form marked slow if earlier forms have all of its launches: nvcc takes seconds for each form, and the
    text of every form is compared with the plan without nvcc."""
    seen: set[str] = set()
    for form in FORMS:
        plan = plan_of(*form.values)
        launches = {step.entry for step in plan.launches}
        yield pytest.param(*form.values, id=form.id, marks=[pytest.mark.slow] if launches <= seen else [])
        seen |= launches
