"""What the tests of the drop-in share: calls that torch refuses, and the outcome of a call."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F


def outcome(call: Callable[[], object]) -> tuple[str, str]:
    """The type and text of what a call raises, or "value" and the value's text."""
    try:
        return "value", str(call())
    except Exception as error:
        return type(error).__name__, str(error)


def ones(*shape: int, dtype: torch.dtype = torch.float32, device: str) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


def inference(device: str) -> torch.Tensor:
    with torch.inference_mode():
        return torch.empty(2, 5, device=device)


def repeated(device: str) -> torch.Tensor:
    return torch.empty(5, device=device).expand(2, 5)


def mm(device: str, a: tuple[int, ...] = (2, 3), b: tuple[int, ...] = (3, 5), **out: object) -> torch.Tensor:
    return torch.mm(ones(*a, device=device), ones(*b, device=device), **out)


def bmm(device: str, a: tuple[int, ...] = (2, 2, 3), b: tuple[int, ...] = (2, 3, 5), **out: object) -> torch.Tensor:
    return torch.bmm(ones(*a, device=device), ones(*b, device=device), **out)


def addmm(
    device: str,
    c: tuple[int, ...] = (5,),
    a: tuple[int, ...] = (2, 3),
    b: tuple[int, ...] = (3, 5),
    **options: object,
) -> torch.Tensor:
    return torch.addmm(ones(*c, device=device), ones(*a, device=device), ones(*b, device=device), **options)


def baddbmm(
    device: str,
    c: tuple[int, ...] = (5,),
    a: tuple[int, ...] = (2, 2, 3),
    b: tuple[int, ...] = (2, 3, 5),
    **options: object,
) -> torch.Tensor:
    return torch.baddbmm(ones(*c, device=device), ones(*a, device=device), ones(*b, device=device), **options)


# Calls that torch refuses. Each function takes the device of the operands.
MISFITS: dict[str, Callable[[str], object]] = {
    # Shapes
    "mm_inner": lambda d: mm(d, (2, 3), (4, 5)),
    "mm_rank": lambda d: mm(d, (2, 3, 4), (4, 5)),
    "mm_vector": lambda d: mm(d, (3,), (3, 5)),
    "mm_scalar": lambda d: mm(d, (), (3, 5)),
    "mm_empty_inner": lambda d: mm(d, (2, 0), (3, 5)),
    "bmm_batch": lambda d: bmm(d, (2, 2, 3), (3, 3, 5)),
    "bmm_inner": lambda d: bmm(d, (2, 2, 3), (2, 4, 5)),
    "bmm_rank": lambda d: bmm(d, (2, 3), (3, 5)),
    "bmm_broadcast": lambda d: bmm(d, (1, 2, 3), (4, 3, 5)),
    "addmm_inner": lambda d: addmm(d, (5,), (2, 3), (4, 5)),
    "addmm_bias": lambda d: addmm(d, (4,)),
    "addmm_rank": lambda d: addmm(d, (1, 2, 5)),
    "addmm_bias_unread": lambda d: addmm(d, (4,), beta=0),
    "addmm_batches": lambda d: addmm(d, (5,), (2, 2, 3), (2, 3, 5)),
    "addmm_in_place": lambda d: ones(2, 4, device=d).addmm_(ones(2, 3, device=d), ones(3, 5, device=d)),
    "addmm_in_place_broadcast": lambda d: ones(5, device=d).addmm_(ones(2, 3, device=d), ones(3, 5, device=d)),
    "addmm_in_place_one_row": lambda d: ones(1, 5, device=d).addmm_(ones(2, 3, device=d), ones(3, 5, device=d)),
    "addmm_in_place_inner": lambda d: ones(2, 5, device=d).addmm_(ones(2, 3, device=d), ones(4, 5, device=d)),
    "baddbmm_in_place_broadcast": lambda d: ones(2, 5, device=d).baddbmm_(
        ones(2, 2, 3, device=d), ones(2, 3, 5, device=d)
    ),
    "baddbmm_in_place_batch": lambda d: ones(1, 2, 5, device=d).baddbmm_(
        ones(2, 2, 3, device=d), ones(2, 3, 5, device=d)
    ),
    "baddbmm_inner": lambda d: baddbmm(d, (5,), (2, 2, 3), (2, 4, 5)),
    "baddbmm_bias": lambda d: baddbmm(d, (4,)),
    "baddbmm_batch": lambda d: baddbmm(d, (3, 2, 5)),
    "baddbmm_rank": lambda d: baddbmm(d, (5,), (2, 3), (3, 5)),
    "matmul": lambda d: torch.matmul(ones(2, 3, device=d), ones(4, 5, device=d)),
    "matmul_batch": lambda d: torch.matmul(ones(2, 2, 3, device=d), ones(3, 3, 5, device=d)),
    "matmul_scalar": lambda d: torch.matmul(ones(device=d), ones(3, 5, device=d)),
    "linear": lambda d: F.linear(ones(2, 3, device=d), ones(5, 4, device=d)),
    "linear_bias": lambda d: F.linear(ones(2, 3, device=d), ones(5, 3, device=d), ones(4, device=d)),
    "einsum": lambda d: torch.einsum("ij,jk->ik", ones(2, 3, device=d), ones(4, 5, device=d)),
    # Types
    "mm_double": lambda d: torch.mm(ones(2, 3, device=d), ones(3, 5, dtype=torch.float64, device=d)),
    "mm_half": lambda d: torch.mm(ones(2, 3, dtype=torch.float16, device=d), ones(3, 5, device=d)),
    "mm_integer": lambda d: torch.mm(ones(2, 3, device=d), ones(3, 5, dtype=torch.int64, device=d)),
    "mm_complex": lambda d: torch.mm(ones(2, 3, dtype=torch.complex64, device=d), ones(3, 5, device=d)),
    "bmm_double": lambda d: torch.bmm(ones(2, 2, 3, device=d), ones(2, 3, 5, dtype=torch.float64, device=d)),
    "addmm_double": lambda d: torch.addmm(
        ones(5, dtype=torch.float64, device=d), ones(2, 3, device=d), ones(3, 5, device=d)
    ),
    "baddbmm_half": lambda d: torch.baddbmm(
        ones(5, dtype=torch.float16, device=d), ones(2, 2, 3, device=d), ones(2, 3, 5, device=d)
    ),
    "addmm_in_place_double": lambda d: ones(2, 5, dtype=torch.float64, device=d).addmm_(
        ones(2, 3, device=d), ones(3, 5, device=d)
    ),
    "addmm_in_place_complex": lambda d: ones(2, 5, device=d).addmm_(
        ones(2, 3, device=d), ones(3, 5, device=d), beta=1j
    ),
    "linear_half": lambda d: F.linear(ones(2, 3, device=d), ones(5, 3, dtype=torch.float16, device=d)),
    # alpha and beta
    "addmm_complex": lambda d: addmm(d, alpha=1j),
    "addmm_text": lambda d: addmm(d, alpha="2"),
    "addmm_several_numbers": lambda d: addmm(d, beta=ones(2, device=d)),
    "too_large_a_scale": lambda d: addmm(d, alpha=1e300),
    "baddbmm_none": lambda d: baddbmm(d, alpha=None),
    # out
    "mm_out_integer": lambda d: mm(d, out=torch.empty(2, 5, dtype=torch.int32, device=d)),
    "mm_out_double": lambda d: mm(d, out=torch.empty(2, 5, dtype=torch.float64, device=d)),
    "bmm_out_half": lambda d: bmm(d, out=torch.empty(2, 2, 5, dtype=torch.float16, device=d)),
    "addmm_out_double": lambda d: addmm(d, out=torch.empty(2, 5, dtype=torch.float64, device=d)),
    "baddbmm_out_double": lambda d: baddbmm(d, out=torch.empty(2, 2, 5, dtype=torch.float64, device=d)),
    "mm_out_repeated": lambda d: mm(d, out=repeated(d)),
    "mm_out_meta": lambda d: mm(d, out=torch.empty(2, 5, device="meta")),
    "mm_out_inference": lambda d: mm(d, out=inference(d)),
    "mm_out_gradient": lambda d: mm(d, out=torch.empty(2, 5, device=d, requires_grad=True)),
    "addmm_out_gradient": lambda d: torch.addmm(
        ones(5, device=d).requires_grad_(),
        ones(2, 3, device=d),
        ones(3, 5, device=d),
        out=torch.empty(2, 5, device=d),
    ),
    "addmm_in_place_inference": lambda d: inference(d).addmm_(ones(2, 3, device=d), ones(3, 5, device=d)),
    "addmm_in_place_gradient": lambda d: (
        ones(2, 5, device=d).requires_grad_().addmm_(ones(2, 3, device=d), ones(3, 5, device=d))
    ),
    "addmm_in_place_repeated": lambda d: repeated(d).addmm_(ones(2, 3, device=d), ones(3, 5, device=d)),
    "mm_out_number": lambda d: mm(d, out=3),
    # Not a tensor
    "mm_number": lambda d: torch.mm(ones(2, 3, device=d), 3),
    "mm_list": lambda d: torch.mm([[1.0]], ones(1, 1, device=d)),
    "mm_none": lambda d: torch.mm(None, ones(1, 1, device=d)),
    "mm_one": lambda d: torch.mm(ones(1, 1, device=d)),
    "mm_three": lambda d: torch.mm(ones(1, 1, device=d), ones(1, 1, device=d), ones(1, 1, device=d)),
    "mm_keyword": lambda d: torch.mm(ones(1, 1, device=d), ones(1, 1, device=d), alpha=2),
    "addmm_number": lambda d: torch.addmm(1, ones(2, 3, device=d), ones(3, 5, device=d)),
    "linear_list": lambda d: F.linear(ones(2, 3, device=d), [[1.0, 2.0, 3.0]]),
}

# Calls with operands on two devices, `d` and `other`.
APART: dict[str, Callable[[str, str], object]] = {
    "mm": lambda d, other: torch.mm(ones(2, 3, device=d), ones(3, 5, device=other)),
    "mm_first": lambda d, other: torch.mm(ones(2, 3, device=other), ones(3, 5, device=d)),
    "bmm": lambda d, other: torch.bmm(ones(2, 2, 3, device=d), ones(2, 3, 5, device=other)),
    "addmm": lambda d, other: torch.addmm(ones(5, device=other), ones(2, 3, device=d), ones(3, 5, device=d)),
    "baddbmm": lambda d, other: torch.baddbmm(ones(5, device=other), ones(2, 2, 3, device=d), ones(2, 3, 5, device=d)),
    "addmm_in_place": lambda d, other: ones(2, 5, device=other).addmm_(ones(2, 3, device=d), ones(3, 5, device=d)),
    "addmm_in_place_second": lambda d, other: ones(2, 5, device=d).addmm_(
        ones(2, 3, device=d), ones(3, 5, device=other)
    ),
    "linear": lambda d, other: F.linear(ones(2, 3, device=d), ones(5, 3, device=other)),
    "mm_out": lambda d, other: mm(d, out=torch.empty(2, 5, device=other)),
    "addmm_out": lambda d, other: addmm(d, out=torch.empty(2, 5, device=other)),
    "bmm_out": lambda d, other: bmm(d, out=torch.empty(2, 2, 5, device=other)),
}
