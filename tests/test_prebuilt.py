"""Cubins that come with the package: how they are made, found, and passed over. No GPU is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from mm32 import gemm
from mm32.cuda import compile as compiler
from mm32.cuda import launch, prebuilt
from mm32.errors import CompileError, LaunchError
from mm32.plan import H200, Launch, plan
from mm32.plan.card import A100
from mm32.plan.forms import forms
from support import driver_stub

ROOT = Path(__file__).parent.parent
SOURCE, CONSTANTS, ARCH = "fma/naive.cu", (("BIAS", 0), ("ACTIVATION", 0), ("ALONG_M", 0)), "sm_90a"
OTHER = (("BIAS", 1), ("ACTIVATION", 0), ("ALONG_M", 0))


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and an empty folder of cubins that come with the package, which is the fixture's value."""
    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path / "cubins")
    return tmp_path / "cubins"


def made(*constants: tuple[tuple[str, int], ...]) -> tuple[Launch, ...]:
    return tuple(Launch(SOURCE, "mm32_naive", each, 128, 0, unit=(128,)) for each in constants)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> driver_stub.Driver:
    return driver_stub.install(monkeypatch)


def test_what_is_kept_is_found(folders: Path) -> None:
    assert prebuilt.find(SOURCE, CONSTANTS, ARCH) is None
    path = prebuilt.keep(SOURCE, CONSTANTS, ARCH)
    code = prebuilt.find(SOURCE, CONSTANTS, ARCH)
    assert code == compiler.compile_cubin(SOURCE, CONSTANTS, ARCH)[0]
    assert path.parent == folders
    assert path.stat().st_size < len(code)
    assert prebuilt.find(SOURCE, OTHER, ARCH) is None
    assert prebuilt.find(SOURCE, CONSTANTS, "sm_80") is None
    (entry,) = prebuilt.entries()
    assert (entry.kernel, entry.arch, entry.constants) == (SOURCE, ARCH, "BIAS=0 ACTIVATION=0 ALONG_M=0")


def test_what_is_of_other_sources_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    prebuilt.keep(SOURCE, CONSTANTS, ARCH)
    whole = compiler.full_source
    monkeypatch.setattr(compiler, "full_source", lambda source: whole(source) + "\n")
    assert prebuilt.find(SOURCE, CONSTANTS, ARCH) is None


@pytest.mark.parametrize("damage", ["cut", "flipped", "not compressed", "empty"])
def test_a_damaged_file_is_as_if_it_were_not_there(damage: str) -> None:
    path = prebuilt.keep(SOURCE, CONSTANTS, ARCH)
    data = path.read_bytes()
    header = compiler.header(SOURCE, CONSTANTS, ARCH, "x")
    changed = {"cut": data[:-10], "flipped": data[:-1] + bytes([data[-1] ^ 1]), "empty": b""}
    path.write_bytes(changed.get(damage, compiler.pack(b"no zlib", header)))
    assert prebuilt.find(SOURCE, CONSTANTS, ARCH) is None


def test_nvrtc_is_not_loaded_for_what_came_with_the_package(folders: Path) -> None:
    prebuilt.keep(SOURCE, CONSTANTS, ARCH)
    program = (
        "import sys\nfrom pathlib import Path\nfrom mm32.cuda import prebuilt\n"
        f"prebuilt.FOLDER = Path({str(folders)!r})\n"
        f"assert prebuilt.find({SOURCE!r}, {CONSTANTS!r}, {ARCH!r})\n"
        "assert not [name for name in sys.modules if name.startswith('cuda.core') or 'nvrtc' in name], sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": "src"})


def test_a_launch_takes_what_came_with_the_package(driver: driver_stub.Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    prebuilt.keep(SOURCE, CONSTANTS, ARCH)
    code = prebuilt.find(SOURCE, CONSTANTS, ARCH)
    monkeypatch.setattr(compiler, "compile_cubin", lambda *_: pytest.fail("compiled"))
    (one,) = made(CONSTANTS)
    assert launch._cubins((one,), ARCH) == {}
    assert driver.code(launch._library(one, ARCH, {}, "a test")) == code


@pytest.mark.parametrize("lazy", [False, True])
def test_what_the_driver_refuses_is_compiled(
    driver: driver_stub.Driver, lazy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuilt.keep(SOURCE, CONSTANTS, ARCH)
    (one,) = made(CONSTANTS)
    damaged = prebuilt.find(SOURCE, CONSTANTS, ARCH)
    assert damaged is not None
    driver.refuses.append(damaged)
    driver.lazy = lazy
    right = b"of this machine"
    monkeypatch.setattr(compiler, "cubin", lambda *_: right)
    assert driver.code(launch._library(one, ARCH, {}, "a test")) == right
    driver.refuses.append(right)
    driver.lazy = False
    with pytest.raises(LaunchError, match="CUDA_ERROR_200"):
        launch._library(one, ARCH, {}, "a test")


def test_a_plan_compiles_its_launches_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    together = threading.Barrier(2, timeout=20)  # breaks, which is an error, if one compilation waits for the other

    def compile_one(source: str, constants: tuple, arch: str) -> bytes:
        together.wait()
        return repr(constants).encode()

    monkeypatch.setattr(compiler, "cubin", compile_one)
    launches = (*made(CONSTANTS, OTHER), *made(CONSTANTS))
    assert launch._cubins(launches, ARCH) == {(SOURCE, each): repr(each).encode() for each in (CONSTANTS, OTHER)}


def test_where_no_thread_may_start_launches_compile_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    monkeypatch.setattr(compiler, "cubin", lambda source, constants, arch: repr(constants).encode())
    assert launch._cubins(made(CONSTANTS, OTHER), ARCH) == {
        (SOURCE, each): repr(each).encode() for each in (CONSTANTS, OTHER)
    }


def test_what_the_cache_has_is_read_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (CONSTANTS, OTHER):
        compiler.cubin(SOURCE, each, ARCH)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", lambda *_: pytest.fail("a thread"))
    assert len(launch._cubins(made(CONSTANTS, OTHER), ARCH)) == 2


def test_an_error_of_one_compilation_is_raised() -> None:
    wrong = Launch("fma/simt.cu", "mm32_simt", (("BIAS", 7),), 128, 0, unit=(128,))
    with pytest.raises(CompileError, match=r"fma/simt\.cu for sm_90a with BIAS=7"):
        launch._cubins((*made(CONSTANTS), wrong), ARCH)


# ---------------------------------------------------------------------------------------------------------------------
# Which are usual


@pytest.fixture(scope="module")
def prebuild() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import prebuild

    return prebuild


@pytest.mark.parametrize("card", [H200, A100], ids=lambda card: card.name)
def test_usual_forms_are_enough_for_the_recorded_plans(prebuild: Any, card: Any) -> None:
    chosen = set(prebuild.usual(card))
    plans = [plan(product, card, torch="fp32").launches for product in prebuild.products()]
    plans = [launches for launches in plans if launches]
    covered = sum(all((one.source, one.constants) in chosen for one in launches) for launches in plans)
    assert 0.95 * len(plans) <= covered
    assert len(prebuild.usual(card, 0.5)) <= len(chosen)
    sources = {source for _, source, _, _ in forms()}
    assert {source for source, _ in chosen} <= sources


def test_a_linear_layer_needs_no_compiling(prebuild: Any) -> None:
    """Its product with a bias and its gradients, which most models' first step computes, come with the package."""
    chosen = set(prebuild.usual(H200))
    forward = torch.empty(2048, 768, device="meta"), torch.empty(2304, 768, device="meta").T
    gradient = torch.empty(2048, 2304, device="meta")
    bias = torch.empty(2304, device="meta")
    for a, b, added in ((*forward, bias), (gradient, forward[1].T, None), (gradient.T, forward[0], None)):
        out = torch.empty(a.shape[0], b.shape[1], device="meta")
        launches = plan(gemm.describe(a, b, added, out), H200, torch="fp32").launches
        assert launches
        assert {(one.source, one.constants) for one in launches} <= chosen


def test_the_products_are_those_of_the_records(prebuild: Any) -> None:
    listed = list(prebuild.products())
    assert gemm.from_layout("tt", 2048, 4096, 8192) in listed
    assert any(product.batches == 64 and product.k == 64 for product in listed)
    assert len(listed) == len({(g.m, g.n, g.k, g.batches, g.layout, g.bias, g.activation) for g in listed})
