"""Frames: what travels, and what is refused."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest
import torch

from mm32.verify.wire import MAGIC, PREFIX, Closed, Connection, ProtocolError, Unsupported, leaves, pack, unpack


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
