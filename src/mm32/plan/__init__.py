"""What is done: `plan(gemm, device)` chooses a kernel and says why. The only place that chooses.

A `Plan` is data: kernel source, constants, launch. The launcher runs it, `Plan.explain()` prints it, `mm32.export` writes it
out as C++. Nothing here calls CUDA or torch, so a plan can be made for a card that is not present.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mm32.gemm import Gemm
from mm32.plan import blas, data, fp32, split
from mm32.plan.blas import torch_seconds
from mm32.plan.data import (
    H200,
    KERNELS,
    SPLIT_KERNELS,
    Constants,
    Device,
    Launch,
    Plan,
    Unplannable,
    Workspace,
    unsupported,
)
from mm32.plan.forms import variants
from mm32.plan.split import pack, packed_bytes, unsuited

__all__ = [
    "H200",
    "KERNELS",
    "SPLIT_KERNELS",
    "Constants",
    "Device",
    "Launch",
    "Plan",
    "Unplannable",
    "Workspace",
    "blas",
    "check_kernel",
    "data",
    "fp32",
    "pack",
    "packed_bytes",
    "plan",
    "split",
    "torch_seconds",
    "unsuited",
    "unsupported",
    "variants",
    "without_workspace",
]

_PLANNERS: dict[str, Callable[[Gemm, Device], tuple[Plan, float]]] = {
    "naive": fp32.naive,
    "dot": fp32.dot,
    "tiled": fp32.tiled,
    "simt": fp32.simt,
    "mma": split.mma,
    "tensorcore": split.tensorcore,
}


def plan(
    gemm: Gemm,
    device: Device,
    kernel: str = "auto",
    before: tuple[bool, bool] = (False, False),
    *,
    torch: bool = False,
) -> Plan:
    """The plan for `gemm` on `device`: the kernel that was named, or with "auto" the one that is estimated to be fastest; the
    tensor-core kernel if A or B was packed `before`, unless it does not suit the problem, which is then computed without.

    With `torch`, "auto" may choose torch's own product (cuBLAS), a plan of kernel "torch" without launches: for small sizes and
    shapes that no kernel here is good at.

    Raises ValueError for a kernel that does not exist, `Unplannable` for one that cannot run on the device or the problem.
    """
    check_kernel(kernel)
    names = KERNELS if kernel == "auto" else (kernel,)
    refused = {name: why for name in names if (why := unsupported(name, device) or unsuited(name, gemm)) is not None}
    if any(before) and kernel in ("auto", *SPLIT_KERNELS):
        name = split.split_kernel(device) if kernel == "auto" else kernel
        if name not in refused:
            made = (split.mma if name == "mma" else split.tensorcore)(gemm, device, before)
            which = " and ".join(side for side, b in zip("AB", before, strict=True) if b)
            return replace(made[0], reason=f"{which} packed beforehand", estimates=((name, made[1]),))
    if kernel == "auto":
        for name in SPLIT_KERNELS:
            if (why := split.too_short(gemm, name)) is not None:
                refused.setdefault(name, why)
        if unsupported("tensorcore", device) is None:
            refused.setdefault("mma", "tensorcore is the same scheme, by wgmma")
    if len(refused) == len(names):
        raise Unplannable(f"kernel {kernel!r} cannot run here: {next(iter(refused.values()))}")
    options = [_PLANNERS[name](gemm, device) for name in names if name not in refused]
    if torch and kernel == "auto" and blas.for_blas(gemm):
        options.append((Plan(gemm, device, "torch", ()), blas.by_torch(gemm, device)))
    options.sort(key=lambda o: o[1])
    chosen = options[0][0]
    reason = "asked for by name" if kernel != "auto" else f"least estimated time of {len(options)} kernels"
    return replace(
        chosen,
        reason=reason,
        estimates=tuple((p.kernel, t) for p, t in options),
        refused=tuple(refused.items()) if device.capability >= (8, 0) else (),
    )


def without_workspace(gemm: Gemm, device: Device) -> Plan:
    """The fastest plan that takes no memory beyond the operands."""
    return replace(fp32.simt(gemm, device, workspace=False)[0], reason="it needs no workspace")


def check_kernel(kernel: str) -> None:
    if kernel != "auto" and kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: mm32 has 'auto', {', '.join(map(repr, KERNELS))}")
