"""The product by torch alone: torch.matmul, then bias and activation.

It is the CPU's implementation, and that of every device on which none of mm32's kernels runs, so that a program runs the same on
any machine.
"""

from __future__ import annotations

import torch

from mm32 import activations

# For each type of device, the backend whose setting decides in which precision torch multiplies float32 matrices. On other
# devices it multiplies in float32.
_BACKENDS = {"cuda": "cuda", "cpu": "mkldnn", "xpu": "mkldnn"}


def torch_precision(device: str = "cuda") -> str:
    """The precision that the user allows torch's float32 products on a type of device: "tf32", "bf16", or else "fp32"."""
    backend = _BACKENDS.get(device)
    # This is what torch.backends.cuda.matmul.fp32_precision reads. Reading that takes 1 us longer, in every call.
    asked = "none" if backend is None else torch._C._get_fp32_precision_getter(backend, "matmul")
    return asked if asked in ("tf32", "bf16") else "fp32"


def _multiplies_in_fp32(device: torch.device) -> bool:
    """Return whether torch multiplies float32 matrices in fp32 on a device: it was asked to, or the device has nothing less
    precise."""
    if torch_precision(device.type) == "fp32":
        return True
    if device.type != "cuda":
        return False
    capability = torch.cuda.get_device_capability(device)  # of an AMD GPU: gfx942 is (9, 4)
    return capability not in ((9, 4), (9, 5)) if torch.version.hip is not None else capability < (8, 0)


def by_torch(a: torch.Tensor, precision: str) -> bool:
    """Return whether torch's own product of `a` is precise enough as it is. If not, it has to be made in float64."""
    return precision == "tf32" or a.dtype != torch.float32 or _multiplies_in_fp32(a.device)


def activate(x: torch.Tensor, activation: str | None) -> torch.Tensor:
    """Apply torch's function of that name to `x`, differentiably; return `x` itself for None."""
    return x if activation is None else activations.named(activation)(x)


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str = "fp32",
) -> torch.Tensor:
    """Return act(a @ b + bias) for checked inputs, in their dtype: autocast has no effect.

    Where the user allows torch's float32 products less than fp32 (TF32, or bf16 on a CPU), and the device has it, a product of
    precision "fp32" or "ieee" is made in float64 and rounded. torch's setting belongs to the whole process: to change it for one
    call would change other threads' results.
    """
    device = a.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return matmul(a, b, bias, activation, precision)
    if by_torch(a, precision):
        result = torch.matmul(a, b)
    else:
        result = torch.matmul(a.double(), b.double()).float()
    if bias is not None:
        result = result + (bias if b.dim() > 1 else bias[0])
    return activate(result, activation)
