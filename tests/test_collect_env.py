"""The report on this machine: what it contains, and that nothing broken prevents it."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mm32
from mm32 import collect_env, install
from mm32.cuda import launch
from mm32.plan import H200


def test_report_holds_what_is_here(tmp_path, monkeypatch):
    import platform

    import torch

    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path / "new" / "folder"))
    report = collect_env.collect()
    assert report["versions"]["mm32"] == mm32.__version__
    assert report["versions"]["Python"] == platform.python_version()
    assert report["versions"]["torch"] == torch.__version__
    assert len(report["devices"]) == torch.cuda.device_count()
    assert report["cache"] == {"folder": str(tmp_path / "new" / "folder"), "entries": 0, "bytes": 0, "writable": True}
    assert not (tmp_path / "new").exists()
    assert set(report["compilers"]) == {"nvcc", "ninja", "c++", "Python.h"}
    assert json.loads(json.dumps(report)) == report
    page = collect_env.text(report)
    for shown in (torch.__version__, platform.python_version(), str(tmp_path / "new" / "folder"), "0 entries"):
        assert shown in page


def test_cache_entries_are_counted(tmp_path, monkeypatch):
    from mm32.cuda import compile as compiler

    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path))
    header = {"kernel": "fma/naive.cu", "arch": "sm_90a", "constants": "", "compiler": "nvrtc"}
    (tmp_path / "a.cubin").write_bytes(compiler.pack(b"cubin", header))
    (tmp_path / "b.cubin").write_bytes(b"not one")
    report = collect_env.collect()
    assert report["cache"]["entries"] == 1
    assert report["cache"]["bytes"] == (tmp_path / "a.cubin").stat().st_size


def test_cache_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path / "file" / "cache"))
    report = collect_env.collect()
    assert report["cache"]["writable"] is False
    assert "NOT writable" in collect_env.text(report)
    monkeypatch.setenv("MM32_CACHE_DIR", "/proc/mm32")  # os.access tells root that it is writable
    assert collect_env.collect()["cache"]["writable"] is False


def test_every_probe_may_fail(monkeypatch):
    def broken(*_, **__):
        raise OSError("libfoo.so.1: cannot open shared object file")

    probes = ("mm32", "torch", "torch_cuda", "nvrtc", "driver", "devices", "compiler", "cache", "settings", "missing")
    for name in probes:
        monkeypatch.setattr(collect_env, f"_{name}", broken)
    monkeypatch.setattr(collect_env.importlib.metadata, "version", broken)
    monkeypatch.setattr(collect_env.platform, "platform", broken)
    report = collect_env.collect()
    said = "failed: OSError: libfoo.so.1: cannot open shared object file"
    assert report["versions"]["torch"] == said
    assert report["versions"]["cuda-core"] == said
    assert (
        report["devices"]
        == report["cache"]
        == report["missing"]
        == report["settings"]
        == report["compilers"]["nvcc"]
        == said
    )
    assert collect_env.text(report).count(said) >= 13


def test_missing_parts_come_with_the_line_that_brings_them(monkeypatch):
    found = {"cuda-core": "1.0", "cuda-bindings": None, "NVRTC": None, "torch": "2.11", "torch's CUDA": "12.8"}
    monkeypatch.setattr(install, "pip_install", lambda extra: f"pip install 'mm32[{extra}]'")
    whole = {"nvcc": "/usr/bin/nvcc", "c++": "/usr/bin/c++", "Python.h": "/usr/include/Python.h"}
    missing = collect_env._missing(found, whole | {"nvcc": None})
    gets = {m["get"]: m["what"] for m in missing}
    assert gets["pip install 'mm32[cu12]'"] == "cuda-bindings, NVRTC, to run kernels"
    assert gets["a CUDA toolkit, where there is a GPU"].startswith("nvcc, to build scripts with CUDA in load_inline")
    ((get, what),) = [
        (m["get"], m["what"])
        for m in collect_env._missing(found, whole | {"c++": None, "Python.h": None})
        if "c++" in m["what"]
    ]
    assert what.startswith("c++ and Python.h, to build scripts with C++ in load_inline")
    assert "apt install g++ python3-dev" in get
    monkeypatch.setattr(collect_env, "_package", lambda name: None if name in ("rich", "psutil") else "1")
    found = {"cuda-core": "1.0", "cuda-bindings": "13.0", "NVRTC": "13.0", "torch": "2.11", "torch's CUDA": "13.0"}
    assert collect_env._missing(found, whole) == [
        {"what": "rich, psutil, for the command line", "get": "pip install 'mm32[cli]'"}
    ]
    found["NVRTC"] = "12.9"
    assert collect_env._missing(found, whole)[0]["get"] == "pip install 'mm32[cu13]'"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install '.[cli]' in a checkout of mm32"),
        ('{"url": "file:///x/mm32", "dir_info": {}}', "pip install 'mm32[cli] @ file:///x/mm32'"),
        (
            '{"url": "file:///x/mm32-0.1.0.whl", "archive_info": {}}',
            "pip install 'mm32[cli] @ file:///x/mm32-0.1.0.whl'",
        ),
        (
            '{"url": "https://host/mm32", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
            "pip install 'mm32[cli] @ git+https://host/mm32@abc'",
        ),
        ("not json", "pip install '.[cli]' in a checkout of mm32"),
    ],
)
def test_the_command_that_installs_an_extra_names_where_mm32_came_from(tmp_path, monkeypatch, origin, command):
    from types import SimpleNamespace

    installed = SimpleNamespace(read_text=lambda name: origin if name == "direct_url.json" else None)
    monkeypatch.setattr(install.importlib.metadata, "distribution", lambda name: installed)
    monkeypatch.setattr(install, "__file__", str(tmp_path / "lib" / "site-packages" / "mm32" / "install.py"))
    assert install.pip_install("cli") == command


def test_the_command_that_installs_an_extra_in_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "__file__", str(tmp_path / "src" / "mm32" / "install.py"))
    (tmp_path / "pyproject.toml").touch()
    assert install.pip_install("cu13") == f"pip install -e '{tmp_path}[cu13]'"
    (tmp_path / "pyproject.toml").unlink()

    def broken(name):
        raise OSError("no metadata")

    monkeypatch.setattr(install.importlib.metadata, "distribution", broken)
    assert install.pip_install("cu13") == "pip install '.[cu13]' in a checkout of mm32"


def test_a_compiler_that_fails_is_shown(tmp_path, monkeypatch):
    for name, body in (("nvcc", "echo broken toolkit >&2; exit 3"), ("ninja", "echo 1.12.1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    compilers = collect_env.collect()["compilers"]
    assert compilers == {
        "nvcc": f"{tmp_path}/nvcc (failed: --version returned 3: broken toolkit)",
        "ninja": f"{tmp_path}/ninja (1.12.1)",
        "c++": None,
        "Python.h": collect_env._python_headers(),
    }


def test_without_cuda_bindings(monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.startswith("cuda"):
            raise ImportError("No module named 'cuda'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    assert collect_env._nvrtc() is None


def test_module_imports_only_the_standard_library():
    code = (
        "import sys, importlib.util as u; before = set(sys.modules);"
        f"s = u.spec_from_file_location('collect_env', {collect_env.__file__!r}); m = u.module_from_spec(s);"
        "s.loader.exec_module(m); roots = {n.partition('.')[0] for n in set(sys.modules) - before};"
        "print(sorted(roots - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_plans_are_for_an_h200_where_there_is_no_card(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert launch.planning_device() == (H200, False)


BROKEN = "raise OSError('libtorch_cuda.so: cannot open shared object file')\n"


@pytest.mark.parametrize(
    ("torch_is", "said"),
    [
        (BROKEN, "failed: OSError: libtorch_cuda.so: cannot open shared object file"),
        (
            "raise ModuleNotFoundError(\"No module named 'torch'\")\n",
            "failed: ModuleNotFoundError: No module named 'torch'",
        ),
        ("__version__ = '1.0'\n", "1.0"),  # a torch that lacks what mm32 needs
    ],
)
def test_env_runs_with_a_torch_that_does_not(tmp_path, torch_is, said):
    (tmp_path / "torch.py").write_text(torch_is)
    paths = os.pathsep.join([str(tmp_path), str(Path(mm32.__file__).parent.parent)])
    environ = {**os.environ, "PYTHONPATH": paths}

    def python(*arguments):
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environ, timeout=120)

    done = python("-m", "mm32", "env", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["versions"]["torch"] == said
    assert report["versions"]["mm32"].startswith(f"{mm32.__version__} (cannot be used: ")
    gets = [m["get"] for m in report["missing"]]
    assert ("pip install 'torch>=2.9'" in gets) == said.startswith("failed")
    page = python("-m", "mm32", "env")
    assert page.returncode == 0, page.stderr
    assert f"torch          {said}" in page.stdout
    # A name that needs torch says so when it is used; a name that does not exist fails as it always does.
    used = python("-c", "from mm32 import matmul")
    assert used.returncode == 1
    assert "ImportError: mm32.matmul needs torch, and that failed: " in used.stderr
    other = python("-c", "import mm32; print(hasattr(mm32, 'nothing'), mm32.CompileError.__name__)")
    assert other.stdout == "False CompileError\n"


@pytest.mark.gpu
def test_report_has_the_card():
    import torch

    report = collect_env.collect()
    p = torch.cuda.get_device_properties(0)
    assert report["devices"][0] == {
        "name": p.name,
        "capability": f"{p.major}.{p.minor}",
        "memory": p.total_memory,
        "multiprocessors": p.multi_processor_count,
    }
    assert "CUDA" in report["versions"]["driver"]
    device, present = launch.planning_device()
    assert (device.name, present) == (p.name, True)
