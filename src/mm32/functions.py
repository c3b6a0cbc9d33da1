"""The functions that users call: matmul, linear and explain.

A call of a form that was seen before takes the fast path. All others are checked here, and go to an implementation in ops.py:
directly where nothing else has to see the operator (dispatch.py), otherwise through torch's dispatcher.
"""

from __future__ import annotations

from typing import Any

import torch

from mm32 import dispatch, fast_path, gemm, ops, prepared, sharding, torch_product, transforms
from mm32 import plan as planning
from mm32.cuda import cublas
from mm32.options import Activation, Kernel, Precision
from mm32.packed import PackedOperand, unwrap


def matmul(
    a: torch.Tensor | PackedOperand,
    b: torch.Tensor | PackedOperand,
    *,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    precision: Precision = "fp32",
    kernel: Kernel = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute ``activation(a @ b + bias)`` in float32, with bias and activation fused, for operands of any strides.

    Shapes are those of torch.matmul: (…, M, K) @ (…, K, N) -> (…, M, N), batch dimensions are broadcast, 1-D operands are
    vectors. Transposed views (``a.T``), slices and expanded tensors are read as they lie in memory; no operand is copied.

    The scheme of three fp16 products is Ootomo and Yokota's (2022), that of six bf16 products Henry, Tang and Heinecke's (2019);
    docs/numerics.md has both, and the bound of the error.

    Args:
        a: (…, M, K) or (K,), float32 (on the CPU float64 too), any strides; or a `PackedOperand`.
        b: (…, K, N) or (K,), as `a`.
        bias: shape (N,), added to every row; for a 1-D ``b``, shape (1,).
        activation: None, "relu", "leaky_relu" (slope 0.01), "gelu", "gelu_tanh", "silu", "tanh" or "sigmoid": torch's function of
            that name, applied after the bias.
        precision: the error that is allowed, with u = 2^-24. "fp32": at most K u |A||B|, the bound of an fp32 matmul; and on all
            data tested no larger than torch's own error, or 4 u (docs/numerics.md, "The promise", has the exceptions). "bf16x6":
            all 24 bits of every element in six products on the tensor cores, for sums that cancel (compute capability 9.0).
            "ieee": fp32 multiply-adds only. "tf32": an error as large as TF32's.
        kernel: "auto", the kernel that is estimated to be fastest; torch's own product is one of the choices where it is fp32,
            with bias and activation in separate passes. Or a kernel by name: "naive", "dot", "tiled", "simt", "mma", "direct",
            "tensorcore" (docs/kernels.md). Where none of mm32's kernels runs (compute capability below 8.0, ROCm, other types of
            devices, no NVRTC), "auto" is torch's product in fp32, and the logger "mm32" says so once. On the CPU the product is
            torch's; the kernel's name is checked and has no effect.
        out: the tensor to write to, of the result's shape, any strides that do not overlap, sharing no memory with an input.

    Returns:
        A new contiguous tensor (row-major), or ``out``.

    Raises:
        TypeError: an argument that has to be a tensor is not one.
        RuntimeError: shapes, dtypes or devices that do not fit, in torch's words where torch has them.
        ValueError: unknown activation, precision or kernel; a kernel asked for by name that cannot run on this device;
            MM32_WORKSPACE_LIMIT that cannot be read.
        mm32.CompileError, mm32.LaunchError: the compiler or driver failed; the message has its log.

    Example:
        >>> a, b = torch.randn(4096, 2048, device="cuda"), torch.randn(1024, 4096, device="cuda")
        >>> mm32.matmul(a.T, b.T, bias=torch.zeros(1024, device="cuda"), activation="relu").shape
        torch.Size([2048, 1024])
    """
    done = fast_path.run(a, b, bias, out, activation, precision, kernel)
    if done is not None:
        return done
    if others := foreign(a, b, bias, out):
        return torch.overrides.handle_torch_function(
            matmul, others, a, b, bias=bias, activation=activation, precision=precision, kernel=kernel, out=out
        )
    return _matmul(a, b, bias, activation, precision, kernel, out)


def foreign(*given: Any) -> tuple[Any, ...]:
    """Return the arguments that are no tensors but have torch's protocol for functions, as the proxies of torch.fx."""
    known = (torch.Tensor, PackedOperand, type(None))  # dynamo of torch up to 2.11 cannot ask None's class
    return tuple(x for x in given if not isinstance(x, known) and hasattr(type(x), "__torch_function__"))


def _matmul(
    a: torch.Tensor | PackedOperand,
    b: torch.Tensor | PackedOperand,
    bias: torch.Tensor | None,
    activation: Activation | None,
    precision: Precision,
    kernel: Kernel,
    out: torch.Tensor | None,
    weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """`matmul` on the slow path. `weight`: the tensor whose transpose b is, if there is one."""
    tensors: tuple[Any, ...] = (a, b) if bias is None else (a, b, bias)
    if out is not None:
        tensors += (out,)
    if type(a) is PackedOperand or type(b) is PackedOperand:
        run = _packed_implementation(a, b, tensors[2:], precision, kernel)
    else:
        run = dispatch.implementation(tensors, gradients=True)
        if run is not None and torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors):
            if run is ops.run_cuda and out is None:
                return transforms.recorded(a, b, bias, activation, precision, kernel, _product)
            run = None
    if run is ops.run_cuda:
        return run(a, b, bias, activation, precision, kernel, None, None, out, weight, type(a) is not PackedOperand)
    if run is not None:
        return run(a, b, bias, activation, precision, kernel, None, None, out)
    if sharding.among(*tensors):
        gemm.check_options(activation, precision)
        planning.check_kernel(kernel)
        return sharding.matmul(a, b, bias, activation, precision, kernel, out)
    packed: tuple[torch.Tensor | None, ...] = ()
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        a, b, *packed = unwrap(a, b, precision, kernel)  # type: ignore[assignment]
    gemm.check_tensors("mm32.matmul", a=a, b=b, bias=bias, out=out)
    gemm.check_options(activation, precision)  # here too: the operators' own errors are about their schemas
    planning.check_kernel(kernel)
    if out is None:
        return torch.ops.mm32.matmul(a, b, bias, activation, precision, kernel, *packed)
    plain = out.resolve_neg()  # operators that return nothing cannot write through a negated view
    torch.ops.mm32.matmul_out(a, b, bias, activation, precision, kernel, plain, *packed)
    return out if plain is out else out.copy_(plain)


def _product(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str,
    kernel: str,
) -> torch.Tensor:
    """`matmul`, called with the operator's arguments."""
    done = fast_path.run(a, b, bias, None, activation, precision, kernel)
    return _matmul(a, b, bias, activation, precision, kernel, None) if done is None else done  # type: ignore[arg-type]


def _packed_implementation(
    a: Any, b: Any, others: tuple[Any, ...], precision: str, kernel: str
) -> dispatch.Implementation | None:
    """The implementation for a call with a, b or both packed and with `others`, if it may bypass the dispatcher; else None."""
    if torch.compiler.is_dynamo_compiling():
        return None
    known: tuple[int, ...] = ()
    if type(a) is PackedOperand:
        if not a.serves("left", precision, kernel):
            return None
        known = a.keys
    else:
        others += (a,)
    if type(b) is PackedOperand:
        if not b.serves("right", precision, kernel):
            return None
        known += b.keys
    else:
        others += (b,)
    return dispatch.implementation(others, known)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor | PackedOperand,
    bias: torch.Tensor | None = None,
    *,
    activation: Activation | None = None,
    precision: Precision = "fp32",
    kernel: Kernel = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute ``activation(x @ weight.T + bias)``: torch.nn.functional.linear with the activation fused (layout nt).

    Args:
        x: (…, K), float32 (on the CPU float64 too), any strides.
        weight: (N, K), or (K,) for one output without a dimension; or ``mm32.pack(weight.T)``, a `PackedOperand` of shape (K, N).
            A square weight that was packed without ``.T`` is refused.
        bias: shape (N,).
        activation: as in `matmul`.
        precision: as in `matmul`.
        kernel: as in `matmul`.
        out: as in `matmul`.

    Returns:
        (…, N), a new contiguous tensor, or ``out``.

    Raises:
        RuntimeError: shapes, dtypes or devices that do not fit, in torch's words where torch has them.
        TypeError, ValueError, mm32.CompileError, mm32.LaunchError: as `matmul`.

    Example:
        >>> layer, x = torch.nn.Linear(4096, 1024).cuda(), torch.randn(2, 8, 4096, device="cuda")
        >>> mm32.linear(x, layer.weight, layer.bias, activation="gelu").shape
        torch.Size([2, 8, 1024])
    """
    packed = type(weight) is PackedOperand
    if packed and isinstance(x, torch.Tensor) and weight.by_rows:  # type: ignore[union-attr]
        raise RuntimeError(
            f"mm32.linear takes mm32.pack(weight.T), and this packed operand of shape {tuple(weight.shape)} lies row by row, as "
            "weight itself does: pack weight.T, or, where weight lies column by column or weight.T was copied, call "
            "mm32.matmul(x, packed, bias=bias)"
        )
    done = fast_path.run(x, weight, bias, out, activation, precision, kernel, not packed)
    if done is not None:
        return done
    if others := foreign(x, weight, bias, out):
        return torch.overrides.handle_torch_function(
            linear, others, x, weight, bias, activation=activation, precision=precision, kernel=kernel, out=out
        )
    if isinstance(weight, PackedOperand):
        if isinstance(x, torch.Tensor) and x.dim() > 0 and x.size(-1) != weight.source.size(0):
            raise RuntimeError(
                f"mm32.linear of x {tuple(x.shape)} takes a packed operand of shape ({x.shape[-1]}, N), which is "
                f"mm32.pack(weight.T) for a weight (N, {x.shape[-1]}); got one of shape {tuple(weight.shape)}"
            )
        return _matmul(x, weight, bias, activation, precision, kernel, out)
    given = {} if isinstance(x, PackedOperand) else {"x": x}
    if sharding.among(*given.values(), weight, bias):
        gemm.check_tensors("mm32.linear", **given, weight=weight, bias=bias)
    else:
        gemm.check_kinds("mm32.linear", "torch.nn.functional.linear", **given, weight=weight, bias=bias)
    if weight.dim() not in (1, 2):
        raise RuntimeError(f"mm32.linear: weight must be (N, K) or (K,), got {tuple(weight.shape)}")
    traced = isinstance(weight.shape[0], torch.Tensor)  # by torch.jit.trace
    n = weight.shape[0] if weight.dim() == 2 else 1
    if bias is not None and not traced and (bias.dim() != 1 or gemm.known(bias.shape[0] != n)):
        raise RuntimeError(
            f"bias must have shape ({n},), one value for each column of the result; got {tuple(bias.shape)} "
            f"(mm32.linear of x {list(x.shape)} and weight {list(weight.shape)})"
        )
    if weight.dim() == 1:
        return _matmul(x, weight, bias, activation, precision, kernel, out, weight)
    transposed = weight.T
    if isinstance(x, torch.Tensor) and x.dim() > 0:
        k = x.size(-1)
        if not traced and gemm.known(k != weight.size(1)):
            raise RuntimeError(
                f"mat1 and mat2 shapes cannot be multiplied ({x.size(-2) if x.dim() > 1 else 1}x{k} and "
                f"{weight.size(1)}x{weight.size(0)}) (mm32.linear of x {list(x.shape)} and weight {list(weight.shape)}, which "
                f"must be (N, {k}))"
            )
    return _matmul(x, transposed, bias, activation, precision, kernel, out, weight)


def explain(
    a: torch.Tensor | PackedOperand,
    b: torch.Tensor | PackedOperand,
    *,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    precision: Precision = "fp32",
    kernel: Kernel = "auto",
) -> str:
    """Return what `matmul` would do with these arguments, and why: the plan as text, a line for each fact. Nothing is computed.

    The text has the sizes and layout, the card, the kernel and the reason for it, each launch with its constants, the workspace
    in bytes, and the estimated times of the kernels that were considered. It is for people; its form may change.

    Raises:
        RuntimeError: shapes, dtypes or devices that do not fit; DTensors.
        TypeError, ValueError: as `matmul`.

    Example:
        >>> print(mm32.explain(torch.randn(64, 32), torch.randn(32, 8)))
        device     cpu: torch.matmul, then bias and activation, by torch; kernels are for CUDA tensors
    """
    if sharding.among(a, b, bias):
        raise RuntimeError(
            "mm32.explain plans the product of one rank: call it on local tensors, t.to_local(), as placed by mm32.matmul"
        )
    prepacked, notes = (False, False), ""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        notes = "".join(f"\npacked     {x!r}" for x in (a, b) if isinstance(x, PackedOperand))
        a, b, packed_a, packed_b = unwrap(a, b, precision, kernel, "mm32.explain")
        prepacked = ops.holds(packed_a), ops.holds(packed_b)
    gemm.check_tensors("mm32.explain", a=a, b=b, bias=bias)
    shape = gemm.check_inputs(a, b, bias, activation, precision)
    planning.check_kernel(kernel)
    if a.device.type != "cuda":
        product = "torch.matmul" if torch_product.by_torch(a, precision) else "torch.matmul in float64, rounded"
        how = f"device     {a.device.type}: {product}, then bias and activation, by torch; kernels are for CUDA tensors"
        return how + notes
    problem = gemm.describe(a, b, bias, ops.new_result(shape), activation, precision, merge=not prepacked[0])
    return prepared.planned(problem, a.device.index, kernel, prepacked, cublas.offered()).explain() + notes
