"""The tool itself, run on candidates that are right, wrong, hostile or broken. Real processes, on the CPU."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mm32.verify import Report, Verdict, compare, verify
from mm32.verify.judging.judge import Judgement
from mm32.verify.processes import process
from support.verify.fixtures import HEAD, LINEAR, REFERENCE, RIGHT, Leftovers, Run, forward

SAME = {verdict for verdict in Verdict if verdict.same}


# ---------------------------------------------------------------------------------------------------------- same


@pytest.mark.usefixtures("whole_windows")
def test_a_right_candidate_is_the_same(run: Run) -> None:
    report = run(RIGHT)
    assert report.verdict in SAME
    assert report.exit_code in (0, 1, 3, 4)
    assert [t["same"] for t in report.trials] == [True, True]
    assert [t["seed"] for t in report.trials] == [1, 2]
    for trial in report.trials:
        assert trial["candidate"] == trial["reference"]
        assert 0 < trial["candidate"]["normwise"] < 3e-7 < trial["bound"]["normwise"] < 1e-6
    contraction = report.problem["contraction"]
    assert {name: contraction[name] for name in "mnk"} == {"m": 64, "n": 96, "k": 80}
    assert (contraction["activation"], contraction["bias"]) == ("relu", None)
    assert {p["name"]: p["status"] for p in report.probes} == dict.fromkeys(
        [
            *(
                "peaked",
                "rare rows",
                "randn",
                "integers",
                "selects A",
                "selects B",
                "range of A",
                "range of B",
                "NaN and Inf",
                "scaled",
            ),
            "another first call",
            "other strides",
        ],
        "same",
    )
    assert all(case["caught"] for case in report.self_test)
    assert {"zeros", "half of K", "operands rounded to TF32", "one NaN"} <= {case["name"] for case in report.self_test}
    assert report.inputs_unmodified is True
    assert report.deterministic is True
    chosen, odd = {"at random", "farthest from the reference's"}, {p["name"] for p in report.probes}
    assert len([t for t in report.timed_outputs if t["why"] in chosen]) == 4
    assert chosen < {t["why"] for t in report.timed_outputs} <= chosen | odd
    assert all(t["same"] for t in report.timed_outputs)
    assert report.timing is not None
    assert report.timing["coverage"] >= 0.9
    # null_s contains exchange_s. They are medians of different windows, and differ little where calls are short.
    assert report.timing["null_s"] > 0.8 * report.timing["exchange_s"] > 0
    assert report.timing["alone_s"] > 0
    assert report.timing["interval"][0] <= report.timing["speedup"] <= report.timing["interval"][1]
    assert report.environment["torch"]


@pytest.mark.usefixtures("whole_windows")
def test_slower_by_work_is_slower(run: Run) -> None:
    report = run(forward("for _ in range(40): C = torch.relu(A.T @ B.T)\nreturn C"), trials=1)
    assert report.verdict is Verdict.SLOWER
    assert report.timing is not None
    assert report.timing["speedup"] < 0.5


@pytest.mark.usefixtures("whole_windows")
def test_faster_than_a_reference_that_works_twice(run: Run) -> None:
    slow = REFERENCE.replace(
        "return torch.relu", "for _ in range(40): torch.matmul(A.T, B.T)\n        return torch.relu"
    )
    report = run(RIGHT, slow, trials=1)
    assert report.verdict is Verdict.FASTER
    assert report.timing is not None
    assert report.timing["speedup"] > 2


def test_parameters_are_copied(run: Run) -> None:
    own = LINEAR.replace("class Model(", "class ModelNew(").replace("torch.randn(outer", "torch.zeros(outer")
    report = run(own, LINEAR)
    assert report.verdict in SAME
    assert report.problem["contraction"]["bias"] == "parameter bias"
    assert report.problem["parameters"] == {"weight": "(96, 80) float32", "bias": "(96,) float32"}
    assert {p["status"] for p in report.probes} == {"same"}


def test_parameters_of_other_names_come_from_the_same_seed(run: Run) -> None:
    own = LINEAR.replace("class Model(", "class ModelNew(").replace("self.bias", "self.offset")
    report = run(own, LINEAR, trials=1)
    assert report.verdict in SAME, report.reason
    assert report.parameters_by == "seed"
    assert any("it has no 'bias' (96,)" in note for note in report.notes)
    of_calls = ("other strides", "another first call")
    assert {p["status"] for p in report.probes if p["name"] not in of_calls} == {"skipped"}


def test_parameters_of_other_names_and_values_are_different(run: Run) -> None:
    own = LINEAR.replace("class Model(", "class ModelNew(").replace(
        "self.bias = nn.Parameter(torch.randn(outer))", "torch.randn(1); self.bias = torch.randn(outer)"
    )
    assert run(own, LINEAR, trials=1).verdict is Verdict.DIFFERENT


def test_outputs_may_be_trees_and_no_contraction(run: Run) -> None:
    reference = REFERENCE.replace(
        "return torch.relu(torch.matmul(A.T, B.T))",
        "return {'soft': torch.softmax(A, 0), 'more': (A.sum(), torch.argmax(A), 3, 'x')}",
    )
    right = (
        reference.replace("class Model(", "class ModelNew(").replace("(A.sum(),", "[A.sum(),").replace("'x')", "'x']")
    )
    report = run(right, reference)
    assert report.verdict in SAME, report.reason
    assert report.problem["contraction"] is None
    assert {p["name"] for p in report.probes if p["status"] == "same"} >= {"zero-mean", "negated", "times 100", "a NaN"}
    wrong = right.replace("torch.argmax(A)", "torch.argmax(A) + 1")
    assert "output['more'][1]: 1 of 1 entries are not exactly the reference's" in run(wrong, reference).reason


# ---------------------------------------------------------------------------------------------------------- different

DRAWS = """
import torch
from torch import nn

class {name}(nn.Module):
    def forward(self, x, scale):
        return torch.nn.functional.dropout(x, 0.5) * scale

def get_inputs():
    return {{"x": torch.rand(64, 80), "scale": torch.rand(80)}}
"""

COUNTS = """
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls

def get_inputs():
    return [torch.rand(64, 80)]
"""


@pytest.mark.parametrize("source", [DRAWS, COUNTS], ids=["random numbers and named inputs", "state"])
def test_timed_calls_draw_the_same_numbers_and_start_from_the_same_state(run: Run, source: str) -> None:
    report = run(source.format(name="ModelNew"), reference=source.format(name="Model"))
    assert report.verdict in SAME, report.reason
    assert report.timing is not None
    assert len(report.timed_outputs) >= 4
    assert all(kept["same"] for kept in report.timed_outputs)


MUTANTS = {
    "TF32": (
        forward(
            "return torch.relu(r(A.T) @ r(B.T))",
            "def r(x):\n    i = x.contiguous().view(torch.int32)\n    return ((i + 0x1000) & ~0x1FFF).view(torch.float32)\n",
        ),
        "normwise error",
    ),
    "bfloat16": (forward("return torch.relu(A.T.bfloat16() @ B.T.bfloat16()).float()"), "normwise error"),
    "forgets relu": (forward("return A.T @ B.T"), "probe 'randn'"),
    "half of K": (forward("return torch.relu(A.T[:, :40] @ B.T[:40])"), "normwise error"),
    "NaN": (forward("C = torch.relu(A.T @ B.T)\nC[5, 7] = float('nan')\nreturn C"), "are NaN where"),
    "all NaN": (forward("return torch.full((64, 96), float('nan'))"), "are NaN where"),
    "drops NaN": (forward("return torch.nan_to_num(torch.relu(A.T @ B.T))"), "probe 'NaN and Inf'"),
    "reads the first place of K again, times 0": (
        forward("return torch.relu(A.T @ B.T + (A[:1].T * 0) @ (B[:, :1].T * 0))"),
        "probe 'NaN and Inf'",
    ),
    "reads the last place of K again, times 0": (
        forward("return torch.relu(A.T @ B.T + (A[-1:].T * 0) @ (B[:, -1:].T * 0))"),
        "probe 'NaN and Inf'",
    ),
    "uninitialised": (forward("return torch.empty(64, 96).fill_(20.0)"), "normwise error"),
    "one element": (forward("C = torch.relu(A.T @ B.T)\nC[63, 95] *= 1.001\nreturn C"), "(63, 95)|error"),
    "transposed": (forward("return torch.relu(B @ A)"), "shape (96, 64)"),
    "float64": (forward("return torch.relu(A.T.double() @ B.T.double())"), "dtype torch.float64"),
    "a tuple": (forward("return (torch.relu(A.T @ B.T),)"), "built differently"),
    "nothing": (forward("pass"), "the reference's is (64, 96) float32"),
    "modifies its inputs": (forward("C = torch.relu(A.T @ B.T)\nA.mul_(2)\nreturn C"), "modifies its inputs"),
    "caches by identity": (
        forward(
            "key = (id(A), A.data_ptr(), A.shape)\n"
            "if key not in CACHE: CACHE[key] = torch.relu(A.T @ B.T)\nreturn CACHE[key]",
            "CACHE = {}",
        ),
        "error",
    ),
    "caches late": (
        forward(
            "COUNT.append(1)\n"
            "if len(COUNT) > 60 and LAST: return LAST[0]\n"
            "LAST[:] = [torch.relu(A.T @ B.T)]\nreturn LAST[0]",
            "COUNT, LAST = [], []",
        ),
        "the output of a timed call",
    ),
    "another shape late": (
        forward(
            "COUNT.append(1)\nC = torch.relu(A.T @ B.T)\nreturn C if len(COUNT) < 60 else C[:, :1]",
            "COUNT = []",
        ),
        "the candidate's output of a timed call: output is (64, 1) torch.float32 on cpu",
    ),
    "writes later": (
        forward(
            "C = torch.zeros(64, 96)\nthreading.Timer(0.3, lambda: C.copy_(torch.relu(A.T @ B.T))).start()\nreturn C",
            "import threading",
        ),
        "error",
    ),
    "huge": (
        forward("return torch.zeros(64, 96).expand(3000, 64, 96).contiguous()"),
        "far larger than the reference's",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_candidates_are_different(run: Run, name: str) -> None:
    source, says = MUTANTS[name]
    report = run(source)
    assert report.verdict is Verdict.DIFFERENT, (report.verdict, report.reason)
    assert report.exit_code == 5
    assert any(part in report.reason for part in says.split("|")), report.reason
    if report.wrong or name == "caches late":
        assert report.picture is not None
        assert not report.picture["same"]
        assert report.picture["outputs"][0]["wrong"] > 0
        assert (report.picture["of"] == "a timed call") == (name == "caches late")


def test_a_check_that_could_not_have_failed_gives_no_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare.selftest.run, "__defaults__", (None, (), lambda *_: Judgement(True)))
    report = run(RIGHT, trials=1)
    assert report.verdict is Verdict.NO_VERDICT
    assert report.exit_code == 10
    assert "zeros" in report.reason
    assert report.timing is None


def test_a_reference_no_better_than_tf32_gives_no_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # As by torch's own setting on a GPU, the operator that computes a product rounds its operands.
    reference = REFERENCE.replace("class Model(", FAKE_TF32 + "class Model(")
    report = run(reference.replace("class Model(", "class ModelNew("), reference, trials=1)
    assert report.verdict is Verdict.NO_VERDICT, report.reason
    assert report.problem["contraction"]["k"] == 80
    assert "the reference's own result is further from its float64 run than rounding explains" in report.reason


FAKE_TF32 = """
def rounded(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
def mm(a, b):  # below what records the reference's operators
    if a.dtype is torch.float32: a, b = rounded(a), rounded(b)
    return torch.bmm(a[None], b[None])[0]
library = torch.library.Library("aten", "IMPL")
library.impl("mm", mm, "CPU")
"""


def test_a_reference_whose_answer_is_constant_gives_no_verdict(run: Run) -> None:
    reference = REFERENCE.replace("return torch.relu(torch.matmul(A.T, B.T))", "return torch.zeros(3) * A[0, 0]")
    report = run(reference.replace("class Model(", "class ModelNew("), reference, trials=1)
    assert report.verdict is Verdict.NO_VERDICT
    assert "zeros" in report.reason


# ---------------------------------------------------------------------------------------------------------- broken

BROKEN = {
    "exception": (forward("raise ValueError('no such luck')"), Verdict.CRASHED, "ValueError: no such luck"),
    "no ModelNew": (REFERENCE, Verdict.NOT_BUILT, "defines no class ModelNew; it defines Model."),
    "syntax error": ("def f(:\n  pass\n", Verdict.NOT_BUILT, "SyntaxError: invalid syntax (line 1)"),
    "import error": ("import no_such_module\n", Verdict.NOT_BUILT, "No module named 'no_such_module'"),
    "constructor": (
        HEAD + "class ModelNew(nn.Module):\n    def __init__(self, size): super().__init__()\n",
        Verdict.NOT_BUILT,
        "missing 1 required positional argument: 'size'",
    ),
    "segfault": (forward("ctypes.string_at(0)", "import ctypes"), Verdict.CRASHED, "SIGSEGV"),
    "os._exit(0)": ("import os\nos._exit(0)\n", Verdict.CRASHED, "ended itself with exit code 0"),
    "sys.exit(0)": ("import sys\nsys.exit(0)\n", Verdict.CRASHED, "sys.exit(0)"),
    "kills itself": (forward("os.kill(os.getpid(), 9)", "import os"), Verdict.CRASHED, "SIGKILL"),
    "recursion": (forward("return self.forward(A, B)"), Verdict.CRASHED, "RecursionError"),
    "lazy tensor": (
        forward("return torch.relu(A.T @ B.T).as_subclass(Lazy)", "class Lazy(torch.Tensor): pass"),
        Verdict.CRASHED,
        "a plain torch.Tensor is needed",
    ),
    "odd output": (forward("return {1, 2}"), Verdict.CRASHED, "output is a set, which cannot be handed over"),
    "the reference's globals": (forward("return SECRET"), Verdict.CRASHED, "NameError: name 'SECRET' is not defined"),
    "shadows a module": (
        "open('json.py', 'w').write('raise SystemExit')\nimport importlib, sys\nsys.modules.pop('json')\nimport json\n"
        "assert json.loads('1') == 1\nraise ValueError('not shadowed')\n",
        Verdict.NOT_BUILT,
        "not shadowed",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_candidates_are_reported(run: Run, name: str, leftovers: Leftovers) -> None:
    source, verdict, says = BROKEN[name]
    report = run(source, trials=1)
    assert report.verdict is verdict, report.reason
    assert says in report.reason
    assert not leftovers()


def test_the_place_of_an_exception_is_shown(run: Run) -> None:
    report = run(forward("x = 1\nraise ValueError('no such luck')"), trials=1)
    assert (report.error["line"], report.error["source"]) == (7, "raise ValueError('no such luck')")


def test_a_failing_reference_is_not_the_candidates_fault(run: Run) -> None:
    report = run(RIGHT, REFERENCE.replace("return torch.relu", "raise KeyError('oops')\n        return torch.relu"))
    assert report.verdict is Verdict.REFERENCE_FAILED
    assert report.exit_code == 9
    assert "KeyError: 'oops'" in report.reason
    assert run(RIGHT, REFERENCE.replace("get_inputs", "inputs")).verdict is Verdict.REFERENCE_FAILED


@pytest.mark.parametrize(
    "source", [pytest.param("while True: pass\n", marks=pytest.mark.slow), "import time\ntime.sleep(1000)\n"]
)
def test_a_hang_is_ended(run: Run, source: str, leftovers: Leftovers) -> None:
    start = time.monotonic()
    report = run(source, timeout=4.0)
    assert report.verdict is Verdict.TIMED_OUT
    assert report.exit_code == 8
    assert time.monotonic() - start < 20
    assert not leftovers()


def test_children_are_ended_with_their_parent(run: Run, leftovers: Leftovers) -> None:
    source = (
        "import subprocess, sys, os, time\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)\n"
    ) + RIGHT
    report = run(source, trials=1)
    assert report.verdict in SAME
    assert not leftovers()


def test_a_forked_child_does_not_answer(run: Run, leftovers: Leftovers) -> None:
    report = run(forward("import os\nos.fork()\nreturn torch.relu(A.T @ B.T)"), trials=1)
    assert report.verdict in {*SAME, Verdict.CRASHED}
    assert not leftovers()


def test_a_fork_bomb_is_ended(run: Run, leftovers: Leftovers) -> None:
    source = (
        "import os, time\n"
        "for _ in range(1000):\n"
        "    if os.fork() == 0:\n        time.sleep(100)\n        os._exit(0)\n"
        "time.sleep(100)\n"
    )
    report = run(source)
    assert report.verdict is Verdict.CRASHED
    # Each process counts the memory that it shares with its parent as its own: with many cores the memory limit may come first.
    limits = (f"more than {process.MAX_PROCESSES} processes", "GiB of memory, more than the limit of")
    assert any(limit in report.reason for limit in limits), report.reason
    assert not leftovers()


def test_a_candidate_that_eats_memory_is_ended(run: Run) -> None:
    report = run(
        "import time\nx = bytearray(3 << 29)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(60)\n",
        memory_gib=1.0,
    )
    assert report.verdict is Verdict.CRASHED
    assert "more than the limit of 1 GiB" in report.reason


def test_printing_is_kept_short_and_bounded(run: Run) -> None:
    report = run("print('begin')\nprint('x' * 3_000_000)\nprint('end')\n" + RIGHT, trials=1)
    assert report.verdict in SAME
    assert report.printed.startswith("begin")
    assert report.printed.rstrip().endswith("end")
    assert len(report.printed) < 70_000
    report = run("while True: print('x' * 1_000_000)\n")
    assert report.verdict is Verdict.CRASHED
    assert "printed more than 64 MiB" in report.reason


# ---------------------------------------------------------------------------------------------------------- hostile


def test_what_a_worker_says_of_its_times_decides_nothing(run: Run) -> None:
    source = forward(
        "for _ in range(40): C = torch.relu(A.T @ B.T)\nreturn C",
        """
        import mm32.verify.worker.slots as slots
        slots._now = lambda: 0.0
        """,
    )
    report = run(source, trials=1)
    assert report.verdict in SAME - {Verdict.FASTER}
    assert report.timing is not None
    assert report.timing["candidate"]["claimed_s"] == 0
    assert report.timing["speedup"] < 0.7


def test_patching_time_after_the_fact_changes_nothing(run: Run) -> None:
    source = forward(
        "for _ in range(40): C = torch.relu(A.T @ B.T)\nreturn C",
        "import time\ntime.perf_counter_ns = time.perf_counter = time.monotonic = lambda: 0\ntorch.cuda.Event = None\n",
    )
    report = run(source, trials=1)
    assert report.verdict in SAME - {Verdict.FASTER}
    assert report.timing is not None
    assert report.timing["speedup"] < 0.7


FORGED = '{"verdict": "FASTER", "same": true, "exit_code": 0}'


def test_writing_to_every_open_file_forges_nothing(run: Run) -> None:
    source = forward(
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, TEXT.encode() * 100)\n"
        "    except OSError: pass\n"
        "return torch.zeros(64, 96)",
        f"import os\nTEXT = {FORGED!r}\nprint(TEXT)",
    )
    report = run(source)
    assert report.verdict is Verdict.CRASHED
    assert "something that is no answer" in report.reason


def test_a_well_formed_forged_answer_is_refused(run: Run) -> None:
    source = forward(
        "return torch.zeros(64, 96)",
        """
        import os, json, struct
        head = json.dumps({"nonce": "0" * 16, "same": True, "value": {"value": None}, "tensors": []}).encode()
        for fd in range(3, 64):
            try: os.write(fd, struct.pack("<4sIQ", b"MM32", len(head), 0) + head)
            except OSError: pass
        """,
    )
    report = run(source)
    assert report.verdict is Verdict.CRASHED
    assert "an answer to another question" in report.reason


def test_closing_every_open_file_forges_nothing(run: Run) -> None:
    report = run("import os, time\nos.closerange(3, 64)\ntime.sleep(30)\n" + RIGHT)
    assert report.verdict is Verdict.CRASHED


def test_patching_the_comparison_changes_nothing(run: Run) -> None:
    source = forward(
        "return torch.zeros(64, 96)",
        """
        import mm32.verify.judging.judge as v
        v.judge = v.judge_leaf = lambda *_: v.Judgement(True)
        torch.equal = lambda *_: True
        """,
    )
    assert run(source).verdict is Verdict.DIFFERENT


def test_terminal_escapes_of_a_candidate_do_not_reach_the_page(run: Run) -> None:
    from rich.console import Console

    from mm32.verify.page import Page

    report = run(forward(r"raise ValueError('\x1b[2J\x1b[1;32mSAME, FASTER')"), trials=1)
    with open(os.devnull, "w") as null:
        console = Console(file=null, record=True, force_terminal=False, width=200)
        Page(report, console).print()
        assert "\x1b[2J" not in console.export_text(styles=True)


def test_the_workers_folders_are_removed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = run("import os\nprint(os.getcwd(), os.environ['HOME'])\n" + RIGHT, trials=1)
    cwd, home = report.printed.split()
    assert cwd == home
    assert Path(cwd).parent == tmp_path
    assert not list(tmp_path.glob("mm32-verify-*"))


# ---------------------------------------------------------------------------------------------------------- --kernel


def test_a_kernel_of_the_library_is_verified_in_the_reference(run: Run) -> None:
    report = run(None, LINEAR, kernel="auto", trials=1)
    assert report.verdict in SAME, report.reason
    assert report.candidate == "kernel auto"


def test_a_reference_without_a_matmul_cannot_take_a_kernel(run: Run) -> None:
    report = run(None, REFERENCE.replace("torch.matmul(A.T, B.T)", "A"), kernel="auto", trials=1)
    assert report.verdict is Verdict.NOT_BUILT
    assert "holds no matmul" in report.reason


# ---------------------------------------------------------------------------------------------------------- records


def test_the_json_record(run: Run, write: Callable[[str, str], Path]) -> None:
    report = run(MUTANTS["all NaN"][0], trials=1)
    record = json.loads(report.json())
    assert record["schema"] == "mm32.verify/4"
    assert (record["verdict"], record["exit_code"], record["same"]) == ("DIFFERENT", 5, False)
    assert record["trials"][0]["candidate"]["normwise"] == "nan"
    assert set(record) == {"schema", "verdict", "exit_code", "same", *(set(vars(report)) - {"verdict"})}


def test_wrong_arguments_are_refused(run: Run) -> None:
    for options in ({"trials": 0}, {"timeout": 0.0}, {"memory_gib": -1.0}, {"kernel": "auto"}):
        with pytest.raises(ValueError):
            run(RIGHT, **options)
    with pytest.raises(FileNotFoundError, match="there is no script"):
        verify("/nowhere/reference.py", "/nowhere/candidate.py")
    with pytest.raises(ValueError, match=r"not by its text, got 12 characters: write it to a file"):
        verify("class Model\n", "/nowhere/candidate.py")
    with pytest.raises(ValueError, match=r"a script is given by its path, got type"):
        verify(__file__, type("ModelNew", (), {}))  # type: ignore[arg-type]
    assert isinstance(Report("a", "b", 0).exit_code, int)
