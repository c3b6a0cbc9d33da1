"""What the verifications of one reference share: truths and outputs, found by what they follow from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mm32.verify.batch import truths
from mm32.verify.processes.channel import Reply
from support.verify.fixtures import REFERENCE

pytestmark = pytest.mark.usefixtures("no_gpu")


class Asked:
    """A reference's process that counts the truths that it is asked for."""

    def __init__(self) -> None:
        self.truths = 0

    def ask(self, op: str, value: Any = None, **fields: Any) -> Reply:
        self.truths += op == "truth"
        value = {"construct": {"init": [], "state": {"w": torch.ones(2)}}, "truth": torch.full((2,), self.truths)}.get(
            op
        )
        if op in ("make_inputs", "forward"):
            value = [torch.full((3,), float(fields["seed"]))]
        return Reply({}, value)


def test_truths_are_found_by_what_they_follow_from(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(REFERENCE)
    kept = truths.Truths()

    def answers(seed: int, adopt: bool = False) -> int:
        worker = Asked()
        kept.watch(worker, str(tmp_path / "r.py"))  # type: ignore[arg-type]
        worker.ask("construct", seed=1)
        worker.ask("make_inputs", seed=seed)
        if adopt:
            worker.ask("adopt")
        worker.ask("forward", seed=seed)
        worker.ask("truth", seed=seed)
        return worker.truths

    assert [answers(1), answers(1), answers(2), answers(2), answers(1)] == [1, 0, 1, 0, 0]
    assert [answers(1, adopt=True), answers(1, adopt=True)] == [1, 1]  # the data are not known, so nothing is kept
    assert (kept.found, kept.asked) == (3, 7)
    (tmp_path / "r.py").write_text(REFERENCE + "\n")
    assert answers(1) == 1
    kept.most = 0
    kept._keep(("x",), Reply({}, torch.ones(4)))
    assert ("x",) not in kept.answers


def test_large_contents_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    value = [torch.ones(1 << 10), 3]
    monkeypatch.setattr(truths, "LARGEST", (4 << 10) - 1)
    assert truths.fingerprint(value) != truths.fingerprint(value)
    monkeypatch.setattr(truths, "LARGEST", 4 << 10)
    assert truths.fingerprint(value) == truths.fingerprint(value)


@pytest.mark.parametrize("op", ["make_inputs", "forward"])
def test_answers_to_large_data_are_neither_found_nor_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    """A second process of the reference with the same data is asked anew; later answers to small data are found again."""
    (tmp_path / "r.py").write_text(REFERENCE)
    kept = truths.Truths()
    monkeypatch.setattr(truths, "LARGEST", 1 << 20)

    def answers(large: bool) -> int:
        worker = Asked()
        plain = worker.ask

        def ask(asked: str, value: object = None, **fields: object) -> Reply:
            reply = plain(asked, value, **fields)
            return Reply(reply.header, torch.ones(1 << 19)) if large and asked == op else reply

        worker.ask = ask  # type: ignore[method-assign]
        kept.watch(worker, str(tmp_path / "r.py"))  # type: ignore[arg-type]
        for name in ("construct", "make_inputs", "forward", "truth"):
            worker.ask(name, seed=1)
        return worker.truths

    assert [answers(True), answers(True)] == [1, 1]
    assert not kept.answers
    assert [answers(False), answers(False)] == [1, 0]
    assert (kept.found, kept.asked) == (1, 4)


def test_fingerprints_tell_contents_apart() -> None:
    one = torch.arange(6.0)
    different = [one, one.reshape(2, 3), one.double(), one + 1, [one], {"a": one}, one.int(), 1, 1.0, True, "1", None]
    assert len({truths.fingerprint(value) for value in different}) == len(different)
    assert truths.fingerprint([one, (2, "x")]) == truths.fingerprint([one.clone(), (2, "x")])
    assert truths.fingerprint(one.reshape(2, 3).T) == truths.fingerprint(one.reshape(2, 3).T.contiguous())


@pytest.mark.parametrize("entries", [0, 1, 5, truths.ROW, truths.ROW + 1, 100_003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.float64])
def test_what_stands_for_a_cards_tensor_tells_it_apart(entries: int, dtype: torch.dtype) -> None:
    values = torch.randint(0, 256, (entries * dtype.itemsize,), dtype=torch.uint8)
    found = truths.condensed(values.view(dtype))
    assert found.numel() <= truths.ROW
    assert torch.equal(found, truths.condensed(values.clone().view(dtype)))
    for place in {0, len(values) // 2, len(values) - 1} if entries else ():
        other = values.clone()
        other[place] ^= 1 << place % 8
        assert not torch.equal(found, truths.condensed(other.view(dtype))), place
    if entries > 1:
        assert not torch.equal(found, truths.condensed(values.roll(1).view(dtype)))
