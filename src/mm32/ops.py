"""The torch operators mm32::matmul and mm32::matmul_out, with CUDA, CPU and Meta implementations, and the functions
that users call."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from mm32 import cpu, direct, gemm, transforms
from mm32 import plan as planning
from mm32.cuda import blas, launch
from mm32.errors import LaunchError
from mm32.packed import PackedOperand, unwrap

torch.library.define(
    "mm32::matmul",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel) -> Tensor",
    tags=(torch.Tag.needs_exact_strides,) if hasattr(torch.Tag, "needs_exact_strides") else (),
)
torch.library.define(
    "mm32::matmul_out",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel, Tensor(a!) out) -> ()",
)

# As mm32::matmul and mm32::matmul_out, with the memory of packed operands (mm32::pack); one without elements stands for none.
torch.library.define(
    "mm32::matmul_packed",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel, Tensor? packed_a, Tensor? packed_b) "
    "-> Tensor",
    tags=(torch.Tag.needs_exact_strides,) if hasattr(torch.Tag, "needs_exact_strides") else (),
)
torch.library.define(
    "mm32::matmul_packed_out",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel, Tensor? packed_a, Tensor? packed_b, "
    "Tensor(a!) out) -> ()",
)

_plan = lru_cache(maxsize=4096)(planning.plan)
_runners: dict[tuple, tuple[list[int], launch.Runner | blas.TorchRunner | None]] = {}


def _runner(problem: gemm.Gemm, index: int, kernel: str, before: tuple[bool, bool]) -> launch.Runner | blas.TorchRunner:
    device = launch.device_of(index)
    chosen = _plan(problem, device, kernel, before, torch="fp32")  # a TorchRunner sees itself what torch was asked for
    if chosen.kernel == "torch":
        return blas.TorchRunner(chosen, lambda: launch.Runner(_plan(problem, device, kernel, before), index))
    return launch.Runner(chosen, index)


def _run_cuda(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    out: torch.Tensor | None = None,
    packed_a: torch.Tensor | None = None,
    packed_b: torch.Tensor | None = None,
) -> torch.Tensor:
    """Checks, plans and launches; what was found for operands of the same form is kept, as one look-up by all it depends on."""
    key = (
        *_form(a), *_form(b), None if bias is None else _form(bias), None if out is None else _form(out),
        activation, precision, kernel,
        packed_a is not None and _packed_form(packed_a), packed_b is not None and _packed_form(packed_b),
    )  # fmt: skip
    try:
        found = _runners.get(key)
    except TypeError:  # an option that cannot be hashed is none that exists
        gemm.check_options(activation, precision)
        planning.check_kernel(kernel)
        raise
    if found is None:
        shape = gemm.check_inputs(a, b, bias, activation, precision)
        if out is None:
            out = a.new_empty(shape)
        else:
            gemm.check_out(out, shape, a, b, bias)
        before = bool(key[-2]), bool(key[-1])
        problem = gemm.describe(a, b, bias, out, activation, precision, merge=not before[0])
        for side, operand, packed in ((0, a, packed_a), (1, b, packed_b)):
            if packed is not None and before[side]:
                _check_packed(packed, operand, problem, side)
        if len(_runners) >= 4096:
            _runners.clear()
        found = _runners[key] = (shape, None if problem.empty else _runner(problem, a.device.index, kernel, before))
        direct.learn(a.device, _run_cuda)
    shape, runner = found
    if out is None:
        out = a.new_empty(shape)
    else:
        gemm.check_out(out, shape, a, b, bias)  # whether memory is shared is not a matter of form
        if not out.is_inference():
            torch.autograd.graph.increment_version(out)  # as torch's in-place operators do: who saved it must be told
    if runner is not None:
        try:
            runner(a, b, bias, out, packed_a, packed_b)
        except torch.OutOfMemoryError:
            if kernel not in ("auto", "simt") or runner.plan.workspace is None:
                raise
            _without_workspace(runner.plan, a.device.index)(a, b, bias, out)
        except LaunchError as error:
            if torch.cuda._is_in_bad_fork():  # what torch says of it, where the driver says that it is not initialised
                raise RuntimeError(
                    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
                    "'spawn' start method (mm32.matmul)"
                ) from error
            raise
    return out


def _without_workspace(plan: planning.Plan, index: int) -> launch.Runner:
    """What runs where the memory that `plan` wants for its workspace is not to be had."""
    assert plan.workspace is not None
    warnings.warn(
        f"mm32.matmul: no memory for {plan.workspace.bytes} bytes of workspace that kernel {plan.kernel!r} wants; kernel 'simt' "
        "without it, which is slower, runs instead",
        stacklevel=3,
    )
    return launch.Runner(planning.without_workspace(plan.gemm, plan.card), index)


def _packed_form(t: torch.Tensor) -> tuple | bool:
    return t.numel() > 0 and (t.shape, t.dtype, t.device)


def _check_packed(packed: torch.Tensor, operand: torch.Tensor, problem: gemm.Gemm, side: int) -> None:
    """That memory given as a packed operand has the size that the kernels will read."""
    wanted, name = planning.packed_bytes(problem, side), "ab"[side]
    if (
        packed.dtype != torch.uint8
        or packed.device != operand.device
        or packed.shape != (wanted,)
        or operand.dim() != 2
    ):
        raise RuntimeError(
            f"packed_{name} is not what mm32::pack makes of {name} {tuple(operand.shape)}: expected {wanted} bytes on "
            f"{operand.device}, got {packed.dtype} of shape {tuple(packed.shape)} on {packed.device}"
        )


def _form(t: torch.Tensor) -> tuple:
    """All of a tensor that a plan depends on."""
    return t.shape, t.stride(), t.dtype, t.device, t.data_ptr() % 16


def _run_cpu(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    shape = gemm.check_inputs(a, b, bias, activation, precision)
    planning.check_kernel(kernel)
    if out is not None:
        gemm.check_out(out, shape, a, b, bias)
    result = cpu.matmul(a, b, bias, activation)
    return result.contiguous() if out is None else out.copy_(result)


def _register(device: str, run: Callable[..., torch.Tensor]) -> None:
    def run_into(*args: Any) -> None:
        run(*args)

    torch.library.impl("mm32::matmul", device, run)
    torch.library.impl("mm32::matmul_out", device, run_into)


_register("CUDA", _run_cuda)
_register("CPU", _run_cpu)
direct.learn("cpu", _run_cpu)


# ---------------------------------------------------------------------------------------------------------------------
# Fake tensors, autograd, vmap


@torch.library.register_fake("mm32::matmul")
def _matmul_fake(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, precision: str, kernel: str
) -> torch.Tensor:
    planning.check_kernel(kernel)
    return a.new_empty(gemm.check_inputs(a, b, bias, activation, precision))


@torch.library.register_fake("mm32::matmul_out")
def _matmul_out_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    out: torch.Tensor,
) -> None:
    planning.check_kernel(kernel)
    gemm.check_out_form(out, gemm.check_inputs(a, b, bias, activation, precision), a)


@torch.library.impl("mm32::matmul_packed", "CUDA")
def _matmul_packed_cuda(*args: Any) -> torch.Tensor:
    a, b, bias, activation, precision, kernel, *packed = args
    return _run_cuda(a, b, bias, activation, precision, kernel, None, *packed)


@torch.library.impl("mm32::matmul_packed_out", "CUDA")
def _matmul_packed_out_cuda(*args: Any) -> None:
    a, b, bias, activation, precision, kernel, packed_a, packed_b, out = args
    _run_cuda(a, b, bias, activation, precision, kernel, out, packed_a, packed_b)


# On the CPU nothing is packed.
@torch.library.impl("mm32::matmul_packed", "CPU")
def _matmul_packed_cpu(*args: Any) -> torch.Tensor:
    return _run_cpu(*args[:6])


@torch.library.impl("mm32::matmul_packed_out", "CPU")
def _matmul_packed_out_cpu(*args: Any) -> None:
    a, b, bias, activation, precision, kernel, _, _, out = args
    _run_cpu(a, b, bias, activation, precision, kernel, out)


@torch.library.register_fake("mm32::matmul_packed")
def _matmul_packed_fake(*args: Any) -> torch.Tensor:
    return _matmul_fake(*args[:6])


@torch.library.register_fake("mm32::matmul_packed_out")
def _matmul_packed_out_fake(*args: Any) -> None:
    _matmul_out_fake(*args[:6], args[8])


_library = torch.library.Library("mm32", "FRAGMENT")
for _name in ("matmul", "matmul_packed"):
    _library.impl(_name, transforms.autograd, "Autograd", with_keyset=True)
    _library.impl(_name + "_out", transforms.autograd_out, "Autograd", with_keyset=True)
    torch.library.register_vmap("mm32::" + _name, transforms.vmap)
    torch.library.register_vmap("mm32::" + _name + "_out", transforms.vmap_out)


# ---------------------------------------------------------------------------------------------------------------------


def matmul(
    a: torch.Tensor | PackedOperand,
    b: torch.Tensor | PackedOperand,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    precision: str = "fp32",
    kernel: str = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``activation(a @ b + bias)`` in float32, bias and activation fused, for operands of any strides.

    Shapes are torch.matmul's: (…, M, K) @ (…, K, N) -> (…, M, N), batch dimensions broadcast, 1-D operands are vectors. A
    transposed view (``a.T``), a slice or an expanded tensor is read where it lies; no copy of an operand is made. In place of a
    matrix that many calls multiply by, a `PackedOperand` made of it by `pack`.

    Args:
        bias: shape (N,), added to every row; for a 1-D ``b``, shape (1,).
        activation: None, "relu", "leaky_relu" (slope 0.01), "gelu", "gelu_tanh", "silu", "tanh" or "sigmoid", each torch's
            function of that name, applied after the bias.
        precision: "fp32", an error no larger than an fp32 matmul's by any means (docs/numerics.md); "ieee", fp32
            multiply-adds only; "tf32", an error of TF32's class.
        kernel: "auto", what is estimated to be fastest, torch's own product among it where that is fp32 (bias and activation are
            then passes of their own); or a kernel by name: "naive", "dot", "tiled", "simt", "mma", "tensorcore"
            (docs/kernels.md). CPU tensors have one implementation, torch's; the name is checked and otherwise without effect.
        out: where to write, of the result's shape; any strides without overlap; not an input. Returned if given.

    Returns:
        A new contiguous tensor (row-major), or ``out``.

    Raises:
        RuntimeError: shapes, dtypes or devices that do not fit, in torch's words where torch has them.
        ValueError: unknown activation, precision or kernel; a kernel that cannot run on this card.
        mm32.CompileError, mm32.LaunchError: the compiler or driver failed; the message has its log.
    """
    run = direct.implementation(a, b, bias, out)
    if run is not None:
        return run(a, b, bias, activation, precision, kernel, out)
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        a, b, *packed = unwrap(a, b, precision, kernel)
    else:
        packed = []
    if bias is not None and not isinstance(bias, torch.Tensor):
        raise TypeError(f"mm32.matmul: bias must be a torch.Tensor of shape (N,) or None, got {type(bias).__name__}")
    if a.is_nested or b.is_nested:
        raise RuntimeError(
            "mm32.matmul takes dense tensors; an operand is nested: call .to_padded_tensor() or unbind it"
        )
    if a.layout != torch.strided or b.layout != torch.strided:
        raise RuntimeError(f"mm32.matmul takes dense tensors; a is {a.layout}, b is {b.layout}: call .to_dense()")
    if out is not None and not isinstance(out, torch.Tensor):
        raise TypeError(f"mm32.matmul: out must be a torch.Tensor, got {type(out).__name__}")
    if out is None:
        if packed:
            return torch.ops.mm32.matmul_packed(a, b, bias, activation, precision, kernel, *packed)
        return torch.ops.mm32.matmul(a, b, bias, activation, precision, kernel)
    if packed:
        torch.ops.mm32.matmul_packed_out(a, b, bias, activation, precision, kernel, *packed, out)
    else:
        torch.ops.mm32.matmul_out(a, b, bias, activation, precision, kernel, out)
    return out


def linear(
    x: torch.Tensor,
    weight: torch.Tensor | PackedOperand,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    precision: str = "fp32",
    kernel: str = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``activation(x @ weight.T + bias)``: torch.nn.functional.linear with the activation fused, the nt layout.

    x is (…, K), weight (N, K), (K,) or a `PackedOperand` of shape (K, N) made by ``mm32.pack(weight.T)``, bias (N,); the rest as
    in `matmul`.
    """
    if isinstance(weight, PackedOperand):
        if isinstance(x, torch.Tensor) and x.shape[-1:] != weight.shape[:1]:
            raise RuntimeError(
                f"mm32.linear of x {tuple(x.shape)} takes a packed operand of shape ({x.shape[-1]}, N), which is "
                f"mm32.pack(weight.T) for a weight (N, {x.shape[-1]}); got one of shape {tuple(weight.shape)}"
            )
        return matmul(x, weight, bias=bias, activation=activation, precision=precision, kernel=kernel, out=out)
    if isinstance(weight, torch.Tensor) and weight.dim() not in (1, 2):
        raise RuntimeError(f"mm32.linear: weight must be (N, K) or (K,), got {tuple(weight.shape)}")
    transposed = weight.T if isinstance(weight, torch.Tensor) and weight.dim() == 2 else weight
    return matmul(x, transposed, bias=bias, activation=activation, precision=precision, kernel=kernel, out=out)


def explain(
    a: torch.Tensor | PackedOperand,
    b: torch.Tensor | PackedOperand,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    precision: str = "fp32",
    kernel: str = "auto",
) -> str:
    """What `matmul` would do with these arguments, and why: the plan as a page of text. Nothing is computed.

    Raises as `matmul` does.
    """
    before, notes = (False, False), ""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        notes = "".join(f"\npacked     {x!r}" for x in (a, b) if isinstance(x, PackedOperand))
        a, b, packed_a, packed_b = unwrap(a, b, precision, kernel)
        before = packed_a is not None and packed_a.numel() > 0, packed_b is not None and packed_b.numel() > 0
    shape = gemm.check_inputs(a, b, bias, activation, precision)
    planning.check_kernel(kernel)
    if a.device.type != "cuda":
        how = f"device     {a.device.type}: torch.matmul, then bias and activation, by torch; kernels are for CUDA tensors"
        return how + notes
    out = torch.empty_strided(shape, _contiguous(shape), device="meta")
    problem = gemm.describe(a, b, bias, out, activation, precision, merge=not before[0])
    chosen = _plan(problem, launch.device_of(a.device.index), kernel, before, torch="fp32" if blas.usable() else None)
    return chosen.explain() + notes


def careful_runs(device: int | None = None) -> int:
    """How many calls in this process found, on the card, that their inputs do not suit the tensor-core split and computed the
    tiles of the result that these decide by IEEE fp32 instead (docs/numerics.md). A counter for debugging: reading it waits for
    the device.

    ``device`` is an index; None is the current one. 0 where there is no CUDA device.
    """
    if not torch.cuda.is_available():
        return 0
    return launch.careful_runs(torch.cuda.current_device() if device is None else device)


def _contiguous(shape: list[int]) -> list[int]:
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(shape[d + 1], 1)
    return strides
