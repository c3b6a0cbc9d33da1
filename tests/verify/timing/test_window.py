"""Shared memory, fresh data and timed windows: what a worker can see and when, and what comes of what it does."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from mm32.verify.exchange import memory
from mm32.verify.inputs.pools import Pools, parts
from mm32.verify.processes.channel import Failure, Reply
from mm32.verify.timing import needed_memory
from mm32.verify.timing.kept_outputs import Keeper, random
from mm32.verify.timing.window import Bench, checked, difference
from support.verify.window import CPU, bench


@pytest.fixture
def regions() -> Iterator[tuple[memory.Region, memory.Region]]:
    pair = memory.reserve(10_000, CPU), memory.reserve(10_000, CPU)
    yield pair
    for region in pair:
        region.close()


def test_memory_is_exchanged_under_the_same_tensors(regions: tuple[memory.Region, memory.Region]) -> None:
    ours, theirs = regions
    tensors = []
    for number in (1, 2):
        descriptor = ours.create()
        ours.fill(0, ours.size, number)
        ours.write([(8, torch.tensor([1.5, 2.5]))])
        theirs.map(os.dup(descriptor), [(0, ours.size)])
        tensors.append(theirs.bytes())
        assert theirs.bytes()[8:16].view(torch.float32).tolist() == [1.5, 2.5]
        assert theirs.bytes()[16:].eq(number).all()
        theirs.bytes()[0] = 9
        seen = torch.zeros(4, dtype=torch.uint8)
        ours.read(0, seen)
        assert seen.tolist() == [9, number, number, number]
        theirs.release()
        ours.release()
    assert tensors[0] is tensors[1]


def test_a_worker_cannot_shrink_the_memory(regions: tuple[memory.Region, memory.Region]) -> None:
    descriptor = regions[0].create()
    with pytest.raises(OSError):
        os.ftruncate(descriptor, 0)


def test_only_what_is_used_takes_memory() -> None:
    """A window of one call in slots for four must not pay for four."""
    ours, theirs = memory.reserve(64 << 20, CPU), memory.reserve(64 << 20, CPU)
    descriptor = ours.create()
    ours.write([(1 << 20, torch.ones(1 << 10))])
    theirs.map(os.dup(descriptor), [(1 << 20, (1 << 20) + 4096), (32 << 20, (32 << 20) + 1)])
    theirs.bytes()[32 << 20] = 1
    assert theirs.bytes()[1 << 20 : (1 << 20) + 4096].view(torch.float32).eq(1).all()
    assert os.fstat(descriptor).st_blocks * 512 == 2 * 4096
    ours.close()
    theirs.close()


def test_memory_of_another_size_is_refused(regions: tuple[memory.Region, memory.Region]) -> None:
    small = memory.reserve(10, CPU)
    with pytest.raises(OSError, match="4096 bytes, 12288 needed"):
        regions[0].map(os.dup(small.create()), [(0, 4096)])
    small.close()


OTHER = """
import os, socket, sys, torch
from mm32.verify.exchange import memory, wire
connection = wire.Connection(socket.socket(fileno=int(sys.argv[1])), descriptors=True)
header, _ = connection.receive()
region = memory.reserve(4096, torch.device("cpu"))
region.map(header["descriptors"][0], [(0, 4096)])
region.bytes().mul_(2)
connection.send({"pid": os.getpid()})
"""
NAMESPACES = ["unshare", "--user", "--map-root-user", "--pid", "--net", "--fork", "--mount-proc"]


@pytest.mark.parametrize("prefix", [[], NAMESPACES], ids=["plain", "namespaces"])
def test_memory_reaches_another_process_beside_a_message(prefix: list[str]) -> None:
    from mm32.verify.exchange import wire

    if prefix and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system has no namespaces for us")
    ours, theirs = socket.socketpair()
    region = memory.reserve(4096, CPU)
    with ours, theirs:
        command = [*prefix, sys.executable, "-c", OTHER, str(theirs.fileno())]
        child = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        descriptor = region.create()
        region.fill(0, 4096, 21)
        connection = wire.Connection(ours)
        connection.send({}, (), [descriptor])
        header, _ = connection.receive()
        assert child.wait(30) == 0
        seen = torch.zeros(4096, dtype=torch.uint8)
        region.read(0, seen)
        assert seen.eq(42).all()
        assert header["pid"] != os.getpid()
    region.close()


def test_the_tool_takes_no_descriptors() -> None:
    from mm32.verify.exchange import wire

    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = len(os.listdir("/proc/self/fd"))
        wire.Connection(theirs).send({"x": 1}, (), [0, 1, 2])
        header, _ = wire.Connection(ours).receive()
        assert header == {"x": 1}
        assert len(os.listdir("/proc/self/fd")) == before


# ---------------------------------------------------------------------------------------------------------- data


def pools() -> Pools:
    torch.manual_seed(0)
    made = [[torch.rand(30, 20).T, {"at": torch.randint(0, 5, (7,)), "n": 3}, torch.rand(2)] for _ in range(3)]
    return Pools(made, CPU)


def test_data_are_made_again_by_their_recipe_and_never_twice() -> None:
    of = pools()
    places, end = parts(of.leaves, 0, 1)
    seen = set()
    for _ in range(50):
        recipe = of.recipe()
        first, second = torch.zeros(end, dtype=torch.uint8), torch.zeros(end, dtype=torch.uint8)
        for whole in (first, second):
            tensors = [part for part in places if part.dtype is not None]
            for part, pieces in zip(tensors, of.pieces(recipe), strict=True):
                whole[part.at(0) : part.at(0) + part.bytes] = torch.cat(pieces).view(torch.uint8)
        assert torch.equal(first, second)
        values = places[0].view(first, 0)
        assert (values.shape, values.stride()) == ((20, 30), (1, 20))
        assert ((values >= 0) & (values < 1)).all()  # of the kind that get_inputs makes
        assert places[1].view(first, 0).max() < 5
        seen.add((float(values.double().sum()), float(values[0, 0])))
    assert len(seen) == 50
    assert len({total for total, _ in seen}) == 50  # their sums alone differ, too


# ---------------------------------------------------------------------------------------------------------- windows


def right(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ a + b


def test_a_worker_has_the_slots_of_its_latest_bench_and_keeps_none() -> None:
    """A bench with older slots makes them again. Each bench holds the data of its windows: gigabytes on a card."""
    first = bench(right, count=3)
    assert first.current
    second = Bench(first.worker, first.pools, [("output", torch.empty(8, 8))], 1, CPU)
    assert (first.current, second.current) == (False, True)
    worker, gone = second.worker, weakref.ref(second)
    first.close()
    second.close()
    del first, second
    gc.collect()
    assert gone() is None
    assert worker.role == "candidate"


def test_what_is_delivered_is_what_the_model_answers_for_fresh_data() -> None:
    one, two = bench(right), bench(lambda a, b: torch.add(b, torch.matmul(a, a)))
    recipes = [one.pools.recipe() for _ in range(6)]
    first, second = one.window(recipes), two.window(recipes)
    assert first.seconds > 0
    assert max(difference(one, second, first)) < 1e-5
    outputs = [one.leaves(first, i)[0].clone() for i in range(6)]
    assert all(not torch.equal(outputs[0], other) for other in outputs[1:])
    assert not torch.equal(one.leaves(one.window([one.pools.recipe()] * 6), 0)[0], outputs[0])


def stale() -> Any:
    last: list[torch.Tensor] = []

    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if len(last) == 4:
            return last[-1]
        last.append(right(a, b))
        return last[-1]

    return model


def by_address() -> Any:
    known: dict[tuple[int, int], torch.Tensor] = {}

    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        key = a.data_ptr(), a._version
        if key not in known:
            known[key] = right(a, b)
        return known[key]

    return model


@pytest.mark.parametrize("cheat", [stale(), by_address(), lambda a, b: right(a, b).fill_(0)])
def test_one_wrong_call_among_many_is_the_one_that_is_kept(cheat: Any) -> None:
    one, two = bench(right), bench(cheat)
    keeper = Keeper(0, random.SystemRandom())
    for _ in range(2):
        recipes = [one.pools.recipe() for _ in range(6)]
        reference, candidate = one.window(recipes), two.window(recipes)
        keeper.look(one, candidate, reference, recipes, [])
    assert keeper.worst is not None
    assert keeper.worst[0] > 0.01
    (kept,) = keeper.kept()
    again = one.leaves(one.window([kept.recipe]), 0)[0]
    assert (again - kept.leaves[0]).abs().max() > 0.01


def test_outputs_that_nobody_wrote_are_poison() -> None:
    one = bench(right)
    assert one.worker.slots  # type: ignore[attr-defined]
    one.worker.slots._deliver = lambda *_: None  # type: ignore[attr-defined]
    window = one.window([one.pools.recipe()] * 2)
    assert all(t.isnan().all() for i in range(2) for t in one.leaves(window, i))
    assert difference(one, window, bench(right).window([one.pools.recipe()] * 2)) == [float("inf")] * 2


def test_a_write_that_comes_after_the_window_is_not_seen() -> None:
    one = bench(right)
    slots = one.worker.slots  # type: ignore[attr-defined]
    slots._deliver = lambda *_: None
    kept: list[str] = []
    real = one.region.release

    def late() -> None:
        if not kept:
            kept.append("late")
            one.region.fill(one.outputs_at, one.size, 0)
        real()

    one.region.release = late  # type: ignore[method-assign]
    window = one.window([one.pools.recipe()])
    assert kept
    assert one.leaves(window, 0)[0].isnan().all()


class Lazy(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda a, b: a.as_subclass(Lazy), "output is a Lazy: a plain torch.Tensor is needed"),
        (lambda a, b: a[:4], "output is (4, 8) torch.float32 on cpu, the reference's is (8, 8) torch.float32 on cpu"),
        (lambda a, b: a.double(), "output is (8, 8) torch.float64"),
        (lambda a, b: a.to_sparse(), "output has layout torch.sparse_coo"),
        (lambda a, b: (a, a), "2 leaves, the reference's output has 1"),
        (lambda a, b: {"x": a}, "no output"),
    ],
)
def test_an_output_that_its_slot_cannot_take_is_named(model: Any, says: str) -> None:
    found = bench(model).window([bench(model).pools.recipe()])
    assert found.misfit is not None
    assert found.misfit.startswith(says)


def test_all_windows_are_the_same_messages() -> None:
    one = bench(right)
    for _ in range(3):
        one.window([one.pools.recipe()] * 6)
    assert one.worker.messages == ["slots", *["a look", "wake", "window", "release"] * 3]  # type: ignore[attr-defined]


def test_what_a_worker_does_before_its_window_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that rests when it is woken, or makes something ready then, gains nothing by it."""
    one = bench(right)
    recipes = [one.pools.recipe()] * 6
    usual = one.window(recipes).seconds
    ask = one.worker.ask

    def slow(op: str, value: Any = None, **fields: Any) -> Reply:
        if op == "wake":
            time.sleep(0.2)
        return ask(op, value, **fields)

    monkeypatch.setattr(one.worker, "ask", slow)
    assert one.window(recipes).seconds > usual + 0.1


def test_the_same_numbers_are_drawn_with_the_same_seeds_and_it_is_told() -> None:
    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(a, 0.5)

    one, two = bench(model), bench(model)
    recipes = [one.pools.recipe()] * 6
    first, second = (b.window(recipes, list(range(6)), watch=True) for b in (one, two))
    assert first.draws
    assert torch.equal(first.outputs, second.outputs)
    assert not bench(right).window(recipes, watch=True).draws


def test_the_null_worker_delivers_or_does_not() -> None:
    null = bench(None, role="null")
    recipes = [null.pools.recipe()] * 6
    delivered = null.window(recipes)
    assert null.leaves(delivered, 5)[0].eq(0).all()
    without = null.window(recipes, deliver=False)
    assert null.leaves(without, 0)[0].isnan().all()


def test_data_that_the_machine_cannot_hold_are_named() -> None:
    needed_memory.check_host(1 << 30, 1 << 30, 20 << 30)
    needed_memory.check_host(16 << 20, 16 << 20, 0)  # so little is never refused
    with pytest.raises(Failure, match=r"2.0 GiB of inputs and 1.0 GiB of outputs take about 24 GiB .* 20 GiB are free"):
        needed_memory.check_host(2 << 30, 1 << 30, 20 << 30)
    assert 0 < needed_memory.available() < 1 << 50


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 3.0]])
def test_a_window_has_as_many_values_as_its_calls_have(values: list[float]) -> None:
    header = {"misfit": None, "values": values, "seconds": 0.1}
    with pytest.raises(Failure, match=f"with {len(values)} values instead of 2"):
        checked(header, 0.1, torch.empty(0), "candidate", 2)
    assert checked(header | {"misfit": "no tensor"}, 0.1, torch.empty(0), "candidate", 2).misfit == "no tensor"
    assert checked(header | {"values": [1.0, None]}, 0.1, torch.empty(0), "candidate", 2).values == [1.0, None]
