"""kernelbench.py, corpus.py, batch.py and exports.py of benchmarks/ without a card: what they verify, in which order, and
what their records say.

verify_many is a stub here, except in one run of the parts that a batch is made of.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from mm32 import verify
from mm32.verify import Report, Reports, Verdict
from mm32.verify.batch import run as batch_run
from mm32.verify.batch.jobs import Options, Pair, of_pairs
from support.records import assert_verdicts_are_whole
from support.verify import many
from support.verify.entries import ENTRIES

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
PROBLEM = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    """A Model of one product."""
    def __init__(self, n):
        super(Model, self).__init__()
        self.n = n

    def forward(self, x):
        return x * self.n, x.sum()

def get_inputs():
    return [torch.rand(4)]

def get_init_inputs():
    return [3]  # Model'''


def load(name: str) -> ModuleType:
    """Import a script under a name of its own: there are other modules named batch and kernelbench."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def table(name: str, made: dict[str, Any]) -> list[str]:
    """Return the lines of the table that tables.py makes from a record."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    text: str = getattr(importlib.import_module("rendering.verdicts"), name)(lambda _: made, lambda name: f"({name})")
    return [line for line in text.splitlines() if line]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


class Stub:
    """Stands in for verify_many: each candidate gets the verdict that `verdict` gives for its name and script."""

    def __init__(self, verdict: Any, stop_after: int | None = None):
        self.verdict, self.stop_after = verdict, stop_after
        self.calls: list[list[str]] = []
        self.options: list[dict[str, Any]] = []

    def __call__(self, pairs: list[Pair], **options: Any) -> Stub:
        self.pairs = of_pairs(pairs)
        self.calls.append([pair.name for pair in pairs])
        self.options.append(options)
        return self

    def __len__(self) -> int:
        return len(self.pairs)

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        pass

    def __iter__(self) -> Iterator[Report]:
        for pair in self.pairs[: self.stop_after]:
            timing = {"speedup": 1.5, "interval": [1.4, 1.6]}
            found = Report(str(pair.reference), str(pair.candidate), 1, seconds=6.0, building=2.0, timing=timing)
            found.verdict = self.verdict(pair.name, pair.candidate.read_text())
            yield found


# ---------------------------------------------------------------------------------------------------------------------
# kernelbench.py


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    for level, count in ((1, 5), (2, 5), (3, 2)):
        folder = tmp_path / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for number in range(1, count + 1):
            (folder / f"{number}_P.py").write_text(PROBLEM + f"\n# {level} {number}\n")
    return tmp_path / "KernelBench"


def test_a_class_is_renamed_and_nothing_else() -> None:
    text = load("kernelbench").renamed(PROBLEM + "\nx = a.Model, 'Model'", "Other")
    assert text == (PROBLEM + "\nx = a.Model, 'Model'").replace("class Model(", "class Other(").replace(
        "super(Model,", "super(Other,"
    )


@pytest.mark.parametrize("kind", ["self", "zeros", "stale"])
def test_a_copy_answers_rightly_for_as_long_as_it_should(kind: str, problems: Path) -> None:
    kernelbench = load("kernelbench")
    problem = kernelbench.Problem(1, problems / "level1" / "1_P.py")
    script, after = kernelbench.candidate(problem, PROBLEM, kind, seed=0)
    assert (script, after) == kernelbench.candidate(problem, PROBLEM, kind, seed=0), "a run goes on by its contents"
    found: dict[str, Any] = {}
    exec(script, found)
    model = found["ModelNew"](3)
    assert model.state_dict().keys() == set()
    for call in range(25):
        x = torch.full((4,), call + 1.0)
        got, right = model(x), (3 * x, x.sum())
        if after is not None and call >= after:
            right = {"zeros": (torch.zeros(4), torch.zeros(())), "stale": (torch.full((4,), 3.0), torch.tensor(4.0))}[
                kind
            ]
        assert all(torch.equal(a, b) for a, b in zip(got, right, strict=True)), call
    assert after is None if kind == "self" else 3 <= after <= 20


def test_a_sample_has_as_many_of_each_level_and_grows(problems: Path) -> None:
    sample = load("kernelbench").sample
    small, large = sample(problems, (1, 2, 3), 5, seed=1), sample(problems, (1, 2, 3), 9, seed=1)
    assert [p.level for p in small] == [1, 2, 3, 1, 2]
    assert Counter(p.level for p in large) == {1: 3, 2: 3, 3: 2}, "a level may have fewer"
    assert set(small) <= set(large)
    assert len(set(large)) == 8
    orders = {tuple(p.path.name for p in sample(problems, (1,), 5, seed=s)) for s in range(4)}
    assert len(orders) > 1


def test_what_is_not_installed_is_told() -> None:
    text = "import torch, no_such_thing.part\nfrom neither import x\nfrom . import y\nimport json\n"
    assert load("kernelbench").missing(text) == ["neither", "no_such_thing"]


def test_what_a_copy_may_come_to() -> None:
    fits = load("kernelbench").fits
    assert {v.name for v in Verdict if fits("self", v)} == {"INCONCLUSIVE", "SUSPECT"}
    assert {v.name for v in Verdict if fits("compiled", v)} == {"INCONCLUSIVE", "SUSPECT", "FASTER", "SLOWER"}
    assert {v.name for v in Verdict if fits("stale", v)} == {"DIFFERENT", "NOT_BUILT", "CRASHED", "TIMED_OUT"}
    undecided = {v.name for v in Verdict if fits("zeros", v) is None}
    assert undecided == {"REFERENCE_FAILED", "NO_VERDICT", "TOOL_FAILED"}


def test_honest_copies_come_first_and_a_problem_without_a_verdict_is_not_cheated(
    problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problems / "level3" / "1_P.py").write_text("import no_such_thing\n" + PROBLEM)

    def verdict(name: str, script: str) -> Verdict:
        if "level2_1_" in name:
            return Verdict.NO_VERDICT
        if "_compiled" in name:
            return Verdict.SLOWER
        if "_self" in name:
            return Verdict.FASTER if "level1_2_" in name else Verdict.INCONCLUSIVE
        return Verdict.SLOWER if "level1_3_P_stale" in name else Verdict.DIFFERENT

    stub = Stub(verdict)
    monkeypatch.setattr(verify, "verify_many", stub)
    out = tmp_path / "out.json"
    assert (
        load("kernelbench").main([str(problems), "--sample", "15", "-o", str(out), "--store", str(tmp_path / "s")]) == 1
    )
    honest, cheats = stub.calls
    assert len(honest) == 2 * 11
    assert all(name.endswith("_self.py") for name in honest[::2])
    assert all(name.endswith("_compiled.py") for name in honest[1::2])
    assert [name[:6] for name in honest[:6:2]] == ["level1", "level2", "level3"] or honest[4].startswith("level1")
    assert len(cheats) == 2 * 10
    assert not any("level2_1_" in name for name in cheats)
    assert [name.rpartition("_")[0] for name in cheats[::2]] == [name.rpartition("_")[0] for name in cheats[1::2]]
    assert stub.options[0]["store"] == tmp_path / "s"
    made = json.loads(out.read_text())
    rows = {(row["level"], row["problem"]): row for row in made["rows"]}
    assert len(rows) == 12
    assert rows[3, "1_P.py"]["needs"] == ["no_such_thing"]
    assert rows[3, "1_P.py"]["results"] == {}
    assert made["summary"]["not installed"] == 1
    assert made["summary"]["self"]["missed"] == ["level1/2_P.py"]
    assert made["summary"]["self"]["verdicts"] == {"INCONCLUSIVE": 9, "NO_VERDICT": 1, "FASTER": 1}
    assert made["summary"]["stale"]["missed"] == ["level1/3_P.py"]
    assert_verdicts_are_whole(made)
    head, *lines = table("kernelbench", made)
    assert head == "12 problems drawn by seed 0, 1 of which need a module that was not installed."
    itself = "itself, renamed: the same, neither faster nor slower"
    assert lines[2] == f"| {itself} | 1 | 5 | 4 SAME, SPEED INCONCLUSIVE; 1 SAME, FASTER | `2_P` | 4.0, 4.0 |"
    assert lines[3] == f"| {itself} | 2 | 5 | 4 SAME, SPEED INCONCLUSIVE; 1 NO VERDICT | none | 4.0, 4.0 |"
    assert len(lines) == 2 + 12 + 1
    assert lines[-1] == "(kernelbench)"
    result = rows[1, "2_P.py"]["results"]["self"]
    assert (result["seconds"], result["building"], result["speedup"]) == (4.0, 2.0, 1.5)
    assert rows[1, "2_P.py"]["results"]["zeros"]["after"] >= 3


def test_a_run_that_ends_early_keeps_what_it_has_and_says_so(
    problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = Stub(lambda name, script: Verdict.INCONCLUSIVE, stop_after=2)
    monkeypatch.setattr(verify, "verify_many", stub)
    out = tmp_path / "out.json"
    options = [str(problems), "--sample", "5", "--levels", "1", "--only", "self", "--limit", "60", "-o", str(out)]
    assert load("kernelbench").main(options) == 0
    assert json.loads(out.read_text())["summary"]["self"]["done"] == 2
    assert "with some left to do" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        load("kernelbench").main([str(tmp_path)])
    assert "there are no problems in" in capsys.readouterr().err


def test_nothing_is_begun_after_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = load("verify_runs")
    monkeypatch.setattr(verify, "verify_many", lambda *_, **__: pytest.fail("it was begun"))
    late = runs.Run(limit=0.0, store=None)
    assert list(late.reports([Pair(tmp_path, tmp_path, "a")])) == []
    assert late.over
    nothing = runs.Run(limit=None, store=None)
    assert list(nothing.reports([])) == []
    assert not nothing.over


def test_reports_that_are_stopped_end_with_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reports are those of the real verify_many; the worker does nothing until it is to stop."""

    class Idle:
        def __init__(self, *_: object, **__: object):
            self.stopping = batch_run.threading.Event()
            self.stop = self.stopping.set

        def run(self) -> None:
            assert self.stopping.wait(20)

    monkeypatch.setattr(batch_run, "Worker", Idle)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    reports = Reports(batch_run.Batch(of_pairs([(tmp_path / "a", tmp_path / "b")]), Options(), gpus=0))
    assert len(reports) == 1
    reports.stop()
    assert list(reports) == []


# ---------------------------------------------------------------------------------------------------------------------
# corpus.py


def test_the_corpus_begins_with_what_only_a_card_runs_and_ends_with_what_compiles() -> None:
    ordered = load("corpus").ordered(ENTRIES)
    assert ordered != list(ENTRIES)
    assert set(ordered) == set(ENTRIES)
    where = [(entry.compiles, entry.device == "both") for entry in ordered]
    assert where == sorted(where)
    assert where[-1][0]


def test_the_corpus_record_has_what_each_had_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = Stub(lambda name, script: Verdict.FASTER if name == "t_patched_clocks.py" else Verdict.INCONCLUSIVE)
    monkeypatch.setattr(verify, "verify_many", stub)
    out = tmp_path / "out.json"
    assert load("corpus").main(["-o", str(out), "cheats/t_", "honest/t_"]) == 1
    made = json.loads(out.read_text())
    must = {row["name"]: (row["must"], row["got"], row["fits"]) for row in made["rows"]}
    assert must.keys() == {e.name for e in ENTRIES if e.path.name.startswith("t_") and e.device != "cuda"}
    assert must["cheats/t_patched_clocks"] == ("not FASTER", "FASTER", False)
    assert all(fits == (wanted != "not SAME") for wanted, got, fits in must.values() if got == "INCONCLUSIVE")
    assert "cheats/t_patched_clocks" in made["summary"]["missed"]
    assert made["summary"]["false_alarms"] == []
    assert made["of"] == len(must) == made["summary"]["cheats"] + made["summary"]["honest"]
    assert stub.options[0]["trials"] == 2
    assert_verdicts_are_whole(made)
    lines = table("corpus", made)
    cheats = sum(name.startswith("cheats/") for name in must)
    passed = sorted(name for name, (*_, fits) in must.items() if not fits)
    (of_group, everything, named) = lines[2:5]
    figures = f"| {cheats} | {len(passed)} | {len(must) - cheats} | 0 | {len(must) - cheats} |"
    assert of_group.startswith(f"| `t_` clocks, caches, streams {figures}")
    assert everything.startswith(f"| all {figures}")
    assert named == f"Passed: {', '.join(f'`{name}`' for name in passed)}. Refused, or without a verdict: none."
    assert "cheats/t_patched_clocks" in passed
    assert everything.endswith("| 4.0, 4.0 |")
    assert table("corpus", made | {"of": 99})[0] == f"{len(must)} of 99 files were reached."


# ---------------------------------------------------------------------------------------------------------------------
# batch.py


def test_sixty_candidates_of_every_kind() -> None:
    few, all_ = many.sources(), many.sources((1024, 2048, 1024), more=True)
    assert (len(few), len(all_)) == (40, 60)
    assert few.keys() <= all_.keys()
    assert len({source for source, _ in all_.values()}) == 60
    assert Counter(name[0] for name in all_) == {"r": 21, "s": 4, "w": 26, "b": 3, "c": 3, "h": 3}
    for name, (source, verdicts) in all_.items():
        if name != "b_syntax.py":
            compile(source, name, "exec")
        assert ("M, K, N = 1024, 2048, 1024" in source) == (name[0] in "rsw")
        assert all(verdict.same == (name[0] in "rs") for verdict in verdicts)


@pytest.mark.parametrize("name", sorted({*many.RIGHT, *many.MORE_RIGHT, *many.SLOW}))
def test_candidates_that_are_right_are(name: str) -> None:
    sources = many.sources((16, 24, 8), more=True)
    found: dict[str, Any] = {}
    exec(sources[f"r_{name}.py" if f"r_{name}.py" in sources else f"s_{name}.py"][0], found)
    A, B = torch.randn(24, 16), torch.randn(8, 24)
    torch.testing.assert_close(found["ModelNew"]()(A, B), torch.relu(A.T @ B.T), rtol=1e-5, atol=1e-5)


def test_a_batchs_record_counts_what_is_wrong_and_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(name: str, script: str) -> Verdict:
        broken = {"b": Verdict.NOT_BUILT, "c": Verdict.CRASHED, "h": Verdict.TIMED_OUT, "w": Verdict.DIFFERENT}
        return Verdict.INCONCLUSIVE if name == "w_bf16.py" else broken.get(name[0], Verdict.SLOWER)

    out = tmp_path / "out.json"
    monkeypatch.setattr(verify, "verify_many", stub := Stub(verdict, stop_after=59))
    assert load("batch").main(["-o", str(out), "--timeout", "30"]) == 1
    assert [name[0] for name in stub.calls[0][:3]] == ["h"] * 3
    made = json.loads(out.read_text())
    said = made["summary"]
    assert (said["candidates"], said["lost"], said["wrong"]) == (60, 1, 1)
    assert said["building"] == 2 * 59
    assert "rate_besides_building" not in said
    assert stub.options[0]["timeout"] == made["timeout"] == 30
    assert made["method"].startswith(
        "60 generated candidates for one reference as one batch, with a time limit of 30 s for each "
    )
    assert made["method"].endswith("where batches have 300 s, and no limit for the whole")
    (wrong,) = [row for row in made["rows"] if not row["fits"]]
    assert (wrong["name"], wrong["verdict"], wrong["expected"]) == ("w_bf16.py", "INCONCLUSIVE", ["DIFFERENT"])
    assert_verdicts_are_whole(made)
    lines = importlib.import_module("rendering.verdicts").batch("batch")(lambda _: made, lambda name: "").splitlines()
    assert "| candidates | 60 |" in lines
    assert "| lost | 1 |" in lines
    assert not any("besides loading" in line for line in lines)
    assert any(line.startswith("| verdicts | 25 DIFFERENT; 25 SAME, SLOWER; 3 ") for line in lines)
    monkeypatch.setattr(verify, "verify_many", Stub(verdict))
    assert load("batch").main(["r_", "-o", str(out), "--limit", "3600"]) == 0
    made = json.loads(out.read_text())
    assert made["method"] == (
        "21 generated candidates for one reference as one batch, with a time limit of 300 s for each step of a candidate, as "
        "batches have it, and a limit of 3600 s for the whole"
    )


def test_more_candidates_are_copies_of_those_that_come_to_an_end(tmp_path: Path) -> None:
    batch = load("batch")
    _, folder, expected = batch.many.write(tmp_path, batch.many.SIZES, more=True)
    made = batch.more(folder, expected, 200)
    copies = made.keys() - expected.keys()
    assert (len(made), len(copies)) == (200, 140)
    assert {name[0] for name in copies} == {"r", "s", "w"}
    assert len({(folder / name).read_text() for name in made}) == 200
    assert made["r_mm.py"] == made[next(name for name in copies if name.startswith("r_mm-"))]
    assert batch.more(folder, expected, 60) == expected


def test_the_page_names_the_time_limit_of_the_batch_that_it_shows() -> None:
    made = json.loads((BENCHMARKS / "results" / "nvidia-h200" / "batch.json").read_text())
    page = " ".join((BENCHMARKS.parent / "docs" / "batches.md").read_text().split())
    default = inspect.signature(verify.verify_many).parameters["timeout"].default
    assert default == load("batch").BATCHES
    assert f"`python benchmarks/batch.py --timeout {made['timeout']:g}`" in page
    assert f"may take {made['timeout']:g} s here, not the {default:g} s that `mm32 verify` allows by default" in page


def test_how_far_groups_of_processes_lie_apart() -> None:
    power = load("power")
    first = {name: {"call_s": seconds} for name, seconds in (("reference", 1.1), ("control", 1.1), ("candidate", 1.0))}
    groups = [{"speedup": 1.0, "control": 1.02}, {"speedup": 1.0, "control": 0.98}]
    rows = [
        {"kind": "faster", "timing": {**first, "groups": []}},
        {"kind": "faster", "timing": {**first, "groups": []}},
        {"kind": "identical", "timing": {**first, "groups": groups}},
        {"kind": "identical", "timing": {}},
    ]
    found = power.apart(rows)
    assert found["faster"] == [pytest.approx(1.1), 0.0]
    assert found["identical"] == [1.0, 0.0]
    assert found["control"] == pytest.approx(0.02 / 2**0.5, rel=0.02)
    assert found["first_control"] == pytest.approx(1.02 ** (1 / 3))
    assert set(power.apart([]).values()) == {None}


# ---------------------------------------------------------------------------------------------------------------------
# exports.py


def test_exported_files_are_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a card: the record has each problem and kernel, and a wrong one is not passed over."""
    exports = load("exports")
    monkeypatch.setattr(exports.verify_runs, "DEVICE", "cuda")
    out = tmp_path / "out.json"
    for wrong, code in ((None, 0), ("nt_dot.py", 1)):
        given = {str(wrong): Verdict.DIFFERENT, "tt_naive.py": Verdict.SLOWER}
        stub = Stub(lambda name, script, given=given: given.get(name, Verdict.FASTER))
        monkeypatch.setattr(verify, "verify_many", stub)
        assert exports.main(["naive", "dot", "-o", str(out)]) == code
        made = json.loads(out.read_text())
        assert {row["case"]: list(row["results"]) for row in made["rows"]} == {
            key: ["naive", "dot"] for key in exports.PROBLEMS
        }
        assert set(made["kernels"]) == {"naive", "dot"}
        assert made["rows"][0]["results"]["naive"]["verdict"] == "SLOWER"
        assert (
            made["rows"][1]["results"]["dot"]["exit_code"] == (Verdict.DIFFERENT if wrong else Verdict.FASTER).exit_code
        )
    assert [pair.reference.name for pair in stub.pairs[:5]] == [f"matmul_{problem}.py" for problem in exports.PROBLEMS]


def test_exports_go_on_with_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exports = load("exports")
    monkeypatch.setattr(exports.verify_runs, "DEVICE", "cuda")
    out = tmp_path / "out.json"
    monkeypatch.setattr(verify, "verify_many", Stub(lambda name, script: Verdict.SLOWER, stop_after=3))
    assert exports.main(["dot", "-o", str(out)]) == 1, "two files are left"
    monkeypatch.setattr(verify, "verify_many", stub := Stub(lambda name, script: Verdict.FASTER))
    assert exports.main(["naive", "dot", "--resume", "-o", str(out)]) == 0
    assert len(stub.pairs) == 7
    made = json.loads(out.read_text())["rows"]
    assert [row["results"]["dot"]["verdict"] for row in made] == ["SLOWER"] * 3 + ["FASTER"] * 2
    assert all(list(row["results"]) == ["naive", "dot"] for row in made)


def test_exports_name_a_kernel_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load("exports").main(["fast"])
    assert "no kernel fast: they are naive," in capsys.readouterr().err
