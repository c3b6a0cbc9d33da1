"""A simulated card, and executables that stand in for kernels."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

from mm32 import dispatch, ops, packed, prepared, torch_product
from mm32 import plan as planning
from mm32.cuda import launch
from mm32.plan import H200, Card


class Executable:
    """A stand-in for launch.Executable: it computes by numpy and records the plans in `made`."""

    made: list[planning.Plan] = []  # noqa: RUF012

    def __init__(self, plan: planning.Plan, index: int) -> None:
        self.plan = plan
        Executable.made.append(plan)

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        packed_a: torch.Tensor | None = None,
        packed_b: torch.Tensor | None = None,
    ) -> None:
        product = torch.from_numpy(a.detach().double().numpy() @ b.detach().double().numpy())
        out.copy_(torch_product.activate(product if bias is None else product + bias, self.plan.gemm.activation))

    def pack(self, operand: torch.Tensor) -> torch.Tensor:
        assert self.plan.workspace is not None
        return torch.zeros(self.plan.workspace.bytes, dtype=torch.uint8)


@contextlib.contextmanager
def cuda_under_cpu() -> Iterator[None]:
    """Register CUDA's implementation of the operators under the CPU key; no plan is left behind."""
    with torch.library._scoped_library("mm32", "IMPL") as library:
        for name, run in (
            ("matmul", ops.run_cuda),
            ("matmul_out", ops._into(ops.run_cuda)),
            ("pack", packed._pack_cuda),
        ):
            library.impl(name, run, "CPU", allow_override=True)
        dispatch.learn("cpu", ops.run_cuda)
        yield
    dispatch.learn("cpu", ops.run_torch)
    prepared.CACHE.clear()


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Card], None]]:
    """CUDA's implementation of the operators under the CPU key, on an H200 where nothing is loaded. Yields a function that
    changes the card."""
    monkeypatch.setattr(launch, "Executable", Executable)
    monkeypatch.setattr(launch, "card_of", lambda index: H200)
    monkeypatch.setattr(prepared.cublas, "offered", lambda: None)
    monkeypatch.setattr(prepared, "_missing", None)
    monkeypatch.setattr(prepared, "_said", set())
    Executable.made = []
    prepared.CACHE.clear()
    with cuda_under_cpu():
        yield lambda other: monkeypatch.setattr(launch, "card_of", lambda index: other)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def calls_made(run: Callable[[], object]) -> int:
    """Return how many functions a call calls, in Python and in C: its time on the host follows from that."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    for _ in range(2):
        run()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count
