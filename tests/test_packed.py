"""Operands packed beforehand: what they take the place of, what they refuse, how they are planned; on the card, the same bits."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
from collections.abc import Callable

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.library import opcheck

import mm32
from gpu_support import (
    MATRIX_STORES,
    UNIT,
    Placed,
    Store,
    assert_close,
    beyond_the_first_tier,
    forget_plans,
    reference,
)
from mm32 import gemm, numerics
from mm32 import plan as planning
from mm32.cuda import launch
from mm32.gemm import LAYOUTS, from_layout
from mm32.plan import H200, Card, Unplannable

A100 = Card("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166912)
OLD = Card("Tesla T4", (7, 5), 40, 65536)
ALL_TILES = planning.emulated.TENSOR_TILES
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SIDES = ["a", "b", "ab"]


@pytest.fixture(autouse=True)
def _panels(panels_only: None) -> None:
    """Calls without packed operands pack theirs too: only then are there the same bits to compare with."""


@pytest.fixture
def all_tiles(_panels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning.emulated, "TENSOR_TILES", ALL_TILES)
    forget_plans()


def pack_sides(a: torch.Tensor, b: torch.Tensor, sides: str, **options: object) -> tuple:
    """The operands, those named in `sides` packed."""
    return (
        mm32.pack(a, side="left", **options) if "a" in sides else a,
        mm32.pack(b, **options) if "b" in sides else b,
    )


# ---------------------------------------------------------------------------------------------------------------------
# In the place of a tensor


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sides", SIDES)
def test_takes_the_place_of_a_tensor(sides: str, device: str, seed: int) -> None:
    a, b, bias = (torch.randn(*s, device=device) for s in ((9, 300), (300, 7), (7,)))
    x, y = pack_sides(a, b, sides)
    for options in ({}, {"bias": bias, "activation": "gelu"}, {"activation": "relu"}):
        expected = mm32.matmul(a, b, kernel="tensorcore" if device == "cuda" else "auto", **options)
        assert torch.equal(mm32.matmul(x, y, **options), expected)
        out = torch.empty(7, 9, device=device).T
        assert mm32.matmul(x, y, out=out, **options) is out
        assert torch.equal(out, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(300,), (1, 300), (2, 5, 300), (2, 3, 5, 300), (0, 300), (2, 0, 300)], ids=str)
def test_one_packed_b_for_batches_and_vectors(shape: tuple[int, ...], device: str, seed: int) -> None:
    x, weight, bias = (torch.randn(*s, device=device) for s in (shape, (7, 300), (7,)))
    packed_weight = mm32.pack(weight.T)
    got = mm32.linear(x, packed_weight, bias, activation="silu")
    assert got.shape == (*shape[:-1], 7)
    assert_close(got, *reference(x, weight.T, bias, "silu"))
    assert torch.equal(mm32.matmul(x, packed_weight, bias=bias, activation="silu"), got)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["batch", "expanded", "expanded_rows", "one_row", "vector"])
def test_one_packed_a_for_batches_and_vectors(case: str, device: str, seed: int) -> None:
    """A batch that would otherwise be rows of one taller A must not be: A was packed as it is."""
    a = torch.randn(1 if case == "one_row" else 5, 300, device=device)
    a = a[:1].expand(5, 300) if case == "expanded_rows" else a
    b = torch.randn(*((300,) if case == "vector" else (3, 300, 7) if case == "batch" else (300, 7)), device=device)
    b = b.expand(3, 300, 7) if case in ("expanded", "expanded_rows", "one_row") else b
    assert_close(mm32.matmul(mm32.pack(a, side="left"), b), *reference(a, b))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("sides", SIDES)
def test_gradients_reach_the_source(sides: str, activation: str | None, device: str, seed: int) -> None:
    a, b, bias = (torch.randn(*s, device=device, requires_grad=True) for s in ((9, 300), (300, 7), (7,)))
    weight = torch.randn(9, 7, device=device)
    x, y = pack_sides(a, b, sides)
    result = mm32.matmul(x, y, bias=bias, activation=activation)
    wanted = torch.autograd.grad((mm32.matmul(a, b, bias=bias, activation=activation) * weight).sum(), (a, b, bias))
    for got, expected in zip(torch.autograd.grad((result * weight).sum(), (a, b, bias)), wanted, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_gradients_reach_a_parameter_through_its_transpose(seed: int) -> None:
    weight, x = torch.nn.Parameter(torch.randn(7, 9)), torch.randn(3, 9)
    packed_weight = mm32.pack(weight.T)
    for _ in range(2):  # a packed operand serves several backward passes
        weight.grad = None
        mm32.linear(x, packed_weight).sum().backward()
        torch.testing.assert_close(weight.grad, x.sum(0).expand(7, 9))
    assert not mm32.linear(x, mm32.pack(weight.detach().T)).requires_grad


def test_gradcheck(seed: int) -> None:
    a, b = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4, 5)))
    assert torch.autograd.gradcheck(lambda a, b: mm32.matmul(a, mm32.pack(b), activation="tanh"), (a, b))


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_equals_eager(device: str, seed: int) -> None:
    torch._dynamo.reset()
    weight, bias = torch.randn(7, 300, device=device), torch.randn(7, device=device)
    packed_weight = mm32.pack(weight.T)

    def model(x: torch.Tensor) -> torch.Tensor:
        return mm32.linear(x + 1, packed_weight, bias, activation="gelu").sin()

    x = torch.randn(9, 300, device=device, requires_grad=True)
    eager, compiled = model(x), torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)
    for got, expected in zip(*(torch.autograd.grad(r.sum(), x) for r in (compiled, eager)), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_packing_is_compiled_too(device: str, seed: int) -> None:
    torch._dynamo.reset()
    x, weight = torch.randn(9, 300, device=device), torch.randn(7, 300, device=device)

    def model(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return mm32.linear(x, mm32.pack(weight.T))

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(x, weight)
    torch.testing.assert_close(compiled, model(x, weight), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("depth", [4, 300])
def test_opcheck(depth: int, precision: str, device: str, seed: int) -> None:
    a, b, bias = (torch.randn(*s, device=device, requires_grad=True) for s in ((3, depth), (depth, 5), (5,)))
    opcheck(torch.ops.mm32.pack.default, (b.detach().T.contiguous().T, "right", precision))
    opcheck(torch.ops.mm32.pack.default, (a.detach(), "left", precision))
    left, right = (x.memory for x in pack_sides(a, b, "ab", precision=precision))
    ops = torch.ops.mm32
    opcheck(ops.matmul.default, (a, b, bias, "gelu", precision, "auto", None, right))
    opcheck(ops.matmul.default, (a.detach(), b, None, None, precision, "auto", left, right))
    opcheck(ops.matmul.default, (a.detach(), b, None, None, precision, "auto", left))
    out = torch.empty(3, 5, device=device)
    opcheck(
        ops.matmul_out.default,
        (a.detach(), b.detach(), None, None, precision, "auto", out, left, None),
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(300,), (2, 3, 300), (0, 300)], ids=str)
def test_opcheck_of_batches_and_vectors(shape: tuple[int, ...], device: str, seed: int) -> None:
    a, b, bias = (torch.randn(*s, device=device) for s in (shape, (300, 5), (5,)))
    right, out = mm32.pack(b).memory, torch.empty(*shape[:-1], 5, device=device)
    options = (bias, "relu", "fp32", "auto")
    opcheck(torch.ops.mm32.matmul.default, (a.clone().requires_grad_(), b, *options, None, right))
    opcheck(torch.ops.mm32.matmul_out.default, (a, b, *options, out, None, right))


@pytest.mark.parametrize("device", DEVICES)
def test_packed_inside_transforms(device: str, seed: int) -> None:
    """Made inside and used there; vmap's samples are one batch, which is read as it is."""
    a, b = torch.randn(9, 300, device=device), torch.randn(3, 300, 7, device=device)
    before = torch._C._functorch._is_vmap_fallback_enabled()
    torch._C._functorch._set_vmap_fallback_enabled(False)  # no loop over the samples
    try:
        reasons = []

        def sample(b: torch.Tensor) -> torch.Tensor:
            made = mm32.pack(b)
            reasons.append(made.reason)
            return mm32.matmul(a, made)

        torch.testing.assert_close(torch.vmap(sample)(b), a @ b, rtol=1e-4, atol=1e-4)
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(before)
    assert reasons[0] is not None

    def loss(b: torch.Tensor) -> torch.Tensor:
        return mm32.matmul(a, mm32.pack(b)).square().sum()

    one, tangent = b[0], torch.randn_like(b[0])
    wanted = 2 * a.T @ (a @ one)
    torch.testing.assert_close(torch.func.grad(loss)(one), wanted, rtol=1e-3, atol=1e-2)
    with torch.no_grad():
        _, got = torch.func.jvp(lambda b: mm32.matmul(a, mm32.pack(b)), (one,), (tangent,))
    torch.testing.assert_close(got, a @ tangent, rtol=1e-4, atol=1e-4)


def test_a_fake_operand_of_a_card_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with FakeTensorMode():
        b = torch.empty(300, 7, device="cuda")
        made = mm32.pack(b)
        assert mm32.matmul(torch.empty(9, 300, device="cuda"), made).shape == (9, 7)
    assert made.reason == "it was made where there was no card"


def test_autocast_and_inference_mode(seed: int) -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mm32.matmul(a, mm32.pack(b)), mm32.matmul(a, b))
    with torch.inference_mode():
        made_there = mm32.pack(torch.randn(4, 5))
        made_there.source.zero_()  # inference tensors do not count their changes: this is not seen, and said so
        assert torch.equal(mm32.matmul(a, made_there), torch.zeros(3, 5))


# ---------------------------------------------------------------------------------------------------------------------
# Refusals


def changed_in_place(b: torch.Tensor) -> None:
    b[1, 2] = 0.0


CHANGES: dict[str, Callable[[torch.Tensor], object]] = {
    "element": changed_in_place,
    "view": lambda b: b.T[0].mul_(2),
    "detached": lambda b: b.detach().zero_(),
    "other_memory": lambda b: setattr(b, "data", torch.randn(*b.shape)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("sides", SIDES)
def test_a_changed_source_is_refused(sides: str, change: str) -> None:
    a, b = torch.randn(4, 5), torch.randn(5, 4)
    x, y = pack_sides(a, b, sides)
    mm32.matmul(x, y)
    CHANGES[change](b if "b" in sides else a)
    with pytest.raises(
        RuntimeError, match=r"shape \(\d, \d\) was modified in place .* after mm32.pack: .* Pack it again"
    ):
        mm32.matmul(x, y)
    with pytest.raises(RuntimeError, match="was modified in place"):
        mm32.explain(x, y)


class Plain(torch.Tensor):
    """A subclass with memory of its own."""


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_source_of_a_subclass_is_refused(change: str) -> None:
    b = torch.randn(5, 4).as_subclass(Plain)
    packed = mm32.pack(b)
    packed.check()
    CHANGES[change](b)
    with pytest.raises(RuntimeError, match="was modified in place"):
        packed.check()


def test_an_optimizer_step_is_a_change(seed: int) -> None:
    weight = torch.nn.Parameter(torch.randn(7, 9))
    packed_weight = mm32.pack(weight.T)
    optimizer = torch.optim.SGD([weight], 0.1)
    mm32.linear(torch.randn(3, 9), packed_weight).sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="was modified in place"):
        mm32.linear(torch.randn(3, 9), packed_weight)


def test_reading_the_source_is_no_change() -> None:
    b = torch.randn(4, 5)
    packed_b = mm32.pack(b)
    b.sum(), b.T.contiguous(), b.clone().zero_()
    assert torch.equal(mm32.matmul(torch.eye(4), packed_b), b)


def test_what_does_not_fit_is_refused() -> None:
    a, b = torch.randn(3, 4), mm32.pack(torch.randn(4, 5))
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(4x3 and 4x5\)"):
        mm32.matmul(a.T, b)
    with pytest.raises(RuntimeError, match=r"bias must have shape \(5,\)"):
        mm32.matmul(a, b, bias=torch.zeros(4))
    with pytest.raises(
        RuntimeError, match=r"a is a packed operand of shape \(4, 5\), packed as the right operand .*side='left'"
    ):
        mm32.matmul(b, torch.randn(5, 2))
    with pytest.raises(
        RuntimeError, match=r"b is a packed operand of shape \(3, 4\), packed as the left operand .*side='right'"
    ):
        mm32.matmul(torch.randn(2, 3), mm32.pack(a, side="left"))
    with pytest.raises(ValueError, match=r"packed for precision 'fp32', and precision 'tf32' was asked for"):
        mm32.matmul(a, b, precision="tf32")
    with pytest.raises(
        ValueError, match=r"kernel 'simt' takes operands as they are: give it the packed operand's source"
    ):
        mm32.matmul(a, b, kernel="simt")
    with pytest.raises(ValueError, match="unknown kernel 'fast'"):
        mm32.matmul(a, b, kernel="fast")
    with pytest.raises(ValueError, match="unknown precision 'half'"):
        mm32.matmul(a, b, precision="half")
    with pytest.raises(RuntimeError, match=r"takes a packed operand of shape \(5, N\), which is mm32.pack\(weight.T\)"):
        mm32.linear(torch.randn(2, 5), b)
    with pytest.raises(TypeError, match=r"two torch.Tensors, got PackedOperand and list"):
        mm32.matmul(mm32.pack(a, side="left"), [1.0])
    with pytest.raises(RuntimeError, match=r"out=... arguments don't support automatic differentiation"):
        mm32.matmul(a, mm32.pack(torch.randn(4, 5, requires_grad=True)), out=torch.empty(3, 5))
    with pytest.raises(RuntimeError, match="out overlaps b in memory"):
        mm32.matmul(torch.randn(5, 5), mm32.pack(c := torch.randn(5, 5)), out=c)


def test_what_cannot_be_packed_is_refused() -> None:
    b = torch.randn(4, 5)
    with pytest.raises(TypeError, match=r"b must be a torch.Tensor, got list"):
        mm32.pack([1.0])
    for shape in ((), (4,), (2, 4, 5)):
        with pytest.raises(RuntimeError, match=r"takes one matrix, \(K, N\).*got shape \("):
            mm32.pack(torch.randn(shape))
    with pytest.raises(
        RuntimeError, match=r"takes torch.float32 or torch.float64 on cpu; got torch.float16: call .float\(\)"
    ):
        mm32.pack(b.half())
    with pytest.raises(RuntimeError, match=r"takes dense tensors; b has layout torch.sparse_coo"):
        mm32.pack(b.to_sparse())
    with pytest.raises(ValueError, match="unknown side 'top'"):
        mm32.pack(b, side="top")
    with pytest.raises(ValueError, match="unknown precision 'half'"):
        mm32.pack(b, precision="half")


# ---------------------------------------------------------------------------------------------------------------------
# What it says of itself


def test_on_the_cpu_nothing_is_packed_and_it_says_so() -> None:
    b = torch.randn(4, 5)
    packed_b = mm32.pack(b, precision="tf32")
    assert packed_b.source is b
    assert (packed_b.shape, packed_b.dtype, packed_b.device, packed_b.nbytes) == ((4, 5), b.dtype, b.device, 0)
    assert packed_b.reason == "kernels are for CUDA tensors, and this is on cpu"
    assert repr(packed_b) == (
        "PackedOperand((4, 5), side='right', precision='tf32', device='cpu', not packed: kernels are for CUDA tensors, and this "
        "is on cpu)"
    )
    page = mm32.explain(torch.randn(3, 4), packed_b, precision="tf32").splitlines()
    assert page[0].startswith("device     cpu: torch.matmul")
    assert page[1] == f"packed     {packed_b!r}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies(again: Callable, device: str, seed: int) -> None:
    """A copy is packed from its own source, and is not the original's fault."""
    a, b = torch.randn(3, 300, device=device), torch.randn(300, 5, device=device)
    one = mm32.pack(b, precision="tf32")
    two = again(one)
    assert (two.side, two.precision, two.nbytes) == (one.side, one.precision, one.nbytes)
    assert torch.equal(two.source, one.source)
    assert torch.equal(mm32.matmul(a, two, precision="tf32"), mm32.matmul(a, one, precision="tf32"))


# ---------------------------------------------------------------------------------------------------------------------
# Plans


def random_problem(rng: random.Random) -> gemm.Gemm:
    sizes = [rng.choice((1, 2, 100, 128, 129, 1000, 4096, 8205)) for _ in range(2)]
    return from_layout(
        rng.choice(LAYOUTS), *sizes, rng.choice((256, 300, 512, 4096, 33000)), bias=bool(rng.randrange(2))
    )


def test_the_multiply_is_that_of_an_unpacked_call() -> None:
    """The same tiles and parts of K, so the same sums: all that differs is the order in which the work is put on the card."""
    rng = random.Random(1)
    for _ in range(300):
        problem = random_problem(rng)
        plain = planning.plan(problem, H200, "tensorcore")
        for before in ((True, False), (False, True), (True, True)):
            made = planning.plan(problem, H200, rng.choice(("auto", "tensorcore")), before)
            assert made.kernel == "tensorcore"
            names = [launch.entry for launch in made.launches]
            assert names == [launch.entry for launch in plain.launches]
            for one, two in zip(made.launches, plain.launches, strict=True):
                assert launch_form(one) == launch_form(two)
            assert made.workspace.parts == plain.workspace.parts
            assert made.workspace.prepacked == before
            assert dict(made.launches[0].constants) == {
                "A_LOAD": planning.emulated.PREPACKED if before[0] else dict(plain.launches[0].constants)["A_LOAD"],
                "B_LOAD": planning.emulated.PREPACKED if before[1] else dict(plain.launches[0].constants)["B_LOAD"],
                "PRODUCTS": 3,
                "GUARDED": 0,
                "DECIDES": 0,
            }
            assert all(launch.grid(problem) >= 1 for launch in made.launches)
            # To pack beside the multiply is worth it from a tenth of it on: at that edge packing less in turn is not faster.
            assert dict(made.estimates)["tensorcore"] <= 1.05 * dict(plain.estimates)["tensorcore"]


def test_a_multiply_of_packed_operands_does_not_pack_inline(all_tiles: None) -> None:
    """Where a call without packed operands would: then the form is another, and its sums are in another order."""
    rng = random.Random(3)
    inline = 0
    for _ in range(200):
        problem = random_problem(rng)
        plain = planning.plan(problem, H200, "tensorcore")
        inline += multiply_of(plain)["INLINE_PACK"]
        for before in ((True, False), (False, True), (True, True)):
            made = planning.plan(problem, H200, "auto", before)
            assert multiply_of(made)["INLINE_PACK"] == 0
            assert [launch.entry for launch in made.launches][:2] == ["mm32_scale", "mm32_pack"]
    assert 10 <= inline <= 180


def multiply_of(plan: planning.Plan) -> dict[str, int]:
    first, *lower = (launch for launch in plan.launches if launch.entry == "mm32_tensorcore")
    assert not first.lower
    assert all(launch.lower for launch in lower)
    return dict(first.constants)


@pytest.mark.parametrize("kernel", ["auto", "mma"])
def test_mma_multiplies_packed_operands_too(kernel: str) -> None:
    rng = random.Random(4)
    for _ in range(100):
        problem = random_problem(rng)
        plain = planning.plan(problem, A100, "mma")
        for before in ((True, False), (False, True), (True, True)):
            made = planning.plan(problem, A100, kernel, before)
            assert made.kernel == "mma"
            assert list(map(launch_form, made.launches)) == list(map(launch_form, plain.launches))
            assert (made.workspace.parts, made.workspace.prepacked) == (plain.workspace.parts, before)


def launch_form(launch: planning.Launch) -> tuple:
    """What decides a launch's sums: not how operands came to be packed, nor when it starts."""
    left_out = ("A_LOAD", "B_LOAD", "A_UNIT_ROWS", "B_UNIT_ROWS") if launch.source != "emulated/fallback.cu" else ()
    constants = tuple((name, value) for name, value in launch.constants if name not in left_out)
    block = launch.block if launch.entry != "mm32_scale" else 0  # it has more threads where it has fewer blocks
    return launch.entry, constants, block, launch.shared


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_a_plan_reads_a_packed_operand_where_packing_has_put_it(precision: str) -> None:
    rng = random.Random(2)
    for _ in range(200):
        problem = dataclasses.replace(random_problem(rng), precision=precision)
        plain = planning.plan(problem, H200, "tensorcore").workspace
        for side in (0, 1):
            alone = planning.pack(problem, H200, side)
            space = alone.workspace
            assert space.bytes == planning.packed_bytes(problem, side)
            before = (side == 0, side == 1)
            made = planning.plan(problem, H200, "auto", before).workspace
            for name in ("panels", "stats", "ready"):
                assert getattr(made, name)[side] == getattr(space, name)[side]
            if made.lower is None:  # the lower tier packs a packed operand anew
                assert made.bytes < plain.bytes
            assert made.bytes + space.bytes >= plain.bytes or plain.lower is not None
            rows = (problem.m, problem.n)[side]
            planes, blocks = (2 if precision == "fp32" else 1), -(-problem.k // 64)
            assert space.panels[side] + planes * blocks * -(-rows // 8) * 8 * 128 <= space.stats[side]
            assert space.stats[side] + 48 * rows <= space.ready[side]
            assert space.ready[side] + 4 * -(-rows // 128) * -(-blocks // 8) <= space.decision < space.bytes
            assert (alone.gemm.m, alone.gemm.n)[1 - side] == 0
            assert [launch.entry for launch in alone.launches] == ["mm32_scale", "mm32_pack"]


def test_both_packed_leaves_only_the_verdict_and_the_sums() -> None:
    space = planning.plan(from_layout("nt", 300, 200, 8000), H200, "auto", (True, True)).workspace
    decision = -(-(80 + 2 * 256 * 28 + 4 * 256 + 4 * 4 * 64) // 256) * 256  # struct Decision in emulated/stats.cuh
    flags = 2 * 4 * 128  # what mm32_scale leaves behind the stats
    assert space.lower is None
    assert space.bytes == decision + flags + 4 * 300 * 200 * (space.parts if space.parts > 1 else 0)


def test_packing_is_refused_where_the_kernel_would_not_be_chosen() -> None:
    for card, shortest in ((H200, planning.emulated.SHORTEST_K), (A100, planning.emulated.SHORT_K)):
        with pytest.raises(Unplannable, match=f"below K={shortest}"):
            planning.pack(from_layout("nn", 9, 9, shortest - 1), card, 1)
        planning.pack(from_layout("nn", 9, 9, shortest), card, 1)
        planning.pack(from_layout("nn", 9, 9, shortest - 1, precision="tf32"), card, 1)
    with pytest.raises(Unplannable, match="precision 'ieee' promises fp32 multiply-adds only"):
        planning.pack(from_layout("nn", 9, 9, 999, precision="ieee"), H200, 1)
    with pytest.raises(Unplannable, match=r"compute capability 8.0 and later; Tesla T4 has 7.5"):
        planning.pack(from_layout("nn", 9, 9, 999), OLD, 1)
    assert [planning.pack(from_layout("nn", 9, 9, 999), card, 1).kernel for card in (A100, H200)] == [
        "mma",
        "tensorcore",
    ]
    for sizes in ((9, 0, 999), (9, 9, 0)):
        with pytest.raises(Unplannable, match="it has no element"):
            planning.pack(from_layout("nn", *sizes), H200, 1)


def test_a_product_that_does_not_suit_the_kernel_is_computed_without() -> None:
    made = planning.plan(from_layout("nn", planning.emulated.MAX_ROWS + 1, 9, 300), H200, "auto", (False, True))
    assert made.kernel != "tensorcore"
    assert "tensorcore" in dict(made.refused)
    assert planning.plan(from_layout("nn", 0, 9, 300), H200, "auto", (False, True)).gemm.empty


def test_explain_says_what_is_packed() -> None:
    page = planning.plan(from_layout("nt", 300, 200, 8000), H200, "auto", (False, True)).explain()
    assert "kernel     tensorcore (fp16x3): B packed beforehand" in page
    assert "A_LOAD=2, B_LOAD=6, PRODUCTS=3" in page


# ---------------------------------------------------------------------------------------------------------------------
# On the card


def placed(rows: int, columns: int, store: str, values: torch.Tensor | None = None, offset: int = 0) -> Placed:
    s = MATRIX_STORES[store]
    values = torch.randn(rows, columns, device="cuda") if values is None else values
    return Placed(values, Store(s.order, s.step, s.pad, offset, s.expand), "cuda")


def same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.int32), two.contiguous().view(torch.int32))


SIZES = [(1, 1, 256), (3, 5, 257), (17, 33, 300), (128, 128, 512), (129, 127, 513), (300, 200, 8000), (700, 900, 1000)]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("b_store", ["row", "col", "row_padded_by_1", "stepped"])
@pytest.mark.parametrize("a_store", ["row", "col"])
def test_the_same_bits(a_store: str, b_store: str, sides: str, precision: str, rng: random.Random) -> None:
    for m, n, k in SIZES:
        a, b = placed(m, k, a_store, offset=rng.randrange(4)), placed(k, n, b_store, offset=rng.choice((0, 0, 1)))
        bias = torch.randn(n, device="cuda")
        x, y = pack_sides(a.view, b.view, sides, precision=precision)
        assert all(p.reason is None and p.nbytes > 0 for p in (x, y) if isinstance(p, mm32.PackedOperand))
        for options in ({}, {"bias": bias, "activation": "relu"}):
            plain = mm32.matmul(a.view, b.view, kernel="tensorcore", precision=precision, **options)
            for _ in range(2):
                got = mm32.matmul(x, y, precision=precision, **options)
                assert same_bits(got, plain), (m, n, k, options)
            out = Placed((m, n), MATRIX_STORES["row_padded_by_1"], "cuda")
            mm32.matmul(x, y, precision=precision, out=out.view, **options)
            assert out.intact()
            assert same_bits(out.view, plain)
        if precision == "fp32":
            assert_close(mm32.matmul(x, y), *reference(a.view, b.view), what=(m, n, k))
        assert a.unchanged()
        assert b.unchanged()


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_bits_where_packing_overlaps(layout: str, seed: int) -> None:
    """Sizes at which an unpacked call packs beside the multiply, and a packed one may too, for the other operand."""
    stores = {"n": "row", "t": "col"}
    for m, n, k in ((2048, 4096, 2048), (4096, 300, 4096), (256, 4096, 4096)):
        a, b = placed(m, k, stores[layout[0]]), placed(k, n, stores[layout[1]])
        plain = mm32.matmul(a.view, b.view, kernel="tensorcore")
        for sides in SIDES:
            assert same_bits(mm32.matmul(*pack_sides(a.view, b.view, sides)), plain), (m, n, k, sides)


@pytest.mark.gpu
def test_the_same_bits_for_batches(seed: int) -> None:
    a, b, stacked = torch.randn(3, 5, 17, 300), torch.randn(300, 130), torch.randn(4, 300, 33)
    a, b, stacked, left = a.cuda(), b.cuda(), stacked.cuda(), torch.randn(70, 300, device="cuda")
    for x in (a, a.permute(1, 0, 2, 3), a[:, ::2], a[0, 0]):
        assert same_bits(mm32.matmul(x, mm32.pack(b)), mm32.matmul(x, b, kernel="tensorcore"))
    packed_left = mm32.pack(left, side="left")
    assert same_bits(mm32.matmul(packed_left, stacked), mm32.matmul(left, stacked, kernel="tensorcore"))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sides", SIDES)
def test_within_the_bound_of_a_call_that_splits_its_own_operands(
    layout: str, sides: str, all_tiles: None, seed: int
) -> None:
    """With all tiles there are: another order of the sums, the same bound."""
    stores = {"n": "row", "t": "col"}
    for m, n, k in SIZES:
        a, b = placed(m, k, stores[layout[0]]), placed(k, n, stores[layout[1]])
        expected, tolerance = reference(a.view, b.view)
        plain = mm32.matmul(a.view, b.view, kernel="tensorcore")
        got = mm32.matmul(*pack_sides(a.view, b.view, sides))
        assert_close(plain, expected, tolerance, what=(m, n, k))
        assert_close(got, expected, tolerance, what=(m, n, k))
        bound = 2 * numerics.bound(k) * UNIT * (a.view.double().abs() @ b.view.double().abs())
        assert_close(got, plain.double(), bound, what=(m, n, k))


def spoiled(a: torch.Tensor, b: torch.Tensor, how: str) -> None:
    if how == "nan_in_b":
        b[7, 3] = float("nan")
    elif how == "inf_in_a":
        a[2, 5] = float("inf")
    elif how == "inf_in_b":
        b[11, 0] = -float("inf")
    elif how == "mixed_a":
        a[:, 1::2] *= 2.0**-40
        b[::2] = 0
    elif how == "mixed_b":
        b[1::2] *= 2.0**-40
        a[:, ::2] = 0
    elif how == "huge_after_the_sample":
        b[-1, :] = 1e30


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("how", ["nan_in_b", "inf_in_a", "inf_in_b", "mixed_a", "mixed_b", "huge_after_the_sample"])
def test_the_fallback_reads_the_source(how: str, sides: str, layout: str, seed: int) -> None:
    stores = {"n": "row", "t": "col"}
    a, b = torch.randn(130, 700, device="cuda"), torch.randn(700, 90, device="cuda")
    spoiled(a, b, how)
    x, y = placed(130, 700, stores[layout[0]], a).view, placed(700, 90, stores[layout[1]], b).view
    before = beyond_the_first_tier()
    plain = mm32.matmul(x, y, kernel="tensorcore", activation="relu")
    assert (after := beyond_the_first_tier()) > before, "the inputs were meant to need the fallback"
    packed_x, packed_y = pack_sides(x, y, sides)
    got = mm32.matmul(packed_x, packed_y, activation="relu")
    assert beyond_the_first_tier() > after
    assert torch.equal(got.isnan(), plain.isnan())
    if how[:3] in ("nan", "inf"):
        assert same_bits(got.nan_to_num(), plain.nan_to_num())
    else:  # the other operand's lo is scaled as that of the packed one is, and the tier may be another
        assert_close(got, *reference(x, y, None, "relu", "tensorcore"), what=how)


@pytest.mark.gpu
def test_a_verdict_is_on_the_call_not_on_the_operand(seed: int) -> None:
    """Operand B suits one A and not another: the path is chosen anew in each call, also after one that took the other."""
    a, b = torch.randn(70, 700, device="cuda"), torch.randn(700, 90, device="cuda")
    packed_b, bad = mm32.pack(b), a.clone()
    bad[3, 3] = float("nan")
    for x, recomputed in ((a, False), (bad, True), (a, False)):
        before = beyond_the_first_tier()
        got = mm32.matmul(x, packed_b)
        assert (beyond_the_first_tier() > before) == recomputed
        plain = mm32.matmul(x, b, kernel="tensorcore")
        assert same_bits(got.nan_to_num(), plain.nan_to_num())


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(70, 90, 700), (768, 640, 4096)])
def test_operands_of_which_one_alone_needs_a_scaled_lo(sizes: tuple[int, int, int], seed: int) -> None:
    """Each was packed by itself, one with a scaled lo and one without: their panels do not belong together."""
    m, n, k = sizes
    wide, plain = (torch.rand(m, k, device="cuda") - 0.5) * torch.exp(2 * torch.randn(m, k, device="cuda")), torch.randn
    b = plain(k, n, device="cuda")
    for x, y in ((wide, b), (plain(m, k, device="cuda"), (torch.rand(k, n, device="cuda") - 0.5) * b.exp().square())):
        for sides in SIDES:
            got = mm32.matmul(*pack_sides(x, y, sides))
            assert_close(got, *reference(x, y, kernel="tensorcore"), what=sides)


@pytest.mark.gpu
def test_what_is_not_packed_on_the_card_says_why(seed: int) -> None:
    a, b = torch.randn(9, 20, device="cuda"), torch.randn(20, 7, device="cuda")
    short = mm32.pack(b)
    shortest = (
        planning.emulated.SHORTEST_K if torch.cuda.get_device_capability() == (9, 0) else planning.emulated.SHORT_K
    )
    assert short.reason.startswith(f"below K={shortest}")
    assert short.nbytes == 0
    assert f"not packed: below K={shortest}" in mm32.explain(a, short)
    assert same_bits(mm32.matmul(a, short), mm32.matmul(a, b))
    ieee = mm32.pack(torch.randn(300, 7, device="cuda"), precision="ieee")
    assert ieee.reason.startswith("precision 'ieee'")
    for empty in (torch.empty(300, 0, device="cuda"), torch.empty(0, 5, device="cuda")):
        assert mm32.pack(empty).nbytes == 0
        rows = torch.randn(3, empty.shape[0], device="cuda")
        assert torch.equal(mm32.matmul(rows, mm32.pack(empty)), torch.zeros(3, empty.shape[1], device="cuda"))
    with pytest.raises(RuntimeError, match=r"takes torch.float32 on cuda; got torch.float64"):
        mm32.pack(b.double())


@pytest.mark.gpu
def test_explain_on_the_card(seed: int) -> None:
    a, b = torch.randn(90, 700, device="cuda"), mm32.pack(torch.randn(700, 70, device="cuda"))
    page = mm32.explain(a, b)
    assert "kernel     tensorcore (fp16x3): B packed beforehand" in page
    assert page.splitlines()[-1] == f"packed     {b!r}"
    assert f"{b.nbytes} bytes" in repr(b)


@pytest.mark.gpu
def test_memory_that_is_not_the_operands_is_refused(seed: int) -> None:
    a, b = torch.randn(9, 300, device="cuda"), torch.randn(300, 70, device="cuda")
    other = mm32.pack(torch.randn(300, 7, device="cuda")).memory
    multiply = torch.ops.mm32.matmul
    for wrong in (other, mm32.pack(b, precision="tf32").memory, mm32.pack(b).memory.float(), mm32.pack(b).memory.cpu()):
        with pytest.raises(RuntimeError, match="packed_b is not what mm32::pack makes of b"):
            multiply(a, b, None, None, "fp32", "auto", None, wrong)
    with pytest.raises(RuntimeError, match="packed_b is not what mm32::pack makes of b"):
        multiply(a, b.expand(2, 300, 70), None, None, "fp32", "auto", None, mm32.pack(b).memory)


@pytest.mark.gpu
def test_a_changed_source_is_refused_on_the_card(seed: int) -> None:
    weight = torch.randn(70, 300, device="cuda")
    packed_weight = mm32.pack(weight.T)
    mm32.linear(torch.randn(9, 300, device="cuda"), packed_weight)
    weight[0, 0] = 1.0
    with pytest.raises(RuntimeError, match="was modified in place"):
        mm32.linear(torch.randn(9, 300, device="cuda"), packed_weight)


@pytest.mark.gpu
def test_captured_in_a_graph(seed: int) -> None:
    """A replay computes with what A holds then, and with B as it was packed; also where packing is captured with it."""
    a, b, bias = (
        torch.randn(65, 600, device="cuda"),
        torch.randn(600, 70, device="cuda"),
        torch.randn(70, device="cuda"),
    )
    packed_b, late = mm32.pack(b), torch.randn(600, 33, device="cuda")
    mm32.matmul(a, packed_b, bias=bias, activation="relu"), mm32.matmul(a, mm32.pack(late))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = mm32.matmul(a, packed_b, bias=bias, activation="relu")
        packed_late = mm32.pack(late)
        other = mm32.matmul(a, packed_late)
    for _ in range(3):
        a.copy_(torch.randn(65, 600, device="cuda")), late.copy_(torch.randn(600, 33, device="cuda"))
        result.fill_(float("nan")), other.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert same_bits(result, mm32.matmul(a, b, bias=bias, activation="relu", kernel="tensorcore"))
        assert same_bits(other, mm32.matmul(a, late, kernel="tensorcore"))


@pytest.mark.gpu
def test_many_streams_share_one_packed_operand(seed: int) -> None:
    b, inputs = torch.randn(1000, 300, device="cuda"), [torch.randn(129 + i, 1000, device="cuda") for i in range(6)]
    packed_b = mm32.pack(b)
    expected = [mm32.matmul(a, b, kernel="tensorcore") for a in inputs]
    torch.cuda.synchronize()
    streams, results = [torch.cuda.Stream() for _ in inputs], [[] for _ in inputs]
    for _ in range(20):
        for i, (stream, a) in enumerate(zip(streams, inputs, strict=True)):
            with torch.cuda.stream(stream):
                results[i].append(mm32.matmul(a, packed_b))
    torch.cuda.synchronize()
    for wanted, got in zip(expected, results, strict=True):
        assert all(same_bits(one, wanted) for one in got)


@pytest.mark.gpu
def test_a_call_allocates_its_plans_workspace_only(seed: int) -> None:
    a, b = torch.randn(65, 600, device="cuda"), torch.randn(600, 4000, device="cuda")

    def requested(when: str) -> int:
        return torch.cuda.memory_stats()[f"requested_bytes.all.{when}"]

    before = requested("current")
    packed_b = mm32.pack(b)
    assert requested("current") - before == packed_b.nbytes
    out = torch.empty(65, 4000, device="cuda")
    mm32.matmul(a, packed_b, out=out)
    problem = gemm.describe(a, b, None, out)
    space = planning.plan(problem, launch.card_of(a.device.index), "auto", (False, True)).workspace
    before = requested("current")
    torch.cuda.reset_peak_memory_stats()
    mm32.matmul(a, packed_b, out=out)
    assert requested("current") == before
    assert requested("peak") - before <= space.bytes < packed_b.nbytes
