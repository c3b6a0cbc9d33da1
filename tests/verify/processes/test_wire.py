"""Frames: what travels, and what is refused."""

from __future__ import annotations

import json
import mmap
import os
import socket
import threading
from collections import namedtuple
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from mm32.verify.exchange import memory, named
from mm32.verify.exchange.wire import (
    MAGIC,
    PREFIX,
    Closed,
    Connection,
    ProtocolError,
    Unsupported,
    checked_meta,
    from_file,
    leaves,
    pack,
    to_file,
    unpack,
)
from mm32.verify.judging.judge import same_bits
from mm32.verify.processes.channel import Channel, reading


def round_trip(value: Any) -> Any:
    a, b = socket.socketpair()
    tensors: list[torch.Tensor] = []
    node = pack(value, tensors)
    sender = threading.Thread(target=Connection(a).send, args=({"value": node}, tensors))
    sender.start()
    header, arrived = Connection(b).receive()
    sender.join()
    a.close()
    b.close()
    return unpack(header["value"], arrived)


def raw(head: bytes, payload: bytes = b"", size: int | None = None, magic: bytes = MAGIC) -> None:
    a, b = socket.socketpair()
    a.sendall(PREFIX.pack(magic, len(head), len(payload) if size is None else size) + head + payload)
    a.close()
    try:
        Connection(b).receive(max_payload=1 << 20)
    finally:
        b.close()


def test_values_arrive_as_they_left() -> None:
    value = {"a": [1, 2.5, None, True, "x", (3, 4)], 7: float("inf"), "dtype": torch.float16}
    assert round_trip(value) == value


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)
def test_tensors_arrive_bit_for_bit(dtype: torch.dtype) -> None:
    t = (torch.randn(3, 5) * 3).to(dtype)
    odd, got = round_trip([torch.ones(3, dtype=torch.uint8), t])
    assert odd.tolist() == [1, 1, 1]
    assert got.dtype == dtype
    assert torch.equal(got, t)


def test_nan_bits_empty_and_scalar_tensors() -> None:
    for t in (torch.tensor([float("nan"), -0.0]), torch.empty(0, 3), torch.tensor(2.5)):
        got = round_trip(t)
        assert got.shape == t.shape
        assert got.numpy().tobytes() == t.numpy().tobytes()


def test_one_entry_with_any_stride() -> None:
    """A slice of one row may be such a tensor: it is contiguous, but no view of its bytes can be taken."""
    table = torch.arange(99.0).reshape(3, 33)
    one = table[1:2, 5]
    assert one.stride() == (33,)
    assert round_trip(one).tolist() == [38.0]
    assert memory.bits_of(one).numpy().tobytes() == torch.tensor([38.0]).numpy().tobytes()
    assert same_bits(one, one.clone())
    assert not same_bits(one, table[1:2, 6])


def test_a_transposed_view_stays_one() -> None:
    t = torch.rand(4, 6).T
    got = round_trip(t)
    assert got.stride() == t.stride() == (1, 6)
    assert torch.equal(got, t)


def test_what_does_not_travel_is_named() -> None:
    with pytest.raises(Unsupported, match=r"type builtins\.set"):
        pack({1, 2}, [])
    with pytest.raises(Unsupported, match="sparse"):
        pack(torch.eye(2).to_sparse(), [])


def test_leaves_have_paths() -> None:
    assert [path for path, _ in leaves({"a": [1, (2,)]})] == ["output['a'][0]", "output['a'][1][0]"]


META = {"dtype": "float32", "shape": [2], "order": [0]}


@pytest.mark.parametrize(
    ("head", "payload", "size"),
    [
        (b"not json", b"", None),
        (b"[]", b"", None),
        (b"{}", b"", None),
        (json.dumps({"tensors": [META]}).encode(), b"1234", None),
        (json.dumps({"tensors": [{**META, "shape": [-2]}]}).encode(), b"", None),
        (json.dumps({"tensors": [{**META, "shape": [1 << 60]}]}).encode(), b"", 1 << 62),
        (json.dumps({"tensors": [{**META, "order": [1]}]}).encode(), b"12345678", None),
        (json.dumps({"tensors": [{**META, "dtype": "object"}]}).encode(), b"12345678", None),
        (json.dumps({"tensors": [{**META, "shape": [1 << 30]}]}).encode(), b"", 1 << 32),
        (b"[" * 100000, b"", None),
    ],
)
def test_malformed_frames_are_refused(head: bytes, payload: bytes, size: int | None) -> None:
    with pytest.raises(ProtocolError):
        raw(head, payload, size)


def test_foreign_bytes_and_a_closed_end() -> None:
    with pytest.raises(ProtocolError):
        raw(b"{}", magic=b"HTTP")
    with pytest.raises(Closed):
        raw(json.dumps({"tensors": [META]}).encode(), b"", 8)


@pytest.mark.parametrize(
    "node", [None, 3, {}, {"tensor": 0}, {"tensor": True}, {"value": []}, {"x": 1}, {"dict": [[[], {}]]}]
)
def test_malformed_values_are_refused(node: Any) -> None:
    with pytest.raises(ProtocolError):
        unpack(node, [])


def test_deep_values_are_refused() -> None:
    node: Any = {"value": 1}
    for _ in range(100):
        node = {"list": [node]}
    with pytest.raises(ProtocolError):
        unpack(node, [])


# ---------------------------------------------------------------------------------------------------------- named tuples


class State(NamedTuple):
    h: torch.Tensor
    c: Any = None


KIND = ("State", ("h", "c"))


def test_a_named_tuple_keeps_the_names_of_its_fields() -> None:
    """The tool gets a class of its own, the same one each time, and never one that a peer names."""
    (got,), again = round_trip([State(torch.ones(2), [State(torch.zeros(1))])]), round_trip(State(torch.ones(2)))
    assert (type(got).__name__, got._fields) == KIND
    assert got.h.tolist() == [1, 1]
    assert got.c[0].h.tolist() == [0]
    assert type(got) is type(got.c[0]) is type(again) is named.plain_class(KIND)
    assert type(got) is not State
    assert [path for path, _ in leaves(got)] == ["output[0]", "output[1][0][0]", "output[1][0][1]"]


def test_a_script_gets_named_tuples_in_its_own_class() -> None:
    module = ModuleType("script")
    assert named.class_in(None, KIND) is named.class_in(module, KIND) is named.plain_class(KIND)
    module.State = State  # type: ignore[attr-defined]
    assert named.class_in(module, KIND) is State
    for other in (namedtuple("State", ["c", "h"]), torch.nn.Linear, (1, 2)):
        module.State = other  # type: ignore[attr-defined]
        assert named.class_in(module, KIND) is named.plain_class(KIND)


def test_a_packed_sequence_arrives_as_one_in_a_script_alone() -> None:
    tensors: list[torch.Tensor] = []
    sent = pack_sequence([torch.rand(3, 2), torch.rand(1, 2)])
    node = pack(sent, tensors)
    got = unpack(node, tensors, lambda kind: named.class_in(None, kind))
    assert type(got) is PackedSequence
    assert got.data is sent.data
    assert not isinstance(unpack(node, tensors), PackedSequence)


def test_torchs_own_named_results_and_odd_names_stay_plain_tuples() -> None:
    odd = namedtuple("odd", ["a", "def"], rename=True)(1, 2)
    assert type(round_trip(odd)) is tuple
    assert type(round_trip(torch.max(torch.rand(2, 3), 1))) is tuple


ITEM = {"value": 1}


@pytest.mark.parametrize(
    "body",
    [
        None,
        ["State", ["h"]],
        ["State", ["h"], [ITEM, ITEM]],
        ["State", "h", [ITEM]],
        ["State", [7], [ITEM]],
        ["State", ["h", "h"], [ITEM, ITEM]],
        ["State", ["h"], [7]],
        ["x" * 200, ["h"], [ITEM]],
        ["State", [f"f{i}" for i in range(300)], [ITEM] * 300],
        *([name, ["h"], [ITEM]] for name in ("__import__('os')", "a b", "", "class", "_State", "\u00aa", 3, None)),
        *(
            ["State", [name], [ITEM]]
            for name in ("a=print(1)", "a, b", "lambda", "_make", "__class__", "\u00aa", "a\n")
        ),
    ],
)
def test_forged_named_tuples_are_refused(body: Any) -> None:
    with pytest.raises(ProtocolError):
        unpack({"named": body}, [])


def test_a_value_has_few_kinds_of_named_tuples() -> None:
    nodes = [{"named": [f"Kind{i}", ["a"], [ITEM]]} for i in range(named.MOST_KINDS + 1)]
    assert len(unpack({"list": nodes[1:] * 3}, [])) == 3 * named.MOST_KINDS
    with pytest.raises(ProtocolError, match="kinds"):
        unpack({"list": nodes}, [])


# ---------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("trusted", [True, False])
def test_tensors_travel_in_a_file(trusted: bool) -> None:
    sent = [torch.arange(5, dtype=torch.uint8), torch.rand(300, 200).T, torch.tensor([True, False]), torch.empty(0, 3)]
    file = memory.new_file()
    metas = to_file(file, sent)
    memory.freeze(file)
    with pytest.raises(OSError):
        os.pwrite(file, b"x", 0)
    got = from_file(file, json.loads(json.dumps(metas)), trusted)
    os.close(file)
    assert [(t.shape, t.stride(), t.dtype) for t in got] == [(t.shape, t.stride(), t.dtype) for t in sent]
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))
    assert all(t.data_ptr() % 64 == 0 for t in got[:2]) or not trusted
    got[1][0, 0] = 7  # the tensor is the reader's own, whoever wrote the file
    assert float(got[1][0, 0]) == 7


@pytest.mark.parametrize("stays", [False, True])
def test_a_file_that_is_in_use_for_a_moment_is_sealed_after_it(stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    file = memory.new_file()
    os.ftruncate(file, 4096)
    mapped = mmap.mmap(file, 4096)
    monkeypatch.setattr(memory, "SEALING_PAUSE", 0.0)
    monkeypatch.setattr(memory.time, "sleep", lambda seconds: None if stays else mapped.close())
    if stays:
        with pytest.raises(OSError, match="busy"):
            memory.freeze(file)
    else:
        memory.freeze(file)
        with pytest.raises(OSError):
            os.pwrite(file, b"x", 0)
    os.close(file)


def test_a_copy_does_not_change_behind_us() -> None:
    """A candidate may write to its answer's file after it has answered."""
    file = memory.new_file(1 << 20)
    metas = to_file(file, [torch.zeros(1000)])
    (got,) = from_file(file, metas, trusted=False, limit=1 << 20)
    os.pwrite(file, b"\xff" * 4000, 0)
    os.close(file)
    assert got.eq(0).all()


def test_files_that_are_too_short_or_too_large_are_refused() -> None:
    file = memory.new_file(8192)
    with pytest.raises(ProtocolError, match="too short"):
        from_file(file, [{"dtype": "float32", "shape": [4096], "order": [0]}], trusted=False)
    with pytest.raises(ProtocolError, match="at most 100 were expected"):
        from_file(file, [{"dtype": "float32", "shape": [1024], "order": [0]}], trusted=False, limit=100)
    with pytest.raises(ProtocolError, match="malformed"):
        from_file(file, {"dtype": "float32"}, trusted=False)
    with pytest.raises(OSError):
        to_file(file, [torch.rand(4096)])  # the tool's file does not grow
    os.close(file)


def test_an_answer_in_a_file_that_nobody_gave_is_refused() -> None:
    ours, theirs = socket.socketpair()

    def answer() -> None:
        connection = Connection(theirs, descriptors=True)
        header, _ = connection.receive()
        connection.send({"nonce": header["nonce"], "value": {"value": None}, "in_file": []})

    worker = threading.Thread(target=answer)
    worker.start()
    with ours, theirs, pytest.raises(ProtocolError, match="not asked for"):
        Channel(ours, lambda: None).ask("window", None, {}, 1 << 20)
    worker.join()


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ([2, 3], [0.0, 1.0]),
        ([2, 3], [False, True]),
        ([0, 1 << 47, 1 << 47], [0, 1, 2]),
        ([0, 1 << 40, 1 << 40, 5], [3, 1, 2, 0]),
        ([1 << 30, 1 << 30], [1, 0]),
        ([2, 3], [0, 0]),
        ([2, -1], [0, 1]),
    ],
)
def test_a_described_tensor_that_torch_could_not_make_is_refused(shape: list[int], order: list[Any]) -> None:
    with pytest.raises(ProtocolError):
        checked_meta({"dtype": "float32", "shape": shape, "order": order})


@pytest.mark.parametrize("error", [TypeError, OverflowError, KeyError, RuntimeError, ValueError])
def test_what_no_check_has_foreseen_is_no_answer(error: type[Exception]) -> None:
    with pytest.raises(ProtocolError, match=error.__name__), reading():
        raise error("of a forged answer")
