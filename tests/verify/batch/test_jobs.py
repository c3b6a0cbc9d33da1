"""Which candidates a batch has: jobs from scripts, folders and pairs, and what is refused before anything runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mm32.verify.batch.cards import CPU, Card, chosen
from mm32.verify.batch.jobs import Options, Pair, in_folder, make
from mm32.verify.entry import WrongArgument
from support.verify.fixtures import REFERENCE, RIGHT

pytestmark = pytest.mark.usefixtures("no_gpu")


def test_jobs_are_told_apart_by_contents_and_options(scripts: tuple[Path, Path]) -> None:
    reference, folder = scripts
    pairs = in_folder(reference, folder)
    assert [pair.name for pair in pairs] == ["a.py", "b.py"]
    first, again, other = make(pairs, Options()), make(pairs, Options()), make(pairs, Options(trials=2))
    assert [job.id for job in first] == [job.id for job in again]
    assert not {job.id for job in first} & {job.id for job in other}
    assert first[0].seed == first[1].seed  # one reference in one run has one seed
    assert first[0].seed != again[0].seed  # a new run has a seed that no candidate has met
    (folder / "a.py").write_text(RIGHT + "\n")
    changed = make(pairs, Options())
    assert changed[0].id != first[0].id
    assert changed[1].id == first[1].id
    reference.write_text(REFERENCE + "\n")
    assert make(pairs, Options())[1].id != first[1].id


def test_a_reference_among_the_candidates_is_none(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    with pytest.raises(WrongArgument, match="there are no candidates"):
        in_folder(tmp_path / "reference.py", tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trials": 0}, "trials must be an integer, 1 at least, got 0"),
        ({"timeout": -1.0}, "timeout must be a positive number"),
        ({"baselines": ("eager", "fast")}, "baselines are some of eager, compile, tf32"),
        ({"baselines": ("eager", "eager")}, "each once"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongArgument, match=says):
        Options(**options)


def test_cards_that_are_not_there_are_refused() -> None:
    assert chosen(None) == [Card(CPU, "")]
    with pytest.raises(WrongArgument, match="there are 0 cards here, 2 were asked for"):
        chosen("2")
    with pytest.raises(WrongArgument, match="a number or"):
        chosen("both")


def test_a_script_that_cannot_be_taken_is_named(tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.py"))
    odd.write_text(RIGHT)
    with pytest.raises(WrongArgument, match="is not UTF-8: rename it"):
        make([Pair(reference, odd, odd.name)], Options())
    with pytest.raises(WrongArgument, match="cannot be read: Is a directory"):
        make([Pair(reference, tmp_path, "folder")], Options())
