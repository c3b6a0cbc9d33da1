"""The operators as torch sees them: schema, fake tensors, gradients, autocast, subclasses, and calls that bypass the
dispatcher."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import mm32
from mm32 import dispatch, torch_product
from mm32.activations import names
from mm32.gemm import PRECISIONS
from mm32.plan import EMULATED_KERNELS, KERNELS
from support.ops import DEVICES, SHAPES, Products, assert_same, columns, make, transposed

# ---------------------------------------------------------------------------------------------------------------------
# Schema, fake tensors


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", SHAPES)
def test_opcheck(shapes: str, device: str, seed: int) -> None:
    a, b = (make(s, device, requires_grad=True) for s in SHAPES[shapes])
    bias = make((columns(SHAPES[shapes][1]),), device, requires_grad=True)
    opcheck(torch.ops.mm32.matmul.default, (a, b, None, None, "fp32", "auto"))
    opcheck(torch.ops.mm32.matmul.default, (transposed(a.detach()), b, bias, "gelu", "ieee", "naive"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", [None, *names()])
def test_opcheck_of_options(activation: str | None, device: str, seed: int) -> None:
    """Every activation, precision and kernel is checked. They are paired arbitrarily, since none changes what torch sees of the
    others."""
    a, b, bias = make((3, 4), device), make((4, 5), device, requires_grad=True), make((5,), device, requires_grad=True)
    number = 0 if activation is None else 1 + names().index(activation)
    precision, kernel = PRECISIONS[number % len(PRECISIONS)], ("auto", "naive", "dot", "tiled", "simt")[number % 5]
    if device == "cuda" and precision == "bf16x6":
        kernel = "auto"  # the others do not have this precision
    opcheck(torch.ops.mm32.matmul.default, (a, transposed(b), bias, activation, precision, kernel))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
def test_opcheck_of_kernels(kernel: str, precision: str, seed: int) -> None:
    """opcheck passes with sizes that have edges, and with operands that are stored transposed."""
    if precision == "ieee" and kernel in EMULATED_KERNELS:
        with pytest.raises(ValueError, match="promises fp32 multiply-adds only"):
            mm32.matmul(make((3, 4), "cuda"), make((4, 5), "cuda"), kernel=kernel, precision=precision)
        return
    if kernel == "direct" and precision in ("ieee", "tf32"):
        with pytest.raises(ValueError, match=f"it computes bf16x6, and precision {precision!r}"):
            mm32.matmul(make((3, 4), "cuda"), make((4, 5), "cuda"), kernel=kernel, precision=precision)
        return
    if precision == "bf16x6" and kernel not in ("auto", "tensorcore", "direct"):
        with pytest.raises(ValueError, match="kernels 'tensorcore' and 'direct' alone have precision 'bf16x6'"):
            mm32.matmul(make((3, 4), "cuda"), make((4, 5), "cuda"), kernel=kernel, precision=precision)
        return
    a, b, bias = (make(s, "cuda", requires_grad=True) for s in ((2, 33, 300), (300, 17), (17,)))
    arguments = (a, transposed(b.detach()).requires_grad_(), bias, "tanh", precision, kernel)
    opcheck(torch.ops.mm32.matmul.default, arguments)
    out = torch.empty(2, 17, 33, device="cuda").mT
    opcheck(torch.ops.mm32.matmul_out.default, (a.detach(), b.detach(), bias.detach(), None, precision, kernel, out))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", SHAPES)
def test_opcheck_out(shapes: str, device: str, seed: int) -> None:
    a, b = (make(s, device) for s in SHAPES[shapes])
    out = transposed(torch.empty(torch.matmul(a, b).shape, device=device))
    bias = make((columns(SHAPES[shapes][1]),), device)
    opcheck(torch.ops.mm32.matmul_out.default, (a, b, bias, "relu", "fp32", "auto", out))


@pytest.mark.parametrize("shapes", SHAPES)
def test_meta_tensors_have_the_results_shape(shapes: str) -> None:
    a, b = (make(s, "meta") for s in SHAPES[shapes])
    real = mm32.matmul(*(make(s) for s in SHAPES[shapes]))
    for x, y in ((a, b), (transposed(a), transposed(b))):
        fake = mm32.matmul(x, y, bias=torch.empty(columns(SHAPES[shapes][1]), device="meta"), activation="silu")
        assert fake.device.type == "meta"
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), torch.float32)
        assert fake.is_contiguous()


@pytest.mark.parametrize("shapes", SHAPES)
def test_fake_tensors_are_what_real_ones_give(shapes: str) -> None:
    real = [make(s) for s in SHAPES[shapes]]
    wanted = mm32.matmul(*real)
    with FakeTensorMode() as mode:
        fake = mm32.matmul(*(mode.from_tensor(t) for t in real))
    assert isinstance(fake, torch._subclasses.FakeTensor)
    assert (fake.shape, fake.stride(), fake.dtype, fake.device) == (
        wanted.shape,
        wanted.stride(),
        wanted.dtype,
        wanted.device,
    )


def test_meta_refuses_what_the_device_refuses() -> None:
    a, b = make((2, 3), "meta"), make((4, 5), "meta")
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x5\)"):
        mm32.matmul(a, b)
    with pytest.raises(ValueError, match="unknown kernel 'fast'"):
        mm32.matmul(a, a.mT, kernel="fast")
    with pytest.raises(ValueError, match="unknown activation 'swish'"):
        mm32.matmul(a, a.mT, activation="swish")
    with pytest.raises(RuntimeError, match=r"out has shape \(2, 3\), the result has shape \(2, 2\)"):
        mm32.matmul(a, a.mT, out=make((2, 3), "meta"))
    with pytest.raises(RuntimeError, match=r"out must be a dense torch.float32 tensor on meta.*got torch.float64"):
        mm32.matmul(a, a.mT, out=make((2, 2), "meta", dtype=torch.float64))


# ---------------------------------------------------------------------------------------------------------------------
# Under torch's modes


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_does_not_lower_the_precision(device: str, seed: int) -> None:
    a, b, bias, out = (
        make((33, 65), device),
        make((65, 17), device),
        make((17,), device),
        torch.empty(33, 17, device=device),
    )
    plain = mm32.matmul(a, b, bias=bias, activation="gelu")
    with torch.autocast(device, torch.bfloat16):
        under = mm32.matmul(a, b, bias=bias, activation="gelu")
        mm32.matmul(a, b, bias=bias, activation="gelu", out=out)
    assert under.dtype == torch.float32
    assert torch.equal(under, plain)
    assert torch.equal(out, plain)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_does_not_lower_gradients(device: str, seed: int) -> None:
    a, b = make((33, 65), device, requires_grad=True), make((65, 17), device, requires_grad=True)
    plain = torch.autograd.grad(mm32.matmul(a, b, activation="silu").sum(), (a, b))
    with torch.autocast(device, torch.bfloat16):
        under = torch.autograd.grad(mm32.matmul(a, b, activation="silu").sum(), (a, b))
    for one, two in zip(under, plain, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_does_not_convert(device: str, seed: int) -> None:
    """The result of an autocast layer has half precision: it is refused, not silently converted."""
    a, b = make((33, 65), device), make((65, 17), device)
    with torch.autocast(device, torch.bfloat16):
        half = torch.matmul(a, b)
        assert half.dtype == torch.bfloat16
        with pytest.raises(RuntimeError, match=r"a is torch.bfloat16: convert it \(a.float\(\)\)"):
            mm32.matmul(half, half.mT)
        assert mm32.matmul(half.float(), b.mT).dtype == torch.float32


@pytest.mark.parametrize("device", DEVICES)
def test_inference_mode(device: str, seed: int) -> None:
    a, b = make((3, 4), device, requires_grad=True), make((4, 5), device)
    with torch.inference_mode():
        result = mm32.matmul(a, b, activation="tanh")
    assert result.is_inference()
    assert_same(result, torch.tanh(a.detach() @ b))


@pytest.mark.parametrize("device", DEVICES)
def test_inference_tensors_are_written_in_inference_mode_only(device: str, seed: int) -> None:
    a = make((3, 3), device)
    with torch.inference_mode():
        out = torch.zeros(3, 3, device=device)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
        mm32.matmul(a, a, out=out)
    assert bool((out == 0).all())
    with torch.inference_mode():
        assert_same(mm32.matmul(a, a, out=out), a @ a)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed(reentrant: bool, device: str, seed: int) -> None:
    a, b = make((3, 4), device, requires_grad=True), make((4, 5), device, requires_grad=True)

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return mm32.matmul(mm32.matmul(a, b, activation="gelu"), b.mT, activation="relu").square().sum()

    f(a, b).backward()
    wanted, a.grad, b.grad = (a.grad, b.grad), None, None
    checkpoint(f, a, b, use_reentrant=reentrant).backward()
    assert_same(a.grad, wanted[0])
    assert_same(b.grad, wanted[1])


def test_what_is_no_tensor() -> None:
    a = make((3, 3))
    for call in (mm32.matmul, mm32.linear, mm32.explain):
        for one, two in ((a, 3), ([[1.0]], a), (None, a)):
            if call is mm32.linear and isinstance(two, torch.Tensor):
                two = mm32.pack(two)
            with pytest.raises(
                TypeError, match=r"takes torch\.Tensors or packed operands, got|must be a torch\.Tensor, got"
            ):
                call(one, two)
    with pytest.raises(TypeError, match=r"mm32\.matmul: bias must be a torch\.Tensor, got float"):
        mm32.matmul(a, a, bias=1.0)
    with pytest.raises(TypeError, match=r"mm32\.explain: bias must be a torch\.Tensor, got list"):
        mm32.explain(a, a, bias=[1.0])
    with pytest.raises(TypeError, match=r"out must be a torch\.Tensor, got list"):
        mm32.matmul(a, a, out=[])


def test_explain_on_the_cpu_says_so() -> None:
    page = mm32.explain(make((2, 3)), make((3, 4)))
    assert page.startswith("device     cpu: torch.matmul")
    with pytest.raises(RuntimeError, match=r"\(2x3 and 2x3\)"):
        mm32.explain(make((2, 3)), make((2, 3)))
    with pytest.raises(ValueError, match="unknown kernel 'fast'"):
        mm32.explain(make((2, 3)), make((3, 4)), kernel="fast")


# ---------------------------------------------------------------------------------------------------------------------
# Python subclasses and modes


class Plain(torch.Tensor):
    pass


class Noting(torch.Tensor):
    """A subclass that records what its __torch_function__ is asked for."""

    asked: list[object]

    @classmethod
    def __torch_function__(cls, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        cls.asked.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Doubled(torch.Tensor):
    """A wrapper that stands for twice the tensor it holds: its __torch_dispatch__ gives every operator the doubled values."""

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> torch.Tensor:
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, strides=held.stride(), dtype=held.dtype)

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        return func(*(2 * x.held if isinstance(x, Doubled) else x for x in args), **(kwargs or {}))


def test_a_subclass_comes_out_as_it_went_in(seed: int) -> None:
    a, b = make((3, 4)), make((4, 5))
    result = mm32.matmul(a.as_subclass(Plain), b, activation="relu")
    assert type(result) is type(torch.matmul(a.as_subclass(Plain), b)) is Plain
    assert_same(result.as_subclass(torch.Tensor), torch.relu(a @ b))


def test_torch_function_of_a_subclass_is_asked(seed: int) -> None:
    a, b = make((3, 4)), make((4, 5))
    Noting.asked = []
    result = mm32.matmul(a, b.as_subclass(Noting))
    assert torch.ops.mm32.matmul in Noting.asked
    assert type(result) is Noting
    assert_same(result.as_subclass(torch.Tensor), a @ b)


def test_torch_dispatch_of_a_subclass_is_asked(seed: int) -> None:
    a, b, bias = make((3, 4)), make((4, 5)), make((5,))
    assert_same(mm32.matmul(Doubled(a), b, bias=bias), 2 * a @ b + bias)
    assert_same(mm32.matmul(a, b, bias=Doubled(bias)), a @ b + 2 * bias)


def test_parameters_and_buffers(seed: int) -> None:
    a, b = torch.nn.Parameter(make((3, 4))), torch.nn.Buffer(make((4, 5)))
    result = mm32.matmul(a, b)
    assert type(result) is torch.Tensor
    assert_same(result, a.detach() @ b)
    with torch.no_grad():
        assert torch.equal(mm32.matmul(a, b), result)


def test_nested_tensors_are_refused() -> None:
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)], layout=layout)
        with pytest.raises(RuntimeError, match=r"is nested: call .to_padded_tensor\(\)"):
            mm32.matmul(nested, torch.ones(2, 2))
        with pytest.raises(RuntimeError, match=r"mm32\.explain takes dense tensors; a is nested"):
            mm32.explain(nested, torch.ones(2, 2))
        with pytest.raises(RuntimeError, match=r"mm32\.linear takes dense tensors; weight is nested"):
            mm32.linear(torch.ones(2, 2), nested)
        with pytest.raises(RuntimeError, match=r"mm32\.pack takes dense tensors; b is nested"):
            mm32.pack(nested)


def test_sparse_tensors_are_refused() -> None:
    dense = torch.ones(2, 2)
    sparse, vector = dense.to_sparse(), torch.ones(2).to_sparse()
    for name, call in {
        "a": lambda: mm32.matmul(sparse, dense),
        "bias": lambda: mm32.matmul(dense, dense, bias=vector),
        "out": lambda: mm32.matmul(dense, dense, out=sparse),
    }.items():
        with pytest.raises(
            RuntimeError, match=rf"mm32\.matmul takes dense tensors; {name} has layout torch\.sparse_coo"
        ):
            call()


def test_wrong_options_are_named_where_gradients_are_recorded() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(ValueError, match="unknown activation"):
        mm32.matmul(x, x, activation=torch.relu)
    with pytest.raises(ValueError, match="unknown kernel"):
        mm32.matmul(x, x, kernel=3)


# ---------------------------------------------------------------------------------------------------------------------
# Calls bypass the dispatcher exactly where it would do nothing else


def goes_past(*tensors: torch.Tensor) -> bool:
    return dispatch.implementation(tensors) is not None


@pytest.mark.parametrize("device", DEVICES)
def test_plain_tensors_go_past_the_dispatcher(device: str, seed: int) -> None:
    a, b, bias, out = make((3, 4), device), make((4, 5), device), make((5,), device), torch.empty(3, 5, device=device)
    mm32.matmul(a, b)  # from the first call on a device mm32 learns what its tensors look like
    assert goes_past(a, b)
    assert goes_past(a, b, bias, out)
    assert goes_past(a[:, ::2], transposed(b)[::2])
    with torch.inference_mode():
        assert goes_past(a, make((4, 5), device))
    with torch.no_grad():
        assert goes_past(torch.nn.Parameter(a), b)
    with torch.autocast(device):
        assert goes_past(a, b)


@pytest.mark.parametrize("which", range(4))
def test_what_the_dispatcher_has_to_see_does_not_go_past_it(which: int, seed: int) -> None:
    def other(special: torch.Tensor) -> list[torch.Tensor]:
        tensors = [make((3, 3)), make((3, 3)), make((3,)), make((3, 3))]
        tensors[which] = special if which != 2 else special[0]
        return tensors

    plain = make((3, 3))
    assert goes_past(*other(plain))
    assert not goes_past(*other(make((3, 3), requires_grad=True)))
    assert not goes_past(*other(plain.as_subclass(Plain)))
    assert not goes_past(*other(make((3, 3), "meta")))
    assert not goes_past(*other(torch.complex(plain, plain).conj().imag))  # negated lazily
    assert not goes_past(*other(torch._efficientzerotensor((3, 3))))  # has no memory
    assert not goes_past(*other(plain.to_sparse()))
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(plain)
    assert not goes_past(*other(fake))
    with torch.autograd.forward_ad.dual_level():
        assert not goes_past(*other(torch.autograd.forward_ad.make_dual(plain, plain)))


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def __torch_function__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_modes_tracers_and_profilers_see_the_operator(seed: int) -> None:
    a, b = make((3, 4)), make((4, 5))
    with Products() as products:
        mm32.matmul(a, b)
    assert products.shapes == [(3, 5)]
    with Functions() as functions:
        mm32.matmul(a, b)
    assert torch.ops.mm32.matmul in functions.seen
    with torch.profiler.profile() as profile:
        mm32.matmul(a, b)
    assert "mm32::matmul" in [event.name for event in profile.events()]
    traced = make_fx(lambda a, b: mm32.matmul(a, b))(a, b)
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [torch.ops.mm32.matmul.default]


def test_an_import_inside_a_mode_learns_nothing_of_it() -> None:
    code = """
import torch
from torch._subclasses import FakeTensorMode
with FakeTensorMode():
    import mm32
assert mm32.dispatch.implementation((torch.ones(2, 2), torch.ones(2, 2))) is not None
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_verify_is_loaded_when_it_is_used() -> None:
    code = """
import sys
import mm32
assert "verify" in mm32.__all__ and not any(name.startswith("mm32.verify") for name in sys.modules)
assert not any(name.startswith("torch.distributed.tensor") for name in sys.modules), "DTensors take a second to import"
from mm32.verify import verify
assert mm32.verify.verify is verify
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import mm32; assert callable(mm32.verify.verify)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_operators_are_three() -> None:
    """Packed operands are optional arguments, not operators of their own. DTensors have a fourth operator."""
    names = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("mm32::")}
    assert names == {"matmul", "matmul_out", "pack", "sharded_matmul"}
    for name, first in (("matmul", 6), ("matmul_out", 7)):
        arguments = getattr(torch.ops.mm32, name).default._schema.arguments
        assert [argument.name for argument in arguments[first:]] == ["packed_a", "packed_b"]
        assert all(argument.default_value is None for argument in arguments[first:])


def test_out_may_be_negated_lazily(seed: int) -> None:
    """The imaginary part of a conjugated tensor is such an output."""
    a, b, bias = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5)
    base = torch.zeros(3, 5, dtype=torch.cfloat)
    out = base.conj().imag
    assert out.is_neg()
    assert mm32.matmul(a, b, bias=bias, activation="relu", out=out) is out
    expected = mm32.matmul(a, b, bias=bias, activation="relu")
    assert torch.equal(out, expected)
    assert torch.equal(base.imag, -expected)
    with pytest.raises(RuntimeError, match="does not resize out"):
        mm32.matmul(a, b[:, :4], out=out)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        mm32.matmul(a, b, out=torch.zeros(3, 5, dtype=torch.cfloat, requires_grad=True).conj().imag)


def test_errors_of_linear_speak_of_its_arguments() -> None:
    x, weight = torch.ones(2, 3), torch.ones(4, 3)
    for wrong, said in (
        ((x, None), (TypeError, "mm32.linear: weight must be a torch.Tensor, got NoneType")),
        (
            (x, weight.half()),
            (RuntimeError, r"mm32.linear takes .* weight is torch.float16: convert it \(weight.float"),
        ),
        ((x.half(), weight), (RuntimeError, "x is torch.float16")),
        ((x, weight.to("meta")), (RuntimeError, r"x is on cpu and weight is on meta \(mm32.linear\)")),
        ((x, weight, torch.ones(4).double()), (RuntimeError, "expected x, weight and bias to have the same dtype")),
        ((mm32.pack(x), weight.half()), (RuntimeError, "weight is torch.float16")),
    ):
        with pytest.raises(said[0], match=said[1]):
            mm32.linear(*wrong)
    with pytest.raises(TypeError, match=r"mm32\.pack: b must be a torch.Tensor, got NoneType"):
        mm32.pack(None)
    with pytest.raises(RuntimeError, match=r"out has layout torch\.sparse_coo: give a dense one"):
        mm32.matmul(x, weight.T, out=torch.zeros(2, 4).to_sparse())


def test_explain_says_when_torch_multiplies_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    assert "torch.matmul, then" in mm32.explain(a, b)
    monkeypatch.setattr(torch_product, "torch_precision", lambda device: "bf16")
    assert "torch.matmul in float64, rounded" in mm32.explain(a, b)
    assert "torch.matmul, then" in mm32.explain(a, b, precision="tf32")
