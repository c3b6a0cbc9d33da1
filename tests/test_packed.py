"""Operands packed beforehand: where they replace tensors, what is refused, how they are planned."""

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
from mm32 import gemm
from mm32 import plan as planning
from mm32.gemm import LAYOUTS, from_layout
from mm32.plan import H200, Card, Unplannable
from support.gpu import (
    assert_close,
    reference,
)
from support.packed import SIDES, pack_sides

A100 = Card("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166912)
OLD = Card("Tesla T4", (7, 5), 40, 65536)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def _panels(panels_only: None) -> None:
    """Makes calls without packed operands pack theirs too: only then do they have the same bits."""


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
def test_a_square_weight_has_to_be_transposed_for_linear(device: str, seed: int) -> None:
    """Its shape does not tell whether it was transposed, but its strides do."""
    x, weight, bias = (torch.randn(*s, device=device) for s in ((9, 300), (300, 300), (300,)))
    assert_close(mm32.linear(x, mm32.pack(weight.T), bias), *reference(x, weight.T, bias))
    for packed in (mm32.pack(weight), mm32.pack(weight.T.contiguous())):
        with pytest.raises(RuntimeError, match=r"of shape \(300, 300\) lies row by row"):
            mm32.linear(x, packed, bias)
    assert_close(mm32.matmul(x, mm32.pack(weight.T.contiguous()), bias=bias), *reference(x, weight.T, bias))
    one = torch.randn(1, 1, device=device)
    assert torch.equal(mm32.linear(one, mm32.pack(one)), one * one)
    same = torch.randn(300, 1, device=device).expand(300, 300)
    assert_close(mm32.linear(x, mm32.pack(same.T)), *reference(x, same.T))
    with pytest.raises(RuntimeError, match="packed as the left operand"):
        mm32.linear(x, mm32.pack(weight, side="left"))


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
    """A batch must not be merged into the rows of one taller A, as it otherwise would be: A was packed as it is."""
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
    """An operand can be packed inside a transform and used there; vmap's samples are one batch, which is read without packing."""
    a, b = torch.randn(9, 300, device=device), torch.randn(3, 300, 7, device=device)
    before = torch._C._functorch._is_vmap_fallback_enabled()
    torch._C._functorch._set_vmap_fallback_enabled(False)  # a loop over the samples is an error
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
        # torch does not count the changes of inference tensors, so this one is not seen, as is documented.
        made_there.source.zero_()
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
    with pytest.raises(TypeError, match=r"or packed operands, got PackedOperand and list"):
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
# What it says about itself


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
    """A copy is an operand packed from a source of its own, with the same values."""
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
    """It has the same tiles and parts of K, and so the same sums: only the order of the work on the card differs."""
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
                "A_LOAD": planning.packing.PREPACKED if before[0] else dict(plain.launches[0].constants)["A_LOAD"],
                "B_LOAD": planning.packing.PREPACKED if before[1] else dict(plain.launches[0].constants)["B_LOAD"],
                "PRODUCTS": 3,
                "GUARDED": 0,
                "DECIDES": 0,
            }
            assert all(launch.grid(problem) >= 1 for launch in made.launches)
            # Packing beside the multiply pays from a tenth of the multiply's time on. At that edge, packing less and one after
            # the other is not faster.
            assert dict(made.estimates)["tensorcore"] <= 1.05 * dict(plain.estimates)["tensorcore"]


def test_a_multiply_of_packed_operands_does_not_pack_inline(all_tiles: None) -> None:
    """It does not, even where a call without packed operands would: that is another form, with sums in another order."""
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
    """Return what decides a launch's sums; how operands were packed and when the launch starts do not."""
    left_out = ("A_LOAD", "B_LOAD", "A_UNIT_ROWS", "B_UNIT_ROWS") if launch.source != "emulated/fallback.cu" else ()
    constants = tuple((name, value) for name, value in launch.constants if name not in left_out)
    block = launch.block if launch.entry != "mm32_scale" else 0  # mm32_scale has more threads if it has fewer blocks
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
    decision = -(-planning.packing.DECISION_BYTES // 256) * 256
    flags = 2 * 4 * 128  # what mm32_scale writes after the stats
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
