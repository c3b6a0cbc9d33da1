"""mm32's operators on DTensors of meshes that one process simulates (torch's LocalTensor): how results are sharded, and that
every choice gives the product. test_distributed.py has real ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import mm32
from mm32 import sharding
from mm32.activations import names, number
from support.ops import SHAPES

local_tensor = pytest.importorskip("torch.distributed._local_tensor", reason="torch 2.9 has no LocalTensor")
fake_pg = pytest.importorskip("torch.testing._internal.distributed.fake_pg")

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor  # noqa: E402

R, S, P = Replicate(), Shard, Partial()


@pytest.fixture
def mesh(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A mesh of the shape that the test asks for, all of whose ranks are this process."""
    shape = request.param
    world = int(torch.Size(shape).numel())
    dist.init_process_group("fake", store=fake_pg.FakeStore(), rank=0, world_size=world)
    try:
        with local_tensor.LocalTensorMode(world):
            yield init_device_mesh("cpu", shape)
    finally:
        dist.destroy_process_group()


def meshes(*shapes: tuple[int, ...]) -> Any:
    return pytest.mark.parametrize("mesh", shapes, indirect=True, ids=str)


def integers(*shape: int) -> torch.Tensor:
    """Return integers whose fp32 sums are exact in any order. They are multiples of 8, so that halves and quarters are too."""
    return torch.randint(-4, 5, shape).float() * 8


def whole(t: Any) -> torch.Tensor:
    """Return a DTensor's value, which must be the same on all ranks."""
    return t.full_tensor().reconcile()


def placed(t: torch.Tensor, *dims: int | None) -> list[Any]:
    return [R if d is None else S(d) for d in dims]


def choices(t: torch.Tensor) -> list[int | None]:
    return [None, *range(t.dim())]


def fits(t: torch.Tensor, mesh: Any, dims: tuple[int | None, ...]) -> bool:
    return all(d is None or t.shape[d] >= mesh.size(i) for i, d in enumerate(dims))


# ---------------------------------------------------------------------------------------------------------------------


@meshes((3,))
@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("depth_zero", "empty", "row")])
def test_every_placement_of_every_shape(name: str, mesh: Any, seed: int) -> None:
    """Each dimension of each operand is sharded over three ranks, which do not divide most of the sizes."""
    a, b = (integers(*shape) for shape in SHAPES[name])
    for i, j in itertools.product(choices(a), choices(b)):
        if fits(a, mesh, (i,)) and fits(b, mesh, (j,)):
            x, y = distribute_tensor(a, mesh, placed(a, i)), distribute_tensor(b, mesh, placed(b, j))
            assert torch.equal(whole(mm32.matmul(x, y)), a @ b), f"{i}, {j}"


# How the result is sharded if nothing, or little, has to move: (a, b) -> result, by sharded dimension; "sum": K is summed later.
CHOSEN = {
    (None, None): None,
    ("m", None): "m",
    (None, "n"): "n",
    ("k", "k"): "sum",
    ("k", None): "sum",
    (None, "k"): "sum",
}


@meshes((2,))
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_result_lies_as_its_operands_do(layout: str, mesh: Any, seed: int) -> None:
    """This holds in every layout, which the local tensors have too: they are views, not copies."""
    a, b = integers(6, 8), integers(8, 4)
    for (i, j), wanted in CHOSEN.items():
        x, y = [
            distribute_tensor(
                t.T.contiguous(), mesh, [R if d is None else S(1 - "mk".index(d) if t is a else 1 - "kn".index(d))]
            ).T
            if flag == "t"
            else distribute_tensor(t, mesh, [R if d is None else S("mk".index(d) if t is a else "kn".index(d))])
            for t, d, flag in ((a, i, layout[0]), (b, j, layout[1]))
        ]
        result = mm32.matmul(x, y)
        assert result.placements == ({None: R, "m": S(0), "n": S(1), "sum": P}[wanted],), (i, j)
        assert torch.equal(whole(result), a @ b)


PAIRS = [(None, None), (0, None), (None, 0), (0, 1), (1, 0), (1, 1), (0, 0), (1, None), (None, 1)]


@meshes((2, 3))
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("biased", [False, True])
def test_meshes_of_two_dimensions(activation: str | None, biased: bool, mesh: Any, seed: int) -> None:
    """Dimensions of each operand are sharded over either dimension of the mesh, and over both."""
    a, b, bias = integers(12, 24), integers(24, 6), 3 * integers(6)
    wanted = a @ b + (bias if biased else 0)
    wanted = wanted if activation is None else wanted.relu()
    for i, j in itertools.product(PAIRS, PAIRS[::4]):
        x, y = distribute_tensor(a, mesh, placed(a, *i)), distribute_tensor(b, mesh, placed(b, *j))
        z = distribute_tensor(bias, mesh, [R, S(0) if i == j else R]) if biased else None
        result = mm32.matmul(x, y, bias=z, activation=activation)
        assert torch.equal(whole(result), wanted), f"{i}, {j}"


@meshes((2, 2))
def test_a_sum_over_ranks_has_the_bias_once_and_the_activation_last(mesh: Any, seed: int) -> None:
    """K is sharded over both dimensions of the mesh. Activations are used in two orders: what torch cached for one must not be
    used for another."""
    a, b, bias = integers(6, 8), integers(8, 10), integers(10)
    x, y = distribute_tensor(a, mesh, [S(1), S(1)]), distribute_tensor(b, mesh, [S(0), S(0)])
    z = distribute_tensor(bias, mesh, [R, R])
    for activation in (None, *names(), *reversed(names()), None):
        result = mm32.matmul(x, y, bias=z, activation=activation)
        wanted = mm32.matmul(a, b, bias=bias, activation=activation)
        torch.testing.assert_close(whole(result), wanted, rtol=1e-6, atol=1e-6)
        assert (result.placements == (P, P)) == (activation is None)


@meshes((2,))
def test_the_operators_by_themselves(mesh: Any, seed: int) -> None:
    """In inference mode autograd's key is left out. There mm32::matmul leaves no sum open, and the operator of DTensors leaves
    one open only if no activation follows, whichever of them was called before."""
    a, b = integers(6, 8), integers(8, 4)
    x, y = distribute_tensor(a, mesh, [S(1)]), distribute_tensor(b, mesh, [S(0)])
    sharding.register()
    with torch.inference_mode():
        for activation in (None, "relu", None):
            result = torch.ops.mm32.matmul(x, y, None, activation, "fp32", "auto")
            assert not any(p.is_partial() for p in result.placements)
            wanted = a @ b if activation is None else (a @ b).relu()
            assert torch.equal(whole(result), wanted)
            assert torch.equal(whole(mm32.matmul(x, y, activation=activation)), wanted)
            by_number = torch.ops.mm32.sharded_matmul(x, y, None, number(activation), "fp32", "auto")
            assert by_number.placements[0].is_partial() == (activation is None)
            assert torch.equal(whole(by_number), wanted)
    memory = torch.ops.mm32.pack(y, "right", "fp32")
    assert memory.placements == (R,)
    result = torch.ops.mm32.matmul(x, y, None, None, "fp32", "auto", None, memory)
    assert torch.equal(whole(result), a @ b)


@meshes((2,))
def test_the_operator_that_writes(mesh: Any, seed: int) -> None:
    """It writes to `out` where it is: a result in a copy that torch redistributed would be lost."""
    a, b = integers(6, 8), integers(8, 4)
    x, y = distribute_tensor(a, mesh, [S(1)]), distribute_tensor(b, mesh, [S(0)])
    sharding.register()
    for place in (R, S(0), S(1)):
        out = distribute_tensor(torch.zeros(6, 4), mesh, [place])
        torch.ops.mm32.matmul_out(x, y, None, None, "fp32", "auto", out)
        assert torch.equal(whole(out), a @ b), place


@meshes((2, 2))
def test_the_operator_that_writes_says_what_it_cannot(mesh: Any) -> None:
    x = distribute_tensor(integers(4, 4), mesh, [R, R])
    out = distribute_tensor(torch.zeros(4, 4), mesh, [S(0), S(1)])
    sharding.register()
    with pytest.raises(
        RuntimeError, match=r"cannot write to an out of placements .*: call mm32.matmul\(..., out=out\)"
    ):
        torch.ops.mm32.matmul_out(x, x, None, None, "fp32", "auto", out)
    assert torch.equal(whole(mm32.matmul(x, x, out=out)), whole(x) @ whole(x))


@meshes((2, 2))
@pytest.mark.parametrize("place", [(None, None), (0, None), (0, 1), (1, 0), (1, 1)], ids=str)
def test_out_of_any_placement(place: tuple, mesh: Any, seed: int) -> None:
    a, b, bias = integers(6, 8), integers(8, 4), integers(4)
    for i, j in itertools.product(PAIRS[:5], PAIRS[:5:2]):
        x, y = distribute_tensor(a, mesh, placed(a, *i)), distribute_tensor(b, mesh, placed(b, *j))
        z, out = distribute_tensor(bias, mesh, [R, R]), distribute_tensor(torch.zeros(6, 4), mesh, placed(a, *place))
        version = out._version
        assert mm32.matmul(x, y, bias=z, activation="relu", out=out) is out
        assert out._version > version
        assert torch.equal(whole(out), (a @ b + bias).relu()), f"{i}, {j}"


@meshes((2, 2))
@pytest.mark.parametrize("side", ["left", "right"])
def test_packed_operands_do_not_move(side: str, mesh: Any, seed: int) -> None:
    """Each rank's own shard is packed, and the other operand is redistributed to fit it."""
    a, b, bias = integers(6, 8), integers(8, 4), integers(4)
    z = distribute_tensor(bias, mesh, [R, S(0)])
    for i, j in itertools.product(PAIRS, PAIRS[::2]):
        x, y = distribute_tensor(a, mesh, placed(a, *i)), distribute_tensor(b, mesh, placed(b, *j))
        packed = mm32.pack(x if side == "left" else y, side=side)
        assert packed.shard is not None
        assert packed.memory is packed.shard.memory
        assert "shard" not in repr(packed)
        for options, wanted in (({}, a @ b), ({"bias": z, "activation": "relu"}, (a @ b + bias).relu())):
            operands = (packed, y) if side == "left" else (x, packed)
            assert torch.equal(whole(mm32.matmul(*operands, **options)), wanted), f"{i}, {j}"
    x, y = distribute_tensor(a, mesh, [S(0), R]), distribute_tensor(b, mesh, [R, S(1)])
    both = mm32.matmul(mm32.pack(x, side="left"), mm32.pack(y))
    assert both.placements == (S(0), S(1))
    assert torch.equal(whole(both), a @ b)


@meshes((2,))
def test_what_is_refused(mesh: Any, seed: int) -> None:
    x, plain = distribute_tensor(integers(4, 4), mesh, [S(0)]), integers(4, 4)
    rows = mm32.pack(x, side="left")
    with pytest.raises(RuntimeError, match=r"do not go together on this mesh, and a packed operand does not move"):
        mm32.matmul(rows, mm32.pack(distribute_tensor(plain, mesh, [S(1)])))
    with pytest.raises(
        RuntimeError, match=r"mixed torch.Tensor and DTensor.*mm32.pack of the DTensor packs each rank's shard"
    ):
        mm32.matmul(x, mm32.pack(plain))
    with pytest.raises(RuntimeError, match=r"mixed torch.Tensor and DTensor"):
        mm32.matmul(x, plain)
    with pytest.raises(RuntimeError, match=r"mixed torch.Tensor and DTensor.*distribute_tensor makes a DTensor of it"):
        mm32.matmul(x, x, out=plain)
    elsewhere = distribute_tensor(plain, init_device_mesh("cpu", (2, 1)), [S(0), R])
    remedy = r"on two meshes, .*: distribute both over one mesh, with distribute_tensor\(t.full_tensor\(\), mesh, placements\)"
    with pytest.raises(RuntimeError, match=remedy):
        mm32.matmul(elsewhere, rows.source, out=x)
    moved, out = (
        distribute_tensor(elsewhere.full_tensor(), mesh, [S(0)]),
        distribute_tensor(torch.zeros(4, 4), mesh, [S(0)]),
    )
    assert torch.equal(whole(mm32.matmul(moved, x, out=out)), plain @ whole(x))
    summed = mm32.matmul(distribute_tensor(plain, mesh, [S(1)]), x)
    assert summed.placements == (P,)
    with pytest.raises(RuntimeError, match=r"a sum that is not added up yet.*redistribute it first"):
        mm32.pack(summed)
    with pytest.raises(RuntimeError, match=r"cannot write to an out of placements"):
        mm32.matmul(x, x, out=summed)
    with pytest.raises(RuntimeError, match=r"plans the product of one rank"):
        mm32.explain(x, x)
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied"):
        mm32.matmul(x, distribute_tensor(integers(5, 4), mesh, [R]))
    with pytest.raises(ValueError, match=r"unknown activation 'relo'"):
        mm32.matmul(x, x, activation="relo")
    with pytest.raises(RuntimeError, match=r"packed for the|packed as the left operand"):
        mm32.matmul(x, rows)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="was modified in place"):
        mm32.matmul(rows, x)
