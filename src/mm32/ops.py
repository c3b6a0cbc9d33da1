"""The torch operators mm32::matmul and mm32::matmul_out: schemas, implementations, fake tensors, gradients and vmap.

An operand may be packed (`mm32.pack`): then its packed form is multiplied, and the operand itself is read by the fallback, by
gradients, and where nothing is packed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from mm32 import activations, dispatch, fast_path, gemm, prepared, storage, torch_product, transforms
from mm32 import plan as planning
from mm32.cuda import cublas
from mm32.packed import PackedOperand

torch.library.define(
    "mm32::matmul",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel, "
    "Tensor? packed_a=None, Tensor? packed_b=None) -> Tensor",
    tags=(torch.Tag.needs_exact_strides,) if hasattr(torch.Tag, "needs_exact_strides") else (),
)
torch.library.define(
    "mm32::matmul_out",
    "(Tensor a, Tensor b, Tensor? bias, str? activation, str precision, str kernel, Tensor(a!) out, "
    "Tensor? packed_a=None, Tensor? packed_b=None) -> ()",
)

# ---------------------------------------------------------------------------------------------------------------------
# Implementations. Calls that bypass the dispatcher (dispatch.py) may give a PackedOperand in place of a or b.


def run_cuda(
    a: torch.Tensor | PackedOperand,
    b: torch.Tensor | PackedOperand,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    packed_a: torch.Tensor | None = None,
    packed_b: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    learns: bool = False,
) -> torch.Tensor:
    """Find what was prepared for operands of this form, or check, plan and prepare it; then launch it. With `learns`, the next
    call like this one takes the fast path (fast_path.py). `weight`: the tensor whose transpose b is, if there is one."""
    second: Any = b if weight is None else weight
    if type(a) is PackedOperand:
        form_a, memory_a, packed_a, a = a.form, a.memory_form, a.memory, a.source
    else:
        form_a, memory_a = prepared.form(a), None if packed_a is None else prepared.form(packed_a)
    if type(b) is PackedOperand:
        form_b, memory_b, packed_b, b = b.form, b.memory_form, b.memory, b.source
    else:
        form_b, memory_b = prepared.form(b), None if packed_b is None else prepared.form(packed_b)
    key = (
        "matmul", form_a, form_b, None if bias is None else prepared.form(bias),
        None if out is None else prepared.form(out), activation, precision, kernel,
        memory_a, memory_b, cublas.offered(), prepared.NO_SCALES,
    )  # fmt: skip
    try:
        found = prepared.CACHE.find(key)
    except TypeError:  # an option that cannot be hashed is an unknown option
        gemm.check_options(activation, precision)
        planning.check_kernel(kernel)
        raise
    if found is None:
        since = prepared.CACHE.generation
        found = _prepare(prepared.Call.of(key), a, b, bias, out, packed_a, packed_b)
        prepared.CACHE.keep(key, found, since)
        dispatch.learn(a.device, run_cuda)
    given = out
    if out is None:
        out = dispatch.empty(a, found.shape, storage.contiguous_strides(found.shape))
    else:
        gemm.check_out(out, found.shape, a, b, bias)  # the form does not say whether memory is shared
        if not out.is_inference():
            torch.autograd.graph.increment_version(out)  # as torch's in-place operators do: autograd may have saved it
    if found.run is not None:
        try:
            found.run(a, b, bias, out, packed_a, packed_b)
        except torch.OutOfMemoryError as error:
            _with_less_memory(found, a, b, bias, out, kernel, error)
        else:
            if learns:
                fast_path.learn(found, a, second, bias, given, (activation, precision, kernel), weight is not None)
    return out


def _with_less_memory(
    found: prepared.Prepared,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    kernel: str,
    error: torch.OutOfMemoryError,
) -> None:
    """Compute a call that found no memory for its workspace: in blocks, like all later calls of its form, or without a
    workspace."""
    index, run = a.get_device(), found.run
    assert run is not None
    less = prepared.in_blocks(run, index, (a, b, bias, out), kernel, torch=cublas.offered())
    if less is None:
        prepared.without_memory(run, index, kernel, error)(a, b, bias, out)
    else:
        found.run = less
        prepared.CACHE.forget_fast_paths()


def _prepare(
    call: prepared.Call,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor | None,
    packed_a: torch.Tensor | None,
    packed_b: torch.Tensor | None,
) -> prepared.Prepared:
    """Check, plan, compile and load a call of a new form."""
    precision = call.precision
    assert precision is not None
    shape = gemm.check_inputs(a, b, bias, call.activation, precision)
    if out is not None:
        gemm.check_out(out, shape, a, b, bias)
    prepacked = holds(packed_a), holds(packed_b)
    target = new_result(shape) if out is None else out
    problem = gemm.describe(a, b, bias, target, call.activation, precision, merge=not prepacked[0])
    for side, operand, memory in ((0, a, packed_a), (1, b, packed_b)):
        if memory is not None and prepacked[side]:
            _check_packed(memory, operand, problem, side)
    if problem.empty:
        planning.check_kernel(call.kernel)
        return prepared.Prepared(shape, None)
    index = a.get_device()
    plan = prepared.planned(problem, index, call.kernel, prepacked, call.torch)
    return prepared.Prepared(shape, prepared.executable(plan, index, call.kernel))


def holds(memory: torch.Tensor | None) -> bool:
    """Return whether the memory of a packed operand holds anything: mm32::pack returns an empty tensor if nothing is packed."""
    return memory is not None and memory.numel() > 0


def new_result(shape: list[int]) -> torch.Tensor:
    """A meta tensor like a new result: contiguous and aligned."""
    return torch.empty(shape, device="meta")


def _check_packed(memory: torch.Tensor, operand: torch.Tensor, problem: gemm.Gemm, side: int) -> None:
    """Raise RuntimeError unless the memory of a packed operand has the size that the kernels will read."""
    wanted, name = planning.packed_bytes(problem, side), "ab"[side]
    if (
        memory.dtype != torch.uint8
        or memory.device != operand.device
        or memory.shape != (wanted,)
        or not memory.is_contiguous()
        or operand.dim() != 2
    ):
        raise RuntimeError(
            f"packed_{name} is not what mm32::pack makes of {name} {tuple(operand.shape)}: expected {wanted} bytes on "
            f"{operand.device}, got {memory.dtype} of shape {tuple(memory.shape)} on {memory.device}; pack {name} again"
        )


def run_torch(
    a: torch.Tensor | PackedOperand,
    b: torch.Tensor | PackedOperand,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    packed_a: torch.Tensor | None = None,
    packed_b: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The implementation for the CPU, and for devices that mm32 has no kernels for. It reads the source of a packed operand. A
    kernel's name has no effect on the CPU, so that a program for a card runs there; other devices refuse it."""
    a = a.source if type(a) is PackedOperand else a
    b = b.source if type(b) is PackedOperand else b
    shape = gemm.check_inputs(a, b, bias, activation, precision)
    planning.check_kernel(kernel)
    if out is not None:
        gemm.check_out(out, shape, a, b, bias)
    if a.device.type != "cpu":
        why = _no_kernels(a.device)
        if kernel != "auto":
            raise planning.Unplannable(f"kernel {kernel!r} cannot run here: {why}")
        prepared.say_once(why)
    result = torch_product.matmul(a, b, bias, activation, precision)
    return result.contiguous() if out is None else out.copy_(result)


def _no_kernels(device: torch.device) -> str:
    return f"kernels are for CUDA tensors, and these are on {device.type}"


def _into(run: dispatch.Implementation) -> Any:
    def run_into(
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        activation: str | None,
        precision: str,
        kernel: str,
        out: torch.Tensor,
        *packed: torch.Tensor | None,
    ) -> None:
        run(a, b, bias, activation, precision, kernel, *packed, out=out)

    return run_into


def _on_shards(run: dispatch.Implementation) -> Any:
    def run_on_shards(
        a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: int, precision: str, kernel: str
    ) -> torch.Tensor:
        return run(a, b, bias, activations.name(activation), precision, kernel)

    return run_on_shards


for _device, _run in (("CUDA", run_cuda), ("CPU", run_torch), ("CompositeExplicitAutograd", run_torch)):
    torch.library.impl("mm32::matmul", _device, _run)
    torch.library.impl("mm32::matmul_out", _device, _into(_run))
    torch.library.impl("mm32::sharded_matmul", _device, _on_shards(_run))
dispatch.learn("cpu", run_torch)


# ---------------------------------------------------------------------------------------------------------------------
# Fake tensors, autograd, vmap


@torch.library.register_fake("mm32::matmul")
def _matmul_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
    packed_a: torch.Tensor | None = None,
    packed_b: torch.Tensor | None = None,
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
    packed_a: torch.Tensor | None = None,
    packed_b: torch.Tensor | None = None,
) -> None:
    planning.check_kernel(kernel)
    gemm.check_out_form(out, gemm.check_inputs(a, b, bias, activation, precision), a)


_library = torch.library.Library("mm32", "FRAGMENT")
_library.impl("matmul", transforms.autograd, "Autograd", with_keyset=True)
_library.impl("matmul_out", transforms.autograd_out, "Autograd", with_keyset=True)
torch.library.register_vmap("mm32::matmul", transforms.vmap)
torch.library.register_vmap("mm32::matmul_out", transforms.vmap_out)


@register_flop_formula([torch.ops.mm32.matmul, torch.ops.mm32.matmul_out, torch.ops.mm32.sharded_matmul])
def _flops(a: Sequence[int], b: Sequence[int], *_: Any, **__: Any) -> int:
    """The operations of a product of these shapes, as torch.utils.flop_counter counts them: 2 M N K."""
    shape = gemm.result_shape(a, b)
    return 2 * math.prod(shape) * a[-1]
