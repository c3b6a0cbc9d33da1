"""The commands export, explain, env and cache: what they print and write, and how they exit."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import mm32
from mm32 import gemm
from mm32 import plan as planning
from mm32.cli import app
from mm32.cuda import launch
from mm32.export import export
from mm32.files import unwritable


@pytest.fixture
def run(monkeypatch):
    """A function that runs `mm32 ARGUMENTS` in this process, wide enough that no line is wrapped."""
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERM", "dumb")
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def here() -> planning.Card:
    return launch.planning_device()[0]


def test_export_writes_the_file_once(run, tmp_path):
    path = tmp_path / "model_new.py"
    request = ("export", "96x64x80:tn", "--activation", "relu", "--kernel", "simt")
    done = run(*request, "--bias", "-o", str(path))
    assert done.exit_code == 0, done.output
    expected = export("tn", m=96, n=80, k=64, bias=True, activation="relu", kernel="simt", device=here())
    assert path.read_text() == expected
    assert str(path) in done.output
    assert f"planned for {here().name}" in done.output
    path.write_text("mine")
    refused = run(*request, "-o", str(path))
    assert refused.exit_code == 2
    assert "--force" in refused.output
    assert path.read_text() == "mine"
    assert run(*request, "--bias", "-o", str(path), "--force").exit_code == 0
    assert path.read_text() == expected


def test_export_to_stdout_is_the_file_and_nothing_else(run):
    done = run("export", "2048x8192x4096:tt", "--kernel", "naive")
    assert done.exit_code == 0
    assert done.stdout == export("tt", m=2048, n=4096, k=8192, kernel="naive", device=here())
    ast.parse(done.stdout)


def test_export_linear_is_layout_nt(run):
    done = run("export", "12x16x8", "--linear", "--bias", "--kernel", "naive")
    assert done.stdout == export("nt", m=12, n=8, k=16, bias=True, linear=True, kernel="naive", device=here())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("8x8x8:xt",), "'8x8x8:xt': 'xt' is not a layout (nn, nt, tn, tt); an example is 2048x8192x4096:tt"),
        (("8x8",), "'8x8' is not of the form MxKxN[:layout], such as 2048x8192x4096:tt"),
        (("tt",), "'tt' is not of the form MxKxN[:layout], such as 2048x8192x4096:tt"),
        (("8x8x8:tt", "--kernel", "fast"), "unknown kernel 'fast': mm32 has 'auto', 'naive'"),
        (("8x8x8:tt", "--activation", "swish"), "unknown activation 'swish': mm32 fuses None, 'relu'"),
        (("8x8x8:tt", "--precision", "fp8"), "unknown precision 'fp8': mm32 has 'fp32', 'bf16x6', 'ieee'"),
        (("99999999999x9999999999x9999999",), "99999999999 x 9999999999 has more bytes"),
        ((), "give the product's sizes and layout, such as 2048x8192x4096:tt"),
    ],
)
@pytest.mark.parametrize("command", ["export", "explain"])
def test_what_is_unknown_is_named_with_what_is_known(run, command, arguments, message):
    done = run(command, *arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output


def test_export_to_a_folder_that_is_not_there(run, tmp_path):
    done = run("export", "8x8x8", "-o", str(tmp_path / "no" / "file.py"))
    assert done.exit_code == 2
    assert "there is no folder" in done.output


def test_explain_is_the_plan_and_names_the_card(run):
    request = ("--bias", "--activation", "gelu", "--kernel", "simt")
    done = run("explain", "300x100x200:nt", *request)
    asked = gemm.from_layout("nt", 300, 200, 100, bias=True, activation="gelu")
    assert done.exit_code == 0
    assert planning.plan(asked, here(), "simt").explain() in done.output
    said = "no CUDA device here" in done.output
    assert said == (not torch.cuda.is_available())
    assert here().name in done.output


@pytest.mark.parametrize("sizes", ["0x8x8", "8x8x0"])
def test_explain_of_an_empty_result_launches_nothing(run, sizes):
    done = run("explain", sizes, "--kernel", "simt")
    assert done.exit_code == 0
    assert "nothing is computed or launched" in done.output
    assert "launch " not in done.output
    assert "unknown kernel 'fast'" in run("explain", sizes, "--kernel", "fast").output


def test_version(run):
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"mm32 {mm32.__version__}\n")


def test_a_shell_completes_commands():
    code = "import sys; sys.argv[0] = 'mm32'; from mm32.cli import main; main()"
    source = os.pathsep.join([str(Path(mm32.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    words = {"_MM32_COMPLETE": "complete_bash", "COMP_WORDS": "mm32 e", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **words, "PYTHONPATH": source}
    )
    assert done.stdout.split() == ["export", "explain", "env", "errors"]


def test_errors_lists_headings_and_shows_entries(run, monkeypatch):
    from mm32 import error_page

    headings = run("errors")
    assert headings.exit_code == 0
    listed = dict(line.split(None, 1)[::-1] for line in headings.stdout.split("\n\n")[0].splitlines())
    assert listed == {name: str(count) for name, count in error_page.headings(error_page.entries()).items()}
    with pytest.raises(RuntimeError) as raised:
        mm32.matmul(torch.ones(7, 8), torch.ones(9, 10))
    message = str(raised.value)
    for asked in (
        [message],
        ["RuntimeError:", *message.split()],
        ["shapes cannot be multiplied (7x8 and 9x10) (mm32.matmul of"],
    ):
        done = run("errors", *asked)
        assert done.exit_code == 0
        assert done.stdout.startswith("Shapes\n\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")
        assert "Often one of them needs `.T`" in done.stdout
    log = CliRunner().invoke(app, ["errors", "-"], input=f"Traceback:\n  File x.py\nRuntimeError: {message}\n")
    assert log.stdout.startswith("Shapes\n\nRuntimeError: mat1 and mat2")
    every = run("errors", "out=")
    assert every.stdout.count("out=\n\n") == int(listed["out="]) > 5
    unknown = run("errors", "no such thing")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "no error of mm32's has a message like 'no such thing'" in unknown.stderr
    assert "`mm32 errors` lists them" in unknown.stderr
    monkeypatch.setattr(error_page, "path", lambda: Path("/no/errors.md"))
    error_page.entries.cache_clear()
    missing = run("errors", "no")
    assert missing.exit_code == 1
    assert "install mm32 again" in missing.stderr


def test_an_error_that_is_on_the_page_ends_with_what_it_says(run, tmp_path):
    script = tmp_path / "a.py"
    script.write_text("")
    leave_out = "Leave the option out"
    for said, *arguments in (
        ("K, the dimension that is summed over, stands between them", "explain", "12x13"),
        (leave_out, "export", "8x8x8", "--kernel", "fast"),
        ("which also takes sets by name", "bench", "--shapes", "12x13x1x1"),
        ("Take a name that is listed", "verify", "--example", "zz"),
        (leave_out, "verify", str(script), "--kernel", "fast"),
        ("A name is not known or stands twice", "verify", str(script), str(script), "--baseline", "fast"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, arguments
        shown = " ".join(done.output.replace("│", " ").split())
        assert shown.count(said) == 1, shown
    for arguments in (("explain", "--no-such-option"), ("explain",), ("verify", "/no/such/script.py")):
        done = run(*arguments)
        assert done.exit_code == 2
        assert len(done.output.replace("│", " ").strip().splitlines()) < 12, "nothing but the message"


def test_an_error_of_another_kind_ends_so_too(monkeypatch, capsys):
    from mm32 import cli, error_page

    def failing():
        raise mm32.CompileError("compiling fma/simt.cu for sm_90a with TILE_M=128 failed: no")

    monkeypatch.setattr(cli, "app", failing)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.splitlines()[-1].startswith("mm32: The compiler rejected a kernel, and its log follows.")
    assert error_page.pointer(
        "'1..100000+1': '1..100000+1' has 100000 sizes; 4096 are the most that one text may have"
    ) == ("What it means and what to do: mm32 errors 'PART OF THE MESSAGE'")
    assert error_page.pointer("no such error") == ""


def test_env_as_a_page_and_as_json(run, tmp_path, monkeypatch):
    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path / "cubins"))
    page = run("env")
    assert page.exit_code == 0
    for shown in (mm32.__version__, torch.__version__, str(tmp_path / "cubins")):
        assert shown in page.output
    report = json.loads(run("env", "--json").stdout)
    assert report["versions"]["torch"] == torch.__version__
    assert report["cache"]["folder"] == str(tmp_path / "cubins")


def test_cache_path_list_clear(run, tmp_path, monkeypatch):
    from mm32.cuda import compile as compiler
    from mm32.cuda import prebuilt

    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path / "cubins"))
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path / "came")
    assert run("cache", "path").stdout == f"{tmp_path / 'cubins'}\n"
    assert run("cache", "list").stdout == f"0 entries, 0 bytes in {tmp_path / 'cubins'}\n"
    plan = planning.plan(gemm.from_layout("nn", 8, 8, 8), planning.H200, "naive")
    code = compiler.cubin(plan.launches[0].source, plan.launches[0].constants, "sm_90a")
    listed = run("cache", "list").stdout
    (entry,) = compiler.entries()
    assert entry.bytes > len(code)
    for shown in ("fma/naive.cu", "sm_90a", "BIAS=0 ACTIVATION=0 ALONG_M=0", f"1 entry, {entry.bytes} bytes"):
        assert shown in listed
    assert "(compiled here, " in listed
    size = prebuilt.keep(plan.launches[0].source, plan.launches[0].constants, "sm_80").stat().st_size
    listed = run("cache", "list").stdout
    assert f"1 entry, {size} bytes came with mm32 ({tmp_path / 'came'})" in listed
    assert "(came with mm32, " in listed
    assert run("cache", "clear").stdout == f"removed 1 entry from {tmp_path / 'cubins'}\n"
    assert compiler.entries() == []


def test_cache_clear_names_what_it_cannot_remove(run, tmp_path, monkeypatch):
    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path))
    (tmp_path / "d.cubin").mkdir()
    (tmp_path / "e.cubin").write_bytes(b"")
    done = run("cache", "clear")
    assert done.exit_code == 1
    assert done.stdout == f"removed 1 entry from {tmp_path}\n"
    assert done.stderr == f"could not remove {tmp_path / 'd.cubin'} (Is a directory)\n"


def test_what_speaks_against_writing_a_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("kept")
    assert unwritable(tmp_path) == f"{tmp_path} is a folder"
    assert unwritable(tmp_path / "no" / "x.json") == f"there is no folder {tmp_path.resolve() / 'no'}"
    assert unwritable(tmp_path / "file" / "x.json") == f"there is no folder {tmp_path.resolve() / 'file'}"
    assert unwritable(tmp_path / "file") is None
    assert unwritable(tmp_path / "new") is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # because root may write everywhere
    assert unwritable(tmp_path / "file") == f"{tmp_path / 'file'} cannot be written"
    assert unwritable(tmp_path / "new") == f"{tmp_path / 'new'} cannot be written"
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("file", "kept")]


def test_in_a_process_of_its_own(tmp_path):
    source = Path(mm32.__file__).parent.parent
    command = [sys.executable, "-c", "from mm32.cli import main; main()", "explain", "2048x8192x4096:tt"]
    paths = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "M=2048 N=4096 K=8192, layout tt, epilogue none, precision fp32" in done.stdout
    failed = subprocess.run(
        [*command[:-1], "1x2x3:zz"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert failed.returncode == 2
    assert "'zz' is not a layout" in failed.stderr
    assert failed.stdout == ""
