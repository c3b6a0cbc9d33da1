"""examples/notebooks/ladder.ipynb: it is stored without outputs, uses public names only, and runs from top to bottom, on a CPU
with small operands and on a card as it stands."""

from __future__ import annotations

import ast
import builtins
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from cuda.core import Program, ProgramOptions
from typer.testing import CliRunner

import mm32
from mm32 import demo
from mm32.cli import app
from mm32.export import export
from support.export import cuda_source

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebooks" / "ladder.ipynb"
HOST = "// The host's side."


@pytest.fixture(scope="module")
def stored() -> dict:
    return json.loads(NOTEBOOK.read_text())


def code(stored: dict) -> list[str]:
    return ["".join(cell["source"]) for cell in stored["cells"] if cell["cell_type"] == "code"]


def prose(stored: dict) -> str:
    return "\n".join("".join(cell["source"]) for cell in stored["cells"] if cell["cell_type"] == "markdown")


def executed(stored: dict, size: int | None, capsys) -> tuple[dict, str]:
    """Run the notebook, with operands of this size instead of its own, and return its names and what it printed."""
    names: dict = {"__name__": "__main__"}
    cells = code(stored)
    if size is not None:
        assert cells[0].count("SIZE = 4096") == 1
        cells[0] = cells[0].replace("SIZE = 4096", f"SIZE = {size}")
    before = torch.backends.cuda.matmul.allow_tf32
    torch.manual_seed(0)
    try:
        for number, cell in enumerate(cells):
            exec(compile(cell, f"cell {number}", "exec"), names)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return names, capsys.readouterr().out


def test_it_is_stored_as_it_was_before_it_ran(stored):
    assert (stored["nbformat"], stored["nbformat_minor"]) == (4, 5)
    assert stored["metadata"]["kernelspec"] == {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert len({cell["id"] for cell in stored["cells"]}) == len(stored["cells"])
    for cell in stored["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_it_names_what_is_public(stored):
    known = set(dir(builtins))
    for cell in code(stored):
        tree = ast.parse(cell)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mm32":
                assert node.attr in mm32.__all__
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module]
            for module in modules:
                root = module.split(".")[0]
                assert module == "mm32" or root == "torch" or root in sys.stdlib_module_names
            known |= {
                node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
        assert "%" not in cell[:1]
        assert "!" not in cell[:1]
    assert {"A", "B", "C64", "ladder"} <= known


def test_the_commands_that_it_names_work(stored, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(words) for words in re.findall(r"`mm32 ((?:explain|export|verify) [^`]+)`", prose(stored))]
    assert [words[0] for words in commands] == ["explain", "export", "verify"]
    for words in commands:
        if words[0] == "verify":
            assert words[1] == "--example"
            assert demo.example(words[2]).exists()
            assert (tmp_path / words[3]).exists()  # the file that export wrote
        else:
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, done.output
    asked = re.search(r"any|Any", (tmp_path / "tiled.py").read_text())
    assert asked  # so the file takes the example's sizes too
    for page in re.findall(r"`(docs/[\w.]+)`", prose(stored)):
        assert (NOTEBOOK.parents[2] / page).exists()


@pytest.mark.slow
def test_it_runs_on_a_cpu(stored, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a card: the other test runs it")
    names, printed = executed(stored, 256, capsys)
    assert "No GPU: mm32 leaves every product to torch" in printed
    for part in ("mm32_naive(", "mm32_tiled(", "fmaf(a_tile[k][slow]", "void multiply_tile(", "void step(Sums& sum"):
        assert printed.count(part) == 1, part
    assert printed.count("// Adds the products of a stage to the sums.") == 1
    assert [row[0] for row in names["ladder"]] == ["naive", "tiled", "simt", "fp16x3", "bf16x6"]
    for rung, mine, theirs, wrong in names["ladder"]:
        assert wrong <= 1e-6, rung
        assert 0 < mine < 10
        assert 0 < theirs < 10
    emulated, error, A, B = (names[name] for name in ("emulated", "error", "A", "B"))
    errors = {
        (dtype, parts): error(emulated(A, B, dtype, parts))
        for dtype, parts in ((torch.float16, 1), (torch.float16, 2), (torch.bfloat16, 1), (torch.bfloat16, 3))
    }
    assert 1e-4 < errors[torch.float16, 1] < 1e-3
    assert 1e-3 < errors[torch.bfloat16, 1] < 1e-2
    assert errors[torch.float16, 2] <= 1e-6
    assert errors[torch.bfloat16, 3] <= 1e-6
    wide = {
        what: float(number) for what, number in re.findall(r"^(fp16x3, no scaling|bf16x6): error (\S+)$", printed, re.M)
    }
    assert wide["bf16x6"] <= 1e-6
    assert not wide["fp16x3, no scaling"] <= 1e-5
    table = printed[printed.index("rung  ") :].splitlines()
    assert [line[:14].strip() for line in table] == [
        "rung",
        "torch fp32",
        "torch TF32",
        *(row[0] for row in names["ladder"]),
    ]


@pytest.mark.parametrize(
    "kernel",
    ["naive", "tiled", pytest.param("simt", marks=pytest.mark.slow), pytest.param("mma", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_what_it_shows_compiles(kernel, arch):
    """The device's part of the exported file compiles; the notebook prints parts of it."""
    device, host, _ = cuda_source(export("nn", m=4096, n=4096, k=4096, kernel=kernel)).partition(HOST)
    assert host
    options = ProgramOptions(arch=arch, std="c++17")
    cubin = Program(device, "c++", options).compile("cubin")
    assert len(cubin.code) > 1000


@pytest.mark.gpu
def test_it_runs_on_this_card(stored, capsys):
    names, printed = executed(stored, None, capsys)
    assert torch.cuda.get_device_name() in printed
    rungs = {row[0]: row for row in names["ladder"]}
    assert {"naive", "tiled", "simt", "fp16x3"} <= rungs.keys()
    assert ("bf16x6" in rungs) == (torch.cuda.get_device_capability() == (9, 0))
    for rung, mine, _, wrong in rungs.values():
        assert wrong <= 2e-6, rung
        assert 0 < mine < 60
    seconds = {rung: row[1] for rung, row in rungs.items()}
    assert seconds["simt"] < seconds["tiled"] / 2
    assert seconds["fp16x3"] < seconds["simt"]
    assert float(re.search(r"mm32.matmul on the wide rows: error (\S+)", printed)[1]) <= 2e-6
    assert "computed by: {}" not in printed
