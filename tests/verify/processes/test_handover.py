"""Large tensors handed over without going through the host: what passes, what is refused, what a worker can do about it.

Memory of the host stands in for a card's, behind the same interface (memory.Region); tests/verify/test_on_gpu.py has a card's.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch.utils import _pytree as pytree

from mm32.verify import Verdict, session
from mm32.verify.exchange import handover, memory, wire
from mm32.verify.judging import pieces
from mm32.verify.processes.channel import Channel, Failure
from mm32.verify.timing import needed_memory
from support.verify.fixtures import RIGHT, Run, forward
from support.verify.handover import CPU, Runner, served

LEAST = 4096
BIG = torch.rand(64, 32)


@pytest.fixture(autouse=True)
def _little_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "LARGE", LEAST)


@contextlib.contextmanager
def answered(*answers: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[Channel]:
    """Yield the tool's end of a connection whose other end gives these answers, one to each request."""
    ours, theirs = socket.socketpair()

    def work() -> None:
        connection = wire.Connection(theirs, descriptors=True)
        with contextlib.suppress(wire.Closed):
            for answer in answers:
                header, _ = connection.receive()
                connection.send({"nonce": header["nonce"], "value": {"value": None}, **answer(header)})

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield Channel(ours, lambda: None, False, CPU)
    finally:
        ours.close()
        worker.join()
        theirs.close()


@pytest.mark.parametrize("trusted", [True, False])
def test_values_arrive_as_they_left_and_large_ones_not_by_the_host(
    monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    by_file: list[int] = []
    to_file = wire.to_file
    monkeypatch.setattr(wire, "to_file", lambda file, tensors: by_file.append(len(tensors)) or to_file(file, tensors))
    monkeypatch.setattr(wire, "LARGE", 1)
    large = {
        "transposed": torch.rand(60, 40).T,
        "truth": torch.rand(5000) > 0.5,
        "labels": torch.arange(999),
        "expanded": torch.rand(40, 1).expand(40, 50),
        "odd": torch.rand(4099).to(torch.bfloat16),
    }
    small = [torch.tensor(3), torch.empty(0, 4), torch.arange(7, dtype=torch.uint8)]
    value = [small[0], large["transposed"], small[1], (large["truth"], {"x": large["labels"]}), "text", small[2]]
    value += [large["expanded"], large["odd"]]
    runner = Runner()
    with served(runner, trusted) as channel:
        for _ in range(2):
            got = channel.ask("echo", value, {}, 1 << 20).value
            for there in (got, runner.seen[-1]):
                for (path, a), (other, b) in zip(wire.leaves(value), wire.leaves(there), strict=True):
                    assert path == other
                    assert a == b if isinstance(a, str) else torch.equal(a, b) and a.dtype == b.dtype, path
                assert there[1].stride() == (1, 40)
    assert by_file == [3] * 4, "the small ones alone, of two requests and two answers"


def test_what_is_too_small_or_elsewhere_is_not_handed_over() -> None:
    tensors = [torch.empty(LEAST, dtype=torch.uint8), torch.empty(LEAST - 1, dtype=torch.uint8)]
    assert handover.chosen([*tensors, torch.empty(LEAST, device="meta")], "cpu", LEAST) == [0]
    assert handover.chosen(tensors, "cuda:0", LEAST) == []


def test_nothing_is_handed_over_without_a_card() -> None:
    requests: list[dict[str, Any]] = []
    with answered(lambda request: requests.append(request) or {}) as channel:
        channel.device = None
        channel.ask("echo", BIG, {}, 1 << 20)
    assert not {"value_on_card", "answer_on_card"} & set(requests[0])


META = {"dtype": "float32", "shape": [64, 32], "order": [0, 1]}


@pytest.mark.parametrize(
    ("described", "says"),
    [
        (None, "malformed"),
        ([], "malformed"),
        ([0], "malformed"),
        ([[0, META, 1]], "malformed"),
        ([[True, META]], "malformed"),
        ([[1, META]], "numbers that the message has not"),
        ([[-1, META]], "numbers that the message has not"),
        ([[0, META], [0, META]], "numbers that the message has not"),
        ([[1, META], [0, META]], "numbers that the message has not"),
        ([[0, {**META, "dtype": "object"}]], "malformed"),
        ([[0, {**META, "shape": [-64, 32]}]], "malformed"),
        ([[0, {**META, "order": [0, 0]}]], "malformed"),
        ([[0, {**META, "shape": [64, 1]}]], "256 bytes on the card, where it takes 4096"),
        ([[0, {**META, "shape": [0, 32]}]], "0 bytes on the card"),
        ([[0, {**META, "shape": [1 << 40, 32]}]], "at most 20000 were expected"),
        ([[0, META], [1, META], [2, META]], "24576 bytes, where at most 20000"),
    ],
)
def test_forged_descriptions_are_refused_before_any_memory_is_made(
    monkeypatch: pytest.MonkeyPatch, described: Any, says: str
) -> None:
    def reserve(size: int, device: torch.device) -> memory.Region:
        raise AssertionError(f"{size} bytes")

    monkeypatch.setattr(memory, "reserve", reserve)
    with answered(lambda request: {"on_card": described}) as channel, pytest.raises(wire.ProtocolError, match=says):
        channel.ask("echo", None, {}, 20_000)


@pytest.mark.parametrize(("op", "device"), [("build", CPU), ("echo", None)])
def test_what_was_not_asked_for_is_refused(op: str, device: torch.device | None) -> None:
    """Tensors on a card are refused for a request whose answers have no tensors, and where there is no card."""
    with answered(lambda request: {"on_card": [[0, META]]}) as channel:
        channel.device = device
        with pytest.raises(wire.ProtocolError, match="not asked for"):
            channel.ask(op, None, {}, 1 << 20)


DESCRIBED = {"value": {"tensor": 0}, "on_card": [[0, META]]}


def test_what_a_worker_does_not_write_is_poison() -> None:
    def late(request: dict[str, Any]) -> dict[str, Any]:
        # It writes half of what it has described.
        handover.put([torch.ones(32, 32)], request["size"], request["descriptors"][0], CPU)
        return {}

    with answered(lambda request: DESCRIBED, lambda request: {}) as channel:
        assert channel.ask("echo", None, {}, 1 << 20).value.isnan().all()
    with answered(lambda request: DESCRIBED, late) as channel:
        got = channel.ask("echo", None, {}, 1 << 20).value
    assert got[:32].eq(1).all()
    assert got[32:].isnan().all()


def test_a_worker_that_keeps_the_memory_changes_nothing_behind_us() -> None:
    kept: list[memory.Region] = []

    def copied(request: dict[str, Any]) -> dict[str, Any]:
        region = memory.reserve(request["size"], CPU)
        region.map(request["descriptors"][0], [(0, request["size"])])
        region.bytes()[: request["size"]].view(torch.float32).fill_(2)
        kept.append(region)
        return {}

    with answered(lambda request: DESCRIBED, copied) as channel:
        got = channel.ask("echo", None, {}, 1 << 20).value
        kept[0].bytes().fill_(0)
        assert got.eq(2).all()
        got.fill_(3)
        assert kept[0].bytes().eq(0).all()
    kept[0].close()


def test_an_answer_to_another_question_is_refused_in_the_second_step_too() -> None:
    steps = (lambda request: DESCRIBED, lambda request: {"nonce": "0"})
    with answered(*steps) as channel, pytest.raises(wire.ProtocolError, match="another question"):
        channel.ask("echo", None, {}, 1 << 20)


def test_a_worker_that_fails_to_hand_over_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(*arguments: Any) -> None:
        os.close(arguments[2])
        raise RuntimeError("cuMemMap: out of memory (2)")

    with served(Runner()) as channel:
        with monkeypatch.context() as patched:
            patched.setattr(handover, "put", put)
            with pytest.raises(Failure, match="cuMemMap") as failed:
                channel.ask("echo", BIG, {}, 1 << 20)
            assert failed.value.kind == "raised"
        assert torch.equal(channel.ask("echo", BIG, {}, 1 << 20).value, BIG), "the next request is answered"


def test_memory_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = memory.reserve
    calls: list[int] = []

    def second(size: int, device: torch.device) -> memory.Region:
        calls.append(size)
        if len(calls) == 3:  # two calls are for the request, at both ends; the third is for the answer
            raise RuntimeError("cuMemAddressReserve: out of memory (2)")
        return reserve(size, device)

    runner = Runner()
    with served(runner) as channel:
        with monkeypatch.context() as patched:
            patched.setattr(memory, "reserve", second)
            with pytest.raises(Failure, match=r"no memory of the card is left to hand 0.0 GiB over \(cuMem") as failed:
                channel.ask("echo", BIG, {}, 1 << 20)
            assert failed.value.kind == "memory"
        assert torch.equal(channel.ask("echo", BIG, {}, 1 << 20).value, BIG), "the next request is answered"


@pytest.mark.parametrize(
    ("left", "reserved", "size", "freed"),
    [(80, 15, 20, False), (80, 15, 40, True), (40, 15, 0, True), (80, 35, 0, True), (80, 15, 0, False)],
)
def test_memory_of_the_card_is_given_back_where_it_matters(
    monkeypatch: pytest.MonkeyPatch, left: int, reserved: int, size: int, freed: bool
) -> None:
    """Of a card's 100 GB, `left` are free. This process has `reserved`, and uses 10 of these."""
    calls: list[int] = []
    monkeypatch.setattr(handover, "_mem_get_info", lambda _: (left, 100))
    monkeypatch.setattr(handover, "_memory_reserved", lambda _: reserved)
    monkeypatch.setattr(handover, "_memory_allocated", lambda _: 10)
    monkeypatch.setattr(handover, "_empty_cache", lambda: calls.append(1))
    handover.make_room(torch.device("cuda"), size)
    assert bool(calls) == freed
    handover.make_room(CPU, size)
    assert len(calls) == int(freed)


def test_no_descriptors_are_left_open() -> None:
    runner = Runner()
    with served(runner) as channel:
        channel.ask("echo", BIG, {}, 1 << 20)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            channel.ask("echo", [BIG, torch.ones(3)], {}, 1 << 20)
        assert len(os.listdir("/proc/self/fd")) == before


def test_between_tensors_and_behind_them_nothing_old_is_found() -> None:
    tensors = [torch.zeros(1001, dtype=torch.uint8), torch.zeros(333)]
    large, _, described = handover.split(tensors, [0, 1])
    passage = handover.Passage(handover.Load(described), CPU)
    passage.fill(large)
    seen = torch.zeros(passage.region.size, dtype=torch.uint8)
    passage.region.read(0, seen)
    passage.close()
    passage.close()
    at = -(-1001 // wire.ALIGNED) * wire.ALIGNED
    right = torch.full_like(seen, handover.POISON)
    right[:1001] = right[at : at + 4 * 333] = 0
    assert torch.equal(seen, right)


def test_tensors_come_to_lie_beside_those_of_the_reference() -> None:
    right = [torch.empty(2, device="meta"), {"x": torch.ones(3)}, 1]
    got = wire.beside([torch.ones(2), {"x": torch.ones(3)}, 2.5], right)
    assert got[0].device.type == "meta"
    assert got[1]["x"].tolist() == [1, 1, 1]
    assert got[2] == 2.5
    for other in ([torch.ones(2)], [torch.ones(3), {"x": torch.ones(3)}, 1]):  # another structure, another shape
        assert wire.beside(other, right)[0].device.type == "cpu"


# ---------------------------------------------------------------------------------------------------------- verifications


class OnCard(torch.Tensor):
    """Stands for a tensor on a card. What is made from one is one as well.

    `wrong`: what a card would refuse (an operator on such a tensor and on one of the host), and what would be slow (a copy of
    more than a few entries to the host).
    """

    wrong: ClassVar[list[str]] = []
    # Functions that may do so: windows and what is kept of them are on a real card anyway; a map's cells and codes are few.
    FINE: ClassVar[set[str]] = {"window", "judge_all", "_drawn", "codes", "buffer_of"}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        mixed = any(not isinstance(t, OnCard) and t.dim() for t in tensors)
        mixed = mixed and name not in ("__getitem__", "__setitem__", "copy_", "to")
        leaves = name in ("cpu", "numpy", "tolist")
        if mixed or (leaves and args[0].numel() > 1000):
            stack = traceback.extract_stack()
            if not cls.FINE & {frame.name for frame in stack}:
                cls.wrong.append(
                    f"{name} {[tuple(t.shape) for t in tensors]}: {''.join(traceback.format_list(stack[-6:]))}"
                )
        if leaves:
            with torch._C.DisableTorchFunctionSubclass():
                return func(args[0].as_subclass(torch.Tensor), *args[1:], **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_what_stands_for_a_card_tells_what_a_card_would_refuse() -> None:
    here, there = torch.rand(2000), torch.rand(2000).as_subclass(OnCard)
    for refused in (lambda: there + here, lambda: torch.equal(here, there * 2), there.cpu, there.exp().tolist):
        OnCard.wrong.clear()
        refused()
        assert OnCard.wrong
    OnCard.wrong.clear()
    assert isinstance(there * 2 + there[here > 0.5].sum(), OnCard)
    assert float(there.max()) < 1
    assert not OnCard.wrong


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let verifications hand over all tensors of a page or more, and yield the bytes of each passage.

    Afterwards, fail if the tool did with them what would not do on a card.
    """
    monkeypatch.setattr(session, "card", lambda: CPU)
    sizes: list[int] = []
    fill, own, changed = handover.Passage.fill, handover.Passage.own, pieces.changed

    def counted(self: handover.Passage, tensors: Sequence[torch.Tensor] = ()) -> None:
        sizes.append(self.load.size)
        fill(self, [t.as_subclass(torch.Tensor) for t in tensors])

    monkeypatch.setattr(handover.Passage, "fill", counted)
    monkeypatch.setattr(handover.Passage, "own", lambda self: [t.as_subclass(OnCard) for t in own(self)])
    # What is computed by pieces is on the same device.
    monkeypatch.setattr(pieces, "changed", lambda function, t: changed(function, t).as_subclass(type(t)))
    OnCard.wrong.clear()
    yield sizes
    assert not OnCard.wrong, OnCard.wrong[0]


def test_a_verification_that_hands_everything_over(run: Run, by_hand: list[int]) -> None:
    report = run(RIGHT, trials=1)
    assert report.verdict.same, report.reason
    assert "same" in {p["status"] for p in report.probes}
    assert "different" not in {p["status"] for p in report.probes}
    assert all(case["caught"] for case in report.self_test)
    assert len(by_hand) > 20
    assert 64 * 96 * 8 in by_hand, "the float64 truth"


NORMALISED = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(96, 64), nn.BatchNorm1d(64)
    def forward(self, x):
        y = torch.softmax(self.norm(self.inner(x)), 1)
        return y, y > 0.5, y.sum()
def get_inputs():
    return [torch.randn(80, 96)]
"""


def test_a_model_with_state_and_several_outputs_is_judged_there(run: Run, by_hand: list[int]) -> None:
    wrong = NORMALISED.replace("class Model(", "class ModelNew(").replace("return y,", "return y * 1.001,")
    report = run(wrong, NORMALISED, trials=3)
    assert report.verdict is Verdict.DIFFERENT
    assert "1.001 times" in report.reason
    assert by_hand


@pytest.mark.slow
def test_one_wrong_entry_is_found(run: Run, by_hand: list[int]) -> None:
    report = run(forward("C = torch.relu(A.T @ B.T); C[33, 17] += 0.5; return C"), trials=1)
    assert report.verdict is Verdict.DIFFERENT
    assert report.wrong["first"]["index"] == [33, 17]
    assert by_hand


@pytest.mark.parametrize(
    ("trick", "verdict", "says"),
    [
        (
            "handover.put = lambda kept, size, descriptor, device: os.close(descriptor)",
            Verdict.DIFFERENT,
            "6144 entries are NaN",
        ),
        (
            "split = handover.split; handover.split = lambda t, n: (lambda a, b, c: (a, b, [[i, {**m, 'shape': [1 << 30, 64]}] "
            "for i, m in c]))(*split(t, n))",
            Verdict.CRASHED,
            "sent something that is no answer",
        ),
    ],
    ids=["never copies", "wrong size"],
)
def test_a_worker_that_lies(run: Run, by_hand: list[int], trick: str, verdict: Verdict, says: str) -> None:
    head = f"import os\nfrom mm32.verify.exchange import handover\n{trick}"
    report = run(forward("return torch.relu(A.T @ B.T)", head), trials=1)
    assert report.verdict is verdict, report.reason
    assert says in report.reason


def test_what_a_card_cannot_hold_is_named() -> None:
    needed_memory.check_card(4 << 30, 4 << 30, 60 << 30)
    with pytest.raises(
        Failure, match=r"4.0 GiB of inputs and 4.0 GiB of outputs on the card take about 56 GiB .* 50 GiB are free"
    ):
        needed_memory.check_card(4 << 30, 4 << 30, 50 << 30)
