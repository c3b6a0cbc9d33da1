"""The implementations that a benchmark runs, by name: torch's, Triton's, and mm32's by precision or by kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

import mm32
from mm32 import gemm, torch_product
from mm32 import plan as planning
from mm32.options import Activation

Call = Callable[[], torch.Tensor]
BASELINE = "torch"  # what the others' times are compared with

# In the order in which a table and a plot show them.
IMPLEMENTATIONS: dict[str, str] = {
    "torch": "torch.matmul in fp32, then bias and activation",
    "torch-tf32": "the same with torch.backends.cuda.matmul.allow_tf32",
    "triton-tf32x3": "a Triton kernel whose dot is input_precision='tf32x3': three TF32 products",
    "mm32": "mm32.matmul by default: precision 'fp32', the kernel that the planner chooses",
    "mm32-packed": "the same with B packed before, which is not timed",
    "mm32-ieee": "mm32.matmul with precision='ieee': fp32 multiply-adds only",
    "mm32-tf32": "mm32.matmul with precision='tf32': an error of TF32's class",
    **{kernel: f"mm32.matmul with kernel='{kernel}'" for kernel in planning.KERNELS},
}


class Unavailable(RuntimeError):
    """An implementation that cannot run here; the message says why."""


def call(
    name: str, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: Activation | None = None
) -> Call:
    """Return a function that computes act(a @ b + bias) once, by the implementation of that name. `a` and `b` are (M, K) and
    (K, N), or (batch, M, K) and (batch, K, N). Raises Unavailable if it cannot run here, ValueError if there is none of that
    name."""
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"unknown implementation {name!r}: there are {', '.join(IMPLEMENTATIONS)}")
    if name in ("torch", "torch-tf32"):
        return _torch(a, b, bias, activation, tf32=name == "torch-tf32")
    if name == "triton-tf32x3":
        return _triton(a, b, bias, activation)
    asked = options(name)
    if name == "mm32-packed":
        packed = mm32.pack(b)
        return lambda: mm32.matmul(a, packed, bias=bias, activation=activation)
    return lambda: mm32.matmul(a, b, bias=bias, activation=activation, **asked)


def options(name: str) -> dict[str, Any]:
    """Return the options of mm32.matmul for one of mm32's own implementations: a precision or a kernel."""
    if name in planning.KERNELS:
        return {"kernel": name}
    _, _, precision = name.partition("-")
    return {"precision": precision if precision in gemm.PRECISIONS else "fp32"}


@contextlib.contextmanager
def torch_precision(tf32: bool) -> Iterator[None]:
    """Inside this context, torch computes fp32 products as TF32 or as IEEE fp32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _torch(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, tf32: bool) -> Call:
    def run() -> torch.Tensor:
        with torch_precision(tf32):
            c = torch.matmul(a, b)
        if bias is not None:
            c = c + bias
        return torch_product.activate(c, activation)

    return run


def _triton(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> Call:
    try:
        from mm32.bench import triton_matmul
    except ImportError as error:
        raise Unavailable(f"triton cannot be imported ({error}): pip install triton") from error

    def run() -> torch.Tensor:
        c = triton_matmul.matmul(a, b, bias, relu=activation == "relu")
        return c if activation == "relu" else torch_product.activate(c, activation)

    try:  # compile, and tune for this size
        run()
        torch.cuda.synchronize()
    except Exception as error:  # Triton's compiler and driver raise errors without a common class
        said = (str(error).strip().splitlines() or ["no message"])[0]
        raise Unavailable(f"Triton's kernel did not run: {type(error).__name__}: {said}") from error
    return run
