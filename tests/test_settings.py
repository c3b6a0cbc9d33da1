"""MM32_DISABLE and MM32_LOG: what they do, what is logged, and that a call of a known form logs nothing."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import mm32
from mm32 import collect_env, prepared, settings
from mm32 import plan as planning
from mm32.cli import app
from mm32.cuda import compile as compiler
from mm32.cuda import prebuilt
from mm32.dropin import DropIn, Left
from mm32.gemm import from_layout

ROOT = Path(__file__).parent.parent
OFF = "MM32_DISABLE is set"


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a process that was started with MM32_DISABLE=1."""
    monkeypatch.setattr(settings, "_disabled", True)
    monkeypatch.setattr(prepared, "_said", set())


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger "mm32", restored after the test."""
    log = logging.getLogger("mm32")
    before = log.handlers[:], log.level, log.propagate
    yield log
    log.handlers[:], log.level, log.propagate = before


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("MM32_DISABLE", "MM32_LOG")}
    environment |= {"PYTHONPATH": str(Path(mm32.__file__).parent.parent), **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)


# ---------------------------------------------------------------------------------------------------------------------
# MM32_DISABLE


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_products_are_torchs_and_the_log_says_so_once(off, card, caplog) -> None:
    a, b, bias = torch.randn(40, 300), torch.randn(300, 30), torch.randn(30)
    for _ in range(2):
        torch.testing.assert_close(mm32.matmul(a, b), a @ b)
        torch.testing.assert_close(mm32.linear(a, b.T, bias, activation="relu"), torch.relu(a @ b + bias))
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == [
        f"mm32 leaves its products to torch, in fp32: {OFF}"
    ]
    packed = mm32.pack(b)
    assert packed.nbytes == 0
    torch.testing.assert_close(mm32.matmul(a, packed), a @ b)
    with pytest.raises(ValueError, match=f"kernel 'simt' cannot run here: {OFF}: unset it, or ask for kernel 'auto'"):
        mm32.matmul(a, b, kernel="simt")
    with pytest.raises(ValueError, match="unknown kernel 'fast'"):
        mm32.matmul(a, b, kernel="fast")


def test_a_plan_says_that_it_is_off(off, monkeypatch) -> None:
    monkeypatch.setattr(prepared.launch, "card_of", lambda index: planning.H200)
    plan = prepared.planned(from_layout("nn", 4096, 4096, 4096), 0)
    assert (plan.kernel, plan.reason) == ("torch", OFF)
    assert f"kernel     torch: {OFF}" in plan.explain()


def test_the_command_explain_says_that_it_is_off(off) -> None:
    done = CliRunner().invoke(app, ["explain", "4096x4096x4096"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == f"{OFF}: mm32.matmul leaves this product to torch"
    assert "kernel     tensorcore" in done.stdout or torch.cuda.is_available()


def test_the_drop_in_takes_nothing_and_says_so_once(off, caplog) -> None:
    dropin = DropIn("CPU", lambda *_: Left("never asked"))
    with pytest.raises(ValueError, match="unknown precision 'fp8'"):
        dropin.request("me", "fp8")
    for _ in range(2):
        dropin.request("me", None)
        assert dropin._library is None
        dropin.withdraw("me")
    assert [r.message for r in caplog.records] == [f"mm32.enable() has no effect, torch's products stay its own: {OFF}"]


@pytest.mark.parametrize("value", ["1", "True", "on"])
def test_in_a_process_that_is_started_so(value: str) -> None:
    code = "import torch, mm32; mm32.enable()\n"
    code += "with mm32.enabled('ieee'): print(mm32.matmul(torch.ones(2, 3), torch.ones(3, 2)).sum())"
    done = python(code, MM32_DISABLE=value)
    assert done.stdout == "tensor(12.)\n"
    assert done.stderr == f"mm32.enable() has no effect, torch's products stay its own: {OFF}\n"


# ---------------------------------------------------------------------------------------------------------------------
# MM32_LOG


def test_the_level_is_that_of_the_logger(logger, monkeypatch, capsys) -> None:
    logger.handlers.clear()
    monkeypatch.setenv("MM32_LOG", "Info")
    settings.apply()
    logger.debug("too fine")
    logger.info("shown")
    assert re.fullmatch(r"[-\d]+ [\d:,]+ mm32 INFO: shown\n", capsys.readouterr().err)
    assert not logger.propagate


def test_values_that_are_not_known_are_named_with_those_that_are() -> None:
    done = python("import mm32", MM32_DISABLE="please", MM32_LOG="loud")
    assert done.returncode == 0
    assert done.stderr == (
        "MM32_DISABLE='please' is not known and has no effect: it takes 1, true, yes, on, 0, false, no, off\n"
        "MM32_LOG='loud' is not known and has no effect: it takes debug, info, warning\n"
    )


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_plan_is_logged_once_and_a_warm_call_logs_nothing(card, caplog) -> None:
    a, b = torch.ones(64, 4096), torch.ones(4096, 96)
    caplog.set_level(logging.DEBUG, "mm32")
    mm32.matmul(a, b)
    said, page = caplog.records
    assert said.levelname == "INFO"
    assert re.fullmatch(
        r"M=64 N=96 K=4096, layout nn, precision fp32 on cuda:-?\w+: kernel \w+ \(least .*\)", said.message
    )
    assert page.levelname == "DEBUG"
    assert page.message.startswith("gemm       M=64 N=96 K=4096, layout nn")
    for _ in range(3):
        mm32.matmul(a, b)
    assert len(caplog.records) == 2


def test_compilations_and_cache_hits_are_logged(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("MM32_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path / "came")
    monkeypatch.setattr(compiler, "compile_cubin", lambda *_: (b"cubin", ""))
    caplog.set_level(logging.DEBUG, "mm32")
    form = ("fma/naive.cu", (("BIAS", 0), ("ACTIVATION", 0), ("ALONG_M", 0)), "sm_90a")
    for _ in range(2):
        assert compiler.cubin(*form) == b"cubin"
    compiled, hit = caplog.records
    assert re.fullmatch(r"compiled fma/naive.cu for sm_90a by .* in 0\.\d\d s", compiled.message)
    assert compiled.levelname == "INFO"
    (entry,) = (tmp_path / "cache").iterdir()
    assert (hit.levelname, hit.message) == ("DEBUG", f"from the cache: {entry}")
    at = prebuilt.keep(*form)
    assert prebuilt.find(*form) == b"cubin"
    assert (caplog.records[-1].levelname, caplog.records[-1].message) == ("DEBUG", f"came with mm32: {at}")


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_what_the_drop_in_leaves_is_logged_once_a_form(caplog) -> None:
    caplog.set_level(logging.INFO, "mm32")
    dropin = DropIn("CPU", lambda *_: Left("the test says so"))
    dropin.request("me", None)
    try:
        for _ in range(3):
            torch.mm(torch.ones(7, 3), torch.ones(3, 5))
    finally:
        dropin.withdraw("me")
    assert [r.message for r in caplog.records] == ["mm of (7, 3) and (3, 5) is left to torch: the test says so"]
    assert dropin.stats().left == 3


# ---------------------------------------------------------------------------------------------------------------------
# Where they are shown


def test_env_shows_them(monkeypatch) -> None:
    for name, value in (("MM32_CACHE_DIR", "/x"), ("MM32_DISABLE", "1"), ("MM32_LOG", "loud")):
        monkeypatch.setenv(name, value)
    report = collect_env.collect()
    wrong = "'loud' is not known and has no effect: it takes debug, info, warning"
    others = {"MM32_CACHE_DIR": "/x", "MM32_DISABLE": "1", "MM32_LOG": wrong}
    assert report["settings"] == {**others, "MM32_WORKSPACE_LIMIT": settings.WORKSPACE_LIMIT.text or None}
    page = collect_env.text(report)
    assert f"MM32_DISABLE   1\nMM32_LOG       {wrong}" in page
    monkeypatch.setenv("MM32_WORKSPACE_LIMIT", "2GB")
    said = collect_env._settings()["MM32_WORKSPACE_LIMIT"]
    assert said is not None
    assert said.startswith("'2GB' is not a workspace limit: give a number of bytes")
    monkeypatch.delenv("MM32_LOG")
    assert "MM32_LOG       not set" in collect_env.text({**report, "settings": collect_env._settings()})


def test_the_table_has_every_variable_that_the_sources_read() -> None:
    table = re.findall(r"^\| `(MM32_\w+)` \| (.*?) \|", (ROOT / "docs" / "enabling.md").read_text(), flags=re.M)
    assert [name for name, _ in table] == [s.name for s in settings.SETTINGS]
    for setting, (_, takes) in zip(settings.SETTINGS, table, strict=True):
        assert setting.values is None or re.findall(r"`(\w+)`", takes) == list(setting.values)
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    read = set(re.findall(r"""environ(?:\.get\(|\[)["'](MM32_\w+)""", sources))
    assert read == set(), "read through mm32.settings"
