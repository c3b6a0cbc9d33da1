"""mm32 on two and four processes with gloo: every strategy with its gradients, tensor parallel, FSDP2, DDP, checkpoints, and the
errors when ranks differ or die. The functions that run on ranks are named `on_ranks_...`; ranks.py forks the ranks."""

from __future__ import annotations

import copy
import hashlib
import itertools
import logging
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import mm32
from mm32 import activations, torch_product
from support.distributed import SCRIPTS, U, close, counted_packs, example
from support.ranks import RankError, Ranks


def run(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a test that runs `function` on two ranks."""

    def test(ranks: Ranks) -> None:
        ranks.run(function)

    test.__doc__ = function.__doc__
    return test


def mesh_of(*shape: int, names: tuple[str, ...] | None = None) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape or (dist.get_world_size(),), mesh_dim_names=names)


@contextmanager
def products() -> Iterator[list[tuple]]:
    """Yield a list that receives the shapes of mm32's products on this rank: on the CPU, all are torch_product.matmul's."""
    seen, before = [], torch_product.matmul

    def counted(a: torch.Tensor, b: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.append((*a.shape, b.shape[-1]))
        return before(a, b, *rest)

    torch_product.matmul = counted
    try:
        yield seen
    finally:
        torch_product.matmul = before


# ---------------------------------------------------------------------------------------------------------------------
# Products


def on_ranks_products_and_gradients() -> None:
    """Placements of a, b and bias, with activations and the gradients of all three, agree with float64 on one process."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh, places = mesh_of(), (Replicate(), Shard(0), Shard(1))
    a, b, bias = torch.randn(6, 8), torch.randn(8, 10), torch.randn(10)
    grad = torch.randn(6, 10)
    names = [None, *activations.names()]
    for i, (p, q, r) in enumerate(itertools.product(places, places, (None, *places[:2]))):
        for activation in {None, names[i % len(names)]}:
            if activation == "leaky_relu" and torch.__version__ < "2.10":
                continue  # torch 2.9 has no slope of it for DTensors
            given = [(a, p), (b, q)] + ([] if r is None else [(bias, r)])
            plain = [t.double().requires_grad_() for t, _ in given]
            z = plain[0] @ plain[1] if r is None else plain[0] @ plain[1] + plain[2]
            wanted = torch_product.activate(z, activation)
            x = [distribute_tensor(t, mesh, [place]).requires_grad_() for t, place in given]
            got = mm32.matmul(x[0], x[1], bias=None if r is None else x[2], activation=activation)
            close(got, wanted)
            sum_ = (got * distribute_tensor(grad, mesh, [Replicate()])).sum()
            for mine, true in zip(
                torch.autograd.grad(sum_, x), torch.autograd.grad(wanted, plain, grad.double()), strict=True
            ):
                close(mine, true)
            with torch.inference_mode():
                close(mm32.matmul(x[0], x[1], bias=None if r is None else x[2], activation=activation), wanted)


test_products_and_gradients = run(on_ranks_products_and_gradients)


def on_ranks_batches() -> None:
    """Operands of three dimensions work with any of them sharded, and with one b for all or one for each; and linear does."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = mesh_of()
    a, grad = torch.randn(2, 6, 8), torch.randn(2, 6, 4)
    for b in (torch.randn(8, 4), torch.randn(2, 8, 4)):
        for i, j in itertools.product([None, 0, 1, 2], [None, *range(b.dim())]):
            x, y = (
                distribute_tensor(t, mesh, [Replicate() if d is None else Shard(d)]).requires_grad_()
                for t, d in ((a, i), (b, j))
            )
            plain = [t.double().requires_grad_() for t in (a, b)]
            wanted = (plain[0] @ plain[1]).tanh()
            got = mm32.matmul(x, y, activation="tanh")
            close(got, wanted)
            sum_ = (got * distribute_tensor(grad, mesh, [Replicate()])).sum()
            for mine, true in zip(
                torch.autograd.grad(sum_, (x, y)), torch.autograd.grad(wanted, plain, grad.double()), strict=True
            ):
                close(mine, true)
    weight = torch.randn(4, 8)
    for d in (0, 1):
        y = mm32.linear(
            distribute_tensor(a, mesh, [Shard(1)]),
            distribute_tensor(weight, mesh, [Shard(d)]),
            distribute_tensor(torch.ones(4), mesh, [Replicate()]),
            activation="silu",
        )
        close(y, nn.functional.silu(a.double() @ weight.double().T + 1))


test_batches = run(on_ranks_batches)


def on_ranks_uneven() -> None:
    """Parts of different sizes and empty ones: gradients, and an error that all ranks raise."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = mesh_of()
    for shape in ((3, 4, 6), (1, 4, 6), (0, 6), (3, 6), (1, 6)):
        x, weight = torch.randn(shape), torch.randn(5, 6)
        placed = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
        shared = distribute_tensor(weight, mesh, [Replicate()]).requires_grad_()
        mm32.linear(placed, shared).square().sum().backward()
        exact, wide = x.double().requires_grad_(), weight.double().requires_grad_()
        torch.nn.functional.linear(exact, wide).square().sum().backward()
        for got, right in ((placed, exact), (shared, wide)):
            assert (got.grad.full_tensor() - right.grad).norm() <= 1e-6 * right.grad.norm(), shape
    one, square = (distribute_tensor(torch.randn(n, 6), mesh, [p]) for n, p in ((1, Shard(0)), (6, Replicate())))
    with pytest.raises(RuntimeError, match="out overlaps a in memory"):
        mm32.matmul(one, square, out=one)


test_uneven = run(on_ranks_uneven)


def on_ranks_communication() -> None:
    """The collectives that docs/distributed.md lists are called, and no others: CommDebugMode counts them."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode

    mesh, r = mesh_of(), Replicate()

    def sent(call: Callable[[], Any]) -> dict[str, int]:
        with CommDebugMode() as counted:
            call()
        return {operator.__name__: count for operator, count in counted.get_comm_counts().items() if count}

    def placed(shape: tuple[int, ...], place: Any) -> Any:
        return distribute_tensor(torch.randn(shape), mesh, [place])

    bias = placed((4,), r)
    for a, b in ((r, r), (Shard(1), r), (Shard(0), r), (r, Shard(1))):  # the bias and the activation are fused
        x, y = placed((2, 6, 8), a), placed((8, 4), b)
        assert sent(lambda x=x, y=y: mm32.matmul(x, y, bias=bias, activation="gelu")) == {}, (a, b)
    x, y = placed((2, 6, 8), Shard(2)), placed((8, 4), Shard(0))
    assert sent(lambda: mm32.matmul(x, y, bias=bias)) == {}
    summed = mm32.matmul(x, y, bias=bias)
    assert sent(lambda: summed.redistribute(placements=[Shard(1)])) == {"reduce_scatter_tensor": 1}
    assert sent(lambda: mm32.matmul(x, y, bias=bias, activation="gelu")) == {"all_reduce": 1}
    rows, columns = placed((6, 8), Shard(0)), placed((8, 400), Shard(1))
    assert sent(lambda: mm32.matmul(rows, columns)) == {"all_gather_into_tensor": 1}
    packed, out = mm32.pack(y), placed((2, 6, 4), Shard(1))
    assert sent(lambda: mm32.pack(y)) == {}
    assert sent(lambda: mm32.matmul(x, packed, bias=bias)) == {}
    left, right = placed((2, 6, 8), Shard(1)), placed((8, 4), r)
    assert sent(lambda: mm32.matmul(left, right, out=out)) == {}
    # Gradients: for one b of a batch that is sharded in its middle dimension, the gradient is a sum that is left open.
    x, y = placed((2, 6, 8), Shard(1)).requires_grad_(), placed((8, 4), r).requires_grad_()
    result = mm32.matmul(x, y)
    grad = torch.ones_like(result)
    assert sent(lambda: torch.autograd.grad(result, (x, y), grad)) == {}


test_communication = run(on_ranks_communication)


def on_ranks_errors_of_sums() -> tuple[float, float, float]:
    """Return, for a product with K over the ranks, the largest error of an element in units of u |a||b|, the normwise error, and
    the normwise error of torch's product on one process."""
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = mesh_of()
    a, b = torch.randn(64, 8192), torch.randn(8192, 48)
    truth, gauge = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    got = mm32.matmul(distribute_tensor(a, mesh, [Shard(1)]), distribute_tensor(b, mesh, [Shard(0)]))
    assert got.placements[0].is_partial()
    wrong = (got.full_tensor().double() - truth).abs()
    alone = (torch.matmul(a, b).double() - truth).norm() / truth.norm()
    return float((wrong / (U * gauge)).max()), float(wrong.norm() / truth.norm()), float(alone)


@pytest.mark.parametrize("world", [2, 4])
def test_sums_over_ranks_keep_the_promise(world: int, ranks: Ranks) -> None:
    """The promise of docs/numerics.md: an error within K componentwise, and normwise no larger than that of one process's fp32
    product, or 4u."""
    for componentwise, normwise, alone in ranks.run(on_ranks_errors_of_sums, world=world):
        assert componentwise <= 8192 / world + world - 1
        assert normwise <= max(alone, 4 * U)


def on_ranks_compiled() -> None:
    """torch.compile traces products of DTensors, forward and backward, and a tensor parallel layer, without a graph break."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = mesh_of()

    def f(x: Any, y: Any, z: Any) -> Any:
        return mm32.matmul(x, y, bias=z, activation="relu")

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    a, b, bias = torch.randn(6, 8), torch.randn(8, 4), torch.randn(4)
    for i, j in ((0, None), (1, 0)):
        x, y = (
            distribute_tensor(t, mesh, [Replicate() if d is None else Shard(d)]).requires_grad_()
            for t, d in ((a, i), (b, j))
        )
        z = distribute_tensor(bias, mesh, [Replicate()])
        got, wanted = (g(x, y, z) for g in (compiled, f))
        close(got, wanted.full_tensor(), 0.0)
        for mine, true in zip(*(torch.autograd.grad(t.sum(), (x, y)) for t in (got, wanted)), strict=True):
            close(mine, true.full_tensor(), 0.0)
    model, x = perceptron(), torch.randn(4, 16)
    wanted = model(x)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with torch.no_grad():
        close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), wanted)


test_compiled = run(on_ranks_compiled)


def on_ranks_packed() -> None:
    """Each rank packs its own shard. Gradients are as without packing, and a changed shard is refused."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh, (a, b) = mesh_of(), (torch.randn(6, 8), torch.randn(8, 10))
    with torch.no_grad():
        for i, j in itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2):
            x, y = distribute_tensor(a, mesh, [i]), distribute_tensor(b, mesh, [j])
            packed = mm32.pack(y)
            with products() as seen:
                result = mm32.matmul(x, packed)
            assert [shape[-1] for shape in seen] == [y.to_local().shape[1]]
            close(result, a.double() @ b.double())
    x, y = (distribute_tensor(t, mesh, [Shard(0)]).requires_grad_() for t in (a, b))
    packed = mm32.pack(y)
    for got, wanted in zip(
        torch.autograd.grad(mm32.matmul(x, packed).sum(), (x, y)), (b.sum(1).expand(6, 8), a.sum(0)[:, None].expand(8, 10)),
        strict=True,
    ):  # fmt: skip
        close(got, wanted)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="was modified in place"):
        mm32.matmul(x, packed)


test_packed = run(on_ranks_packed)


# ---------------------------------------------------------------------------------------------------------------------
# Layers


def perceptron() -> nn.Sequential:
    """Return a model that is the same on every rank. The first layer's activation is fused, the second's stays a module."""
    torch.manual_seed(1)
    return mm32.replace_linear(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh()))


class Block(nn.Module):
    """A part of a transformer, in the form that sequence parallel needs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.norm, self.mlp = nn.LayerNorm(16), perceptron()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


def trained(model: nn.Module, x: torch.Tensor, steps: int, **options: Any) -> list[torch.Tensor]:
    """Train with AdamW, and return the output before each step and after the last."""
    optimizer, outputs = torch.optim.AdamW(model.parameters(), lr=0.01, **options), []
    for _ in range(steps):
        optimizer.zero_grad()
        outputs.append(model(x))
        outputs[-1].square().mean().backward()
        optimizer.step()
    return [*outputs, model(x)]


def on_ranks_tensor_parallel() -> None:
    """Colwise, rowwise and sequence parallel layers train as on one process in float64. All of their products are mm32's, one
    for each layer's. Then inference with frozen layers packs each rank's part once."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    mesh, x = mesh_of(), torch.randn(2, 4, 16)
    truth = trained(Block().double(), x.double(), 3)
    plan = {
        "norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.0": ColwiseParallel(input_layouts=Replicate()),
        "mlp.2": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    model = parallelize_module(Block(), mesh, plan)
    from torch.distributed.tensor import distribute_tensor

    sharded = distribute_tensor(x, mesh, [Shard(1)])
    with products() as seen:
        model(sharded).full_tensor().square().mean().backward()
    assert len(seen) == 6, seen  # two forward, and the gradients of two inputs and of two weights
    assert all(16 in shape[-2:] for shape in seen)
    for parameter in model.parameters():
        parameter.grad = None
    for got, wanted in zip(trained(model, sharded, 3), truth, strict=True):
        close(got, wanted)
    mm32.freeze(model.eval())
    packs = counted_packs()
    with torch.no_grad():
        for _ in range(3):
            close(model(sharded), truth[-1])
        assert packs == [], "packed when it was frozen"
        model.mlp[0].weight.mul_(1)
        model(sharded)
    assert len(packs) == 1
    for options in (
        {"foreach": True},
        {"fused": True},
    ):  # torch counts the changes of these on neither the DTensor nor its local tensor
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
        model(sharded).full_tensor().sum().backward()
        optimizer.step()
        before = len(packs)
        with torch.no_grad():
            model(sharded)
        assert len(packs) == before + 2, options


test_tensor_parallel = run(on_ranks_tensor_parallel)


def on_ranks_frozen_in_inference_mode() -> None:
    """In inference mode a frozen tensor parallel layer packs a changed weight again, and mm32.pack takes a parameter. Then the
    layers are moved."""
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, x, model = mesh_of(), torch.randn(4, 16), perceptron()
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    packs = counted_packs()
    mm32.freeze(model.eval())
    assert len(packs) == 2
    with torch.inference_mode():
        model(x)
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight.mul_(-2)
    alone = perceptron()
    alone.load_state_dict({name: t.full_tensor() for name, t in model.state_dict().items()})
    with torch.inference_mode():
        for _ in range(2):
            close(model(x), alone(x))
        assert len(packs) == 4
        weight = distribute_tensor(torch.randn(16, 8), mesh, [Shard(1)])
        close(mm32.matmul(distribute_tensor(x, mesh, [_replicated()]), mm32.pack(weight)), x @ weight.full_tensor())
    packed = mm32.pack(model[0].weight)
    with torch.inference_mode():
        packed = mm32.pack(model[0].weight)
    packed.check()
    with torch.no_grad():
        model[0].weight.mul_(2)
        with pytest.raises(RuntimeError, match="was modified in place"):
            packed.check()
        model[0].weight.div_(2)
        # torch swaps parameters that are DTensors, and refuses to if there is any weak reference to them.
        model(x)
        model.double().float().to("cpu")
        before = len(packs)
        close(model(x), alone(x))
    assert len(packs) == before + 2
    mm32.unfreeze(model).double()


test_frozen_in_inference_mode = run(on_ranks_frozen_in_inference_mode)


def on_ranks_after_rowwise() -> None:
    """A layer that is not parallel, after one that is, gets the result of a collective that has not finished yet."""
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model = nn.Sequential(mm32.nn.Linear(16, 16), mm32.nn.Linear(16, 8, activation="relu"))
    x = torch.randn(4, 16)
    wanted = copy.deepcopy(model).double()(x.double())
    parallelize_module(model, mesh_of(), {"0": RowwiseParallel(input_layouts=_replicated())})
    with products() as seen, torch.no_grad():
        close(model(x), wanted)
    assert len(seen) == 2


def _replicated() -> Any:
    from torch.distributed.tensor import Replicate

    return Replicate()


test_after_rowwise = run(on_ranks_after_rowwise)


def on_ranks_fsdp(tensor_parallel: bool) -> None:
    """With FSDP2, and on four ranks over tensor parallel, a model trains as on one process. When frozen, a weight is packed once
    each time it is gathered, the packed weight is dropped with the gathered one, and it is always that of the last step."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    x, model = torch.randn(4, 16), perceptron()
    truth = trained(perceptron().double(), x.double(), 3)
    mesh = mesh_of(2, 2, names=("dp", "tp")) if tensor_parallel else mesh_of(names=("dp",))
    if tensor_parallel:
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    with products() as seen:
        outputs = trained(model, x, 3)
    assert len(seen) == 3 * 5 + 2, len(seen)  # the first layer's input has no gradient
    for got, wanted in zip(outputs, truth, strict=True):
        close(got, wanted)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mm32").addHandler(handler)
    mm32.freeze(model.eval())
    assert said == [], "nothing to say of weights that are packed when they are gathered"
    packs = counted_packs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        with torch.no_grad():
            got = model(x)
        assert len(packs) == 2 * (step + 1)
        assert model[0]._kept is None
        assert model[2]._kept is None
        alone = perceptron()
        full = {name: t.full_tensor() for name, t in model.state_dict().items()}
        alone.load_state_dict(full)
        close(got, alone(x))
        with torch.inference_mode():
            close(model(x), got, 0.0)
        packs[:] = packs[: 2 * (step + 1)]
        model(x).square().mean().backward()
        optimizer.step()
    width = 16 if tensor_parallel else 32
    assert packs[:2] == [(16, width), (width, 16)]
    # A weight that is gathered by hand is packed once for all calls until it is resharded.
    model[0].unshard()
    with torch.no_grad():
        for _ in range(3):
            model[0].forward(x if not tensor_parallel else _as_replicated(x, mesh["tp"]))
    assert len(packs) == 7
    assert model[0]._kept is not None
    model[0].reshard()
    assert model[0]._kept is None


def _as_replicated(x: torch.Tensor, mesh: Any) -> Any:
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(x, mesh, [_replicated()], run_check=False)


def test_fsdp(ranks: Ranks) -> None:
    ranks.run(on_ranks_fsdp, False)


def test_fsdp_over_tensor_parallel(ranks: Ranks) -> None:
    ranks.run(on_ranks_fsdp, True, world=4)


def on_ranks_fsdp1_frozen() -> None:
    """FSDP1's sharded weights are not matrices: freeze leaves them unpacked, and calls read the gathered weights."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    x, alone, packs = torch.randn(4, 16), perceptron(), counted_packs()
    model = FullyShardedDataParallel(perceptron(), use_orig_params=True, device_id=torch.device("cpu")).eval()
    mm32.freeze(model)
    with torch.no_grad():
        close(model(x), alone(x))
    assert packs == []


test_fsdp1_frozen = run(on_ranks_fsdp1_frozen)


def on_ranks_ddp() -> None:
    """With each rank's part of the batch, a model trains as on one process with the whole batch."""
    from torch.nn.parallel import DistributedDataParallel

    x = torch.randn(4, 16)
    truth = trained(perceptron().double(), x.double(), 3)
    mine = slice(2 * dist.get_rank(), 2 * dist.get_rank() + 2)
    with products() as seen:
        outputs = trained(DistributedDataParallel(perceptron()), x[mine], 3)
    assert len(seen) == 3 * 5 + 2
    for got, wanted in zip(outputs, truth, strict=True):
        close(got, wanted[mine])


test_ddp = run(on_ranks_ddp)


def on_ranks_checkpoints(folder: str) -> None:
    """A checkpoint that torch.distributed.checkpoint saves from frozen tensor parallel layers loads into FSDP2's layers, and into
    a plain model of torch's layers."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, x, model = mesh_of(), torch.randn(4, 16), perceptron()
    with torch.no_grad():
        model[0].weight.add_(1)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    mm32.freeze(model.eval())
    with torch.no_grad():
        wanted = model(x)
    saved = get_model_state_dict(model)
    assert sorted(saved) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    dcp.save(saved, checkpoint_id=folder)

    again = parallelize_module(perceptron(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    mm32.freeze(again.eval())
    packs = counted_packs()
    with torch.no_grad():
        again(x)
        dcp.load(again.state_dict(), checkpoint_id=folder)  # writes to the weights, which torch does not count
        close(again(x), wanted)
    assert len(packs) == 2, packs

    other = fully_shard(perceptron(), mesh=mesh)
    state = get_model_state_dict(other)
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(other, state)
    with torch.no_grad():
        close(other(x), wanted)

    plain = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh())
    state = plain.state_dict()
    dcp.load(state, checkpoint_id=folder)
    plain.load_state_dict(state)
    with torch.no_grad():
        close(plain(x), wanted)


def test_checkpoints(ranks: Ranks) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(on_ranks_checkpoints, folder)


def test_check_takes_a_mesh() -> None:
    with pytest.raises(TypeError, match="takes a DeviceMesh, or nothing for all ranks, got str"):
        mm32.distributed.check("x")  # type: ignore[arg-type]


class Quantized(torch.Tensor):
    """A subclass that supports only torch's functions."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function not in (nn.functional.linear, torch.Tensor.dtype.__get__):
            raise NotImplementedError(str(function))
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


def test_a_layer_says_what_it_leaves_to_torch(caplog: pytest.LogCaptureFixture) -> None:
    """It says so once for each class of tensors."""
    layer = mm32.nn.Linear(4, 4)
    x = torch.randn(2, 4).as_subclass(Quantized)
    with caplog.at_level(logging.WARNING, "mm32"):
        for _ in range(2):
            layer(x)
    assert caplog.messages == ["mm32.nn.Linear leaves products of Quantized, a subclass of torch.Tensor, to torch"]


# ---------------------------------------------------------------------------------------------------------------------
# Programs

PAGE = SCRIPTS.parent.parent / "docs" / "distributed.md"


def on_ranks_gaussian_process(points: int, judge: int) -> tuple:
    """Run the example at a small size, with blocks that do not divide the points. It compares a part of its result with float64;
    the test compares all of it."""
    gp = example("gp")
    with products() as seen:
        found = gp.run(mesh_of(), points=points, block=64, at=50, judge=judge)
    assert any(shape[0] > 64 and shape[1:] == (64, 64) for shape in seen), "the factorisation's products are mm32's"
    assert found["mean error"] <= gp.PROMISE
    assert found["variance error"] <= gp.PROMISE
    assert found["residuals"][-1] <= gp.TOLERANCE
    assert len(found["residuals"]) <= 4
    assert found["mean"].placements[0].is_shard(0)
    return found["mean"].full_tensor(), found["variance"].full_tensor(), found["condition"]


def test_a_gaussian_process_over_ranks(ranks: Ranks) -> None:
    """Two and three ranks give the same answers. The condition number is above 100, which the matrix's diagonal alone would
    give."""
    (mean, variance, condition), *others = [
        answer for world in (2, 3) for answer in ranks.run(on_ranks_gaussian_process, 500, 330, world=world)
    ]
    assert condition > 100
    for other in others:
        close(other[0], mean, 1e-6)
        close(other[1], variance, 1e-5)
    # These are the answers for all 500 points, not only for the part that was judged.
    gp = example("gp")
    generator = torch.Generator().manual_seed(0)
    x, at = (torch.randn(n, 8, generator=generator, dtype=torch.float64) for n in (500, 50))
    y = torch.sin(x.sum(1) * (2 / 8**0.5)) + gp.NOISE * torch.randn(500, generator=generator, dtype=torch.float64)
    for got, truth in zip((mean, variance), gp.exact(x, y, at), strict=True):
        close(got, truth, gp.PROMISE)


def on_ranks_muon() -> None:
    muon = example("muon")
    with products() as seen:
        assert muon.run(mesh_of(), width=32) <= muon.PROMISE
    assert len(seen) > 2 * 3 * 15, "the iterations' products are mm32's"


test_a_muon_step_over_shards = run(on_ranks_muon)


@pytest.mark.slow
def test_the_lines_of_the_page_run_as_they_are_written() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("torchrun") and "--device cpu" in line]
    assert len(lines) >= 3
    for line in lines:
        command = shlex.split(line.partition("  #")[0])
        command[0:1] = [sys.executable, "-m", "torch.distributed.run"]
        done = subprocess.run(command, cwd=SCRIPTS.parent.parent, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "float64" in done.stdout


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that differ, and runs that must not differ


def on_ranks_check(differ: bool) -> str | None:
    if differ and dist.get_rank() == 3:
        mm32.__version__ = "0.0.9"
    for mesh in (None, mesh_of(2, 2)):
        try:
            mm32.distributed.check(mesh)
        except RuntimeError as error:
            said = str(error)
        else:
            said = None
    return said


def test_ranks_that_would_compute_alike(ranks: Ranks) -> None:
    assert ranks.run(on_ranks_check, False, world=4) == [None] * 4


def test_ranks_that_differ_are_told_on_all_ranks(ranks: Ranks) -> None:
    wanted = (
        "the ranks of this mesh would not compute alike with mm32: "
        f"mm32 is {mm32.__version__} on ranks 0, 1, 2, 0.0.9 on rank 3"
    )
    assert ranks.run(on_ranks_check, True, world=4) == [wanted] * 4


def on_ranks_check_of(part: str, folder: str) -> str | None:
    from mm32 import distributed, settings
    from mm32.cuda import prebuilt

    if dist.get_rank() == 1:
        if part == "planner":
            distributed.planning.__file__ = f"{folder}/__init__.py"
        elif part == "compiled kernels":
            prebuilt.FOLDER = Path(folder)
        elif part == "disabled":
            settings._disabled = True
        elif part == "limit":
            mm32.set_workspace_limit("64MiB")
        else:
            distributed.torch_product.torch_precision = lambda device: 1 // 0
    try:
        mm32.distributed.check()
    except RuntimeError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ("planner", r"would not compute alike with mm32: mm32's planner is \w{12} on rank 0, \w{12} on rank 1"),
        ("compiled kernels", r"alike with mm32: mm32's compiled kernels is \w+ on rank 0, \w{12} on rank 1"),
        ("disabled", r"alike with mm32: MM32_DISABLE is off on rank 0, on on rank 1"),
        ("limit", r"alike with mm32: mm32's workspace limit is 2147483648 bytes on rank 0, 67108864 bytes on rank 1"),
        ("failed", r"ranks failed to find out how they compute, rank 1: ZeroDivisionError: .*`mm32 env`"),
    ],
)
def test_what_a_check_compares(part: str, wanted: str, ranks: Ranks, tmp_path: Path) -> None:
    """It compares what decides how a rank computes; a rank that fails there leaves no other rank waiting."""
    (tmp_path / "choose.py").write_text("other = True\n")
    (tmp_path / "0123.cubin").write_bytes(b"")
    first, second = ranks.run(on_ranks_check_of, part, str(tmp_path))
    assert first == second
    assert re.search(wanted, first)


def test_a_check_without_a_group_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"there is none: call torch.distributed.init_process_group"):
        mm32.distributed.check()


def on_ranks_digest() -> str:
    """Return a digest of the outputs of three training steps with FSDP2 and of a product with K over the ranks."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh, digest = mesh_of(), hashlib.sha256()
    model = fully_shard(perceptron(), mesh=mesh)
    a, b = torch.randn(33, 200), torch.randn(200, 17)
    x, y = distribute_tensor(a, mesh, [Shard(1)]), distribute_tensor(b, mesh, [Shard(0)])
    for t in (*trained(model, torch.randn(4, 16), 3), mm32.matmul(x, y).full_tensor()):
        digest.update(t.detach().numpy().tobytes())
    return digest.hexdigest()


def test_two_runs_on_the_same_mesh_have_the_same_bits(ranks: Ranks) -> None:
    first, second = (ranks.run(on_ranks_digest) for _ in range(2))
    assert first == second
    assert len(set(first)) == 1


def on_ranks_one_dies() -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = mesh_of()
    x = distribute_tensor(torch.randn(8, 8), mesh, [Shard(1)])
    for step in range(3):
        if step == 1 and dist.get_rank() == 1:
            os._exit(7)
        mm32.matmul(x, x).full_tensor()


def test_a_rank_that_dies_ends_the_others(ranks: Ranks) -> None:
    """The others soon get torch's own error, from the collective that waited for that rank."""
    start = time.monotonic()
    (kind, text), died = ranks.said(on_ranks_one_dies)
    assert died == ("died", 7)
    assert kind == "error"
    assert "Connection closed by peer" in text or "Connection reset by peer" in text, text
    assert time.monotonic() - start < 30


def on_ranks_fails() -> None:
    dist.barrier()  # otherwise a rank could end while another still connects, which is another error
    raise ValueError(f"of rank {dist.get_rank()}")


def test_what_a_rank_raises_is_raised_here(ranks: Ranks) -> None:
    with pytest.raises(RankError, match=r"(?s)rank 0 error: .*ValueError: of rank 0.*rank 1 error: .*of rank 1"):
        ranks.run(on_ranks_fails)


def test_what_decides_how_a_rank_computes_is_compared() -> None:
    before = mm32.distributed._facts("cpu")
    torch.use_deterministic_algorithms(True)
    try:
        assert mm32.distributed._facts("cpu") == before | {"deterministic mode": "True"}
    finally:
        torch.use_deterministic_algorithms(False)
