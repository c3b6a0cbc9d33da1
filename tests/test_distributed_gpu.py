"""Two and four cards with NCCL: what test_distributed.py shows on the CPU, with mm32's kernels, at sizes that they take."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import mm32
from support.distributed import U, close, counted_packs, example
from support.ranks import Ranks

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True, params=[2, 4], ids=lambda world: f"{world} cards")
def world(request: pytest.FixtureRequest) -> int:
    """The number of cards, each with a rank of its own."""
    if torch.cuda.device_count() < request.param:
        pytest.skip(f"needs {request.param} CUDA devices, there are {torch.cuda.device_count()}")
    return request.param


def mesh_of_cards() -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda", (dist.get_world_size(),))


def randn(*shape: int) -> torch.Tensor:
    """Return normal values that are the same on every card."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).cuda()


def by_tensor_cores() -> int:
    """Return the number of calls of the kernels tensorcore and mma so far, on this rank's card."""
    tiers = mm32.stats().tiers
    return sum(count for name, count in tiers.items() if "recomputed" not in name)


def perceptron() -> nn.Sequential:
    torch.manual_seed(1)
    # A smooth activation: of millions of sums, some lie so near 0 that relu's gradient would differ from that in float64.
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
    return mm32.replace_linear(model).cuda()


# ---------------------------------------------------------------------------------------------------------------------


def on_cards_products() -> None:
    """Products with all placements and layouts, bias and activation are no worse than 4u against float64 on the card, also with
    sums over cards; gradients are no worse than 8u."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh, a, b, bias = mesh_of_cards(), randn(4096, 4096), randn(4096, 3072), randn(3072)
    mm32.distributed.check(mesh)
    truth = (a.double() @ b.double() + bias.double()).relu()
    for i, j, flag in itertools.product((None, 0, 1), (None, 0, 1), (False, True)):
        x, y = (
            distribute_tensor(t.T.contiguous(), mesh, [Replicate() if d is None else Shard(1 - d)]).T
            if flag
            else distribute_tensor(t, mesh, [Replicate() if d is None else Shard(d)])
            for t, d in ((a, i), (b, j))
        )
        z = distribute_tensor(bias, mesh, [Replicate()])
        before = by_tensor_cores()
        close(mm32.matmul(x, y, bias=z, activation="relu"), truth, 4 * U)
        assert by_tensor_cores() > before
        packed = mm32.pack(y)
        assert packed.reason is None
        close(mm32.matmul(x, packed, bias=z, activation="relu"), truth, 4 * U)
    x, y = (distribute_tensor(t, mesh, [Shard(0)]).requires_grad_() for t in (a, b))
    gradients = torch.autograd.grad(mm32.matmul(x, y).square().sum(), (x, y))
    c = 2 * (a.double() @ b.double())
    for got, wanted in zip(gradients, (c @ b.double().T, a.double().T @ c), strict=True):
        close(got, wanted, 8 * U)


def test_products(world: int, ranks: Ranks) -> None:
    ranks.run(on_cards_products, world=world, backend="nccl")


def on_cards_tensor_parallel(compiled: bool) -> None:
    """A card's part of a frozen layer is packed once, and again after each step of an optimizer, also of fused ones."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, x, model = mesh_of_cards(), randn(2048, 1024), perceptron()
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    plain = perceptron().double()
    call = torch.compile(model, fullgraph=True) if compiled else model
    with torch.no_grad():
        close(call(x), plain(x.double()), 8 * U)
    if compiled:
        return
    mm32.freeze(model.eval())
    assert model[0]._kept is not None
    assert model[0]._kept.packed.reason is None
    packs = counted_packs()
    for options in ({}, {"foreach": True}, {"fused": True}):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        plain.load_state_dict({name: t.full_tensor() for name, t in model.state_dict().items()})
        before = len(packs)
        with torch.no_grad():
            for _ in range(2):
                close(model(x), plain(x.double()), 8 * U)
        assert len(packs) == before + 2, options


@pytest.mark.parametrize("compiled", [False, True])
def test_tensor_parallel(compiled: bool, world: int, ranks: Ranks) -> None:
    ranks.run(on_cards_tensor_parallel, compiled, world=world, backend="nccl")


def on_cards_fsdp() -> None:
    """FSDP2 gathers into memory that it used before, which torch's count of changes misses: so no packed weight may outlive its
    gathering."""
    from torch.distributed.fsdp import fully_shard

    mesh, x, model = mesh_of_cards(), randn(2048, 1024), perceptron()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    mm32.freeze(model.eval())
    packs = counted_packs()
    plain = perceptron().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for step in range(3):
        plain.load_state_dict({name: t.full_tensor() for name, t in model.state_dict().items()})
        with torch.no_grad():
            close(model(x), plain(x.double()), 8 * U)
        assert len(packs) == 2 * (step + 1)
        assert model[0]._kept is None
        assert model[2]._kept is None
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def test_fsdp(world: int, ranks: Ranks) -> None:
    ranks.run(on_cards_fsdp, world=world, backend="nccl")


def on_cards_ddp() -> float:
    from torch.nn.parallel import DistributedDataParallel

    x, model = randn(2048, 1024), perceptron()
    mine = x.chunk(dist.get_world_size())[dist.get_rank()]
    wrapped = DistributedDataParallel(model)  # a name keeps it alive: it averages gradients only while it exists
    wrapped(mine).square().mean().backward()
    plain = perceptron().double()
    plain(x.double()).square().mean().backward()
    return max(
        float((p.grad - q.grad).norm() / q.grad.norm())
        for p, q in zip(model.parameters(), plain.parameters(), strict=True)
    )


def test_ddp(world: int, ranks: Ranks) -> None:
    assert max(ranks.run(on_cards_ddp, world=world, backend="nccl")) <= 16 * U


def on_cards_programs() -> None:
    gp, muon = example("gp"), example("muon")
    found = gp.run(mesh_of_cards(), points=20000, block=1024, at=512, judge=8192)
    assert found["mean error"] <= gp.PROMISE
    assert found["variance error"] <= gp.PROMISE
    assert found["residuals"][-1] <= gp.TOLERANCE
    worst = muon.run(mesh_of_cards(), width=1024)
    assert worst <= muon.PROMISE, worst


def test_programs(world: int, ranks: Ranks) -> None:
    ranks.run(on_cards_programs, world=world, backend="nccl")


def on_cards_bits() -> bool:
    """Return whether the same product, a sum over cards, has the same bits when it is computed twice."""
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = mesh_of_cards()
    x, y = distribute_tensor(randn(1024, 4096), mesh, [Shard(1)]), distribute_tensor(randn(4096, 512), mesh, [Shard(0)])
    first, second = (mm32.matmul(x, y).full_tensor() for _ in range(2))
    return torch.equal(first, second)


def test_the_same_bits(world: int, ranks: Ranks) -> None:
    assert ranks.run(on_cards_bits, world=world, backend="nccl") == [True] * world
