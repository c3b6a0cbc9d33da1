"""Operands that are packed once and multiplied often: `pack`, the `PackedOperand` that it returns, and the operator mm32::pack.

The tensor-core kernels first pack both operands into panels, and multiply those. The panels of an operand that stays the same,
such as a weight, can be kept between calls.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from mm32 import dispatch, gemm, prepared
from mm32 import plan as planning
from mm32.cuda import launch
from mm32.options import Precision, Side

torch.library.define("mm32::pack", "(Tensor operand, str side, str precision) -> Tensor")


@final
class PackedOperand:
    """A matrix together with its packed form, which the tensor-core kernels multiply. Made by `mm32.pack`.

    Attributes:
        source: the tensor that was packed. The fallback and gradients read it, so it is kept alive.
        side: "right" or "left" of the product.
        precision: the precision of the calls that it is for.
        memory: the packed form, uint8 on the source's device; it has no elements if `reason` is not None.
        shard: for a DTensor, this rank's local tensor, packed; else None. `memory` is then the shard's.
    """

    # What each call needs to know, found out once: the forms of source and memory (prepared.form), their dispatch keys, and the
    # source's address. Set for ordinary tensors only: others have no address, or calls with them go through the dispatcher.
    keys: tuple[int, ...] = ()
    form: tuple | None = None
    memory_form: tuple | None = None
    _address = 0
    _by_rows: bool | None = None

    def __init__(
        self,
        source: torch.Tensor,
        side: Side,
        precision: Precision,
        memory: torch.Tensor,
        shard: PackedOperand | None = None,
    ) -> None:
        self.source = source
        self.side = side
        self.precision = precision
        self.memory = memory
        self.shard = shard
        # Keeps the source's memory alive, so that no other tensor can be put there. A shard does that itself.
        self._was = source.detach() if shard is None else None
        self._version = None if _uncounted(source) else source._version
        if self._version is not None and not (isinstance(memory, FakeTensor) or _wrapped(memory)):
            keys = dispatch.keys(source), dispatch.keys(memory)
            if all(keys):
                self.keys = keys
                self.form, self.memory_form = prepared.form(source), prepared.form(memory)
                self._address = source.data_ptr()
                self._by_rows = _lies_by_rows(source)

    @property
    def shape(self) -> torch.Size:
        """The shape of the source: (K, N), or (M, K) for side "left"."""
        return self.source.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.source.dtype

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the packed form takes, in addition to the source's own."""
        return self.memory.numel()

    @property
    def reason(self) -> str | None:
        """Why it was not packed, so that calls take the source as it is; None if it was packed."""
        if self.shard is not None:
            return self.shard.reason
        if self.memory.numel():
            return None
        if self.device.type != "cuda":
            return f"kernels are for CUDA tensors, and this is on {self.device.type}"
        if torch.cuda.is_available():
            aligned = _wrapped(self.source) or self.source.data_ptr() % 16 == 0
            why = _plan(self.source, self.side, self.precision, aligned)
            if isinstance(why, str):
                return why
        if _wrapped(self.source):
            return "it was made inside torch.vmap, whose samples are multiplied as one batch"
        return "it was made where there was no card"

    def check(self) -> None:
        """Raise RuntimeError if the source was changed in place since it was packed, or was given other memory.

        Nothing is checked under torch.compile, for a source that a transform of torch.func made, and for an inference tensor,
        which does not count its changes.
        """
        if self.shard is not None:  # the memory is that of the local tensor
            self.shard.check()
        if self._version is None or _uncounted(self.source):
            return
        moved = self._was is not None and _address(self._was) != _address(self.source)
        if moved or self._version != self.source._version:
            raise RuntimeError(
                f"the source of this {self._words()} was modified in place (or given other memory) after mm32.pack: the "
                "packed form is of what it was before. Pack it again"
            )

    @property
    def by_rows(self) -> bool:
        """Whether it is a square right operand that is stored row by row. The transpose of a weight stored row by row is not."""
        lies = _lies_by_rows(self.source) if self._by_rows is None else self._by_rows
        return lies and self.side == "right"

    def serves(self, side: str, precision: str, kernel: str) -> bool:
        """Return whether a call may use it as it is. Checks what `unwrap` checks, for ordinary tensors, without saying what is
        wrong."""
        source = self.source
        return (
            self.keys != ()
            and kernel == "auto"
            and precision == self.precision
            and side == self.side
            and source._version == self._version
            and source.data_ptr() == self._address
            and not (source.requires_grad and torch.is_grad_enabled())
        )

    def _words(self) -> str:
        return f"packed operand of shape {tuple(self.shape)}"

    def __repr__(self) -> str:
        state = f"{self.nbytes} bytes" if self.reason is None else f"not packed: {self.reason}"
        return (
            f"PackedOperand({tuple(self.shape)}, side={self.side!r}, precision={self.precision!r}, "
            f"device={str(self.device)!r}, {state})"
        )

    def __reduce__(self) -> tuple:
        # A copy's source has memory of its own, and so panels of its own.
        return _again, (self.source, self.side, self.precision)


def _lies_by_rows(t: torch.Tensor) -> bool:
    rows, columns = t.shape
    return bool(rows == columns and rows > 1 and t.stride(1) == 1 and t.stride(0) >= columns)


def _again(source: torch.Tensor, side: Side, precision: Precision) -> PackedOperand:
    return pack(source, side=side, precision=precision)


def _uncounted(t: torch.Tensor) -> bool:
    """Return whether changes of a tensor cannot be detected."""
    return torch.compiler.is_compiling() or t.is_inference() or isinstance(t, FakeTensor) or _wrapped(t)


def _address(t: torch.Tensor) -> int:
    """The address of the first element; 0 for a subclass that wraps other tensors and has no memory of its own."""
    return t.data_ptr() if torch._C._has_storage(t) and not is_traceable_wrapper_subclass(t) else 0


def _wrapped(t: torch.Tensor) -> bool:
    """Return whether a tensor is a wrapper that a transform of torch.func made, which has no memory to ask about."""
    return torch._C._functorch.is_functorch_wrapped_tensor(t)


def pack(b: torch.Tensor, *, side: Side = "right", precision: Precision = "fp32") -> PackedOperand:
    """Pack a matrix that many calls multiply by: ``packed = mm32.pack(b)``, then ``mm32.matmul(a, packed)``. For `linear`, pack
    the transposed weight: ``mm32.linear(x, mm32.pack(weight.T))``.

    A call with a packed operand does not read `b` and split it into hi and lo again. It always runs the card's tensor-core
    kernel, "tensorcore" or "mma"; a call without packed operands chooses among all kernels. Gradients reach `b` as if it were not
    packed.

    The result is as accurate as that kernel's for `b` itself. It has the same bits if that kernel packs both operands first. It
    adds the same sums in another order if the kernel packs while it multiplies (`explain` says which), or if only one operand
    needs a scaled lo (docs/numerics.md). Whether lo is scaled is decided when `b` is packed; an `a` that does not suit that is
    multiplied by a lower tier.

    A packed form takes 4 bytes of device memory for each element (2 for "tf32", 6 for "bf16x6"), with edges rounded up to 8 rows
    and 64 of K. A call whose data need bf16x6 packs `b` again, in the call's own workspace.

    Nothing is packed, and calls read `b` itself, on the CPU and on devices without kernels, inside `torch.vmap`, with precision
    "ieee", and for a K so small that a tensor-core kernel would not be chosen (with "fp32": below 32, below 256 if the card's
    kernel is "mma"). `PackedOperand.reason`, its repr and `explain` say so.

    `b` must not change while it is packed. A call raises if torch counted a change in place. torch does not count writes through
    ``b.data``, writes by other libraries or by a replayed CUDA graph, collectives in place (``torch.distributed.broadcast``) and
    what FSDP2 gathers into a weight, and nothing is checked under torch.compile: after such a write results are those of the old
    `b` until it is packed again. A CUDA graph of a call keeps reading the packed form that was captured, which must outlive it.

    Args:
        b: (K, N), or (M, K) with side "left"; float32 (on the CPU float64 too), any strides.
        side: "right" for the right operand of `matmul`, "left" for the left one.
        precision: that of the calls: "fp32", "bf16x6" or "tf32".

    Raises:
        RuntimeError: not a dense float32 matrix (on the CPU float64 too).
        ValueError: unknown side or precision.
        mm32.CompileError, mm32.LaunchError: the compiler or driver failed; the message has its log.

    Example:
        >>> weight, x = torch.randn(1024, 2048), torch.randn(16, 2048)
        >>> packed = mm32.pack(weight.T)
        >>> mm32.matmul(x, packed).shape
        torch.Size([16, 1024])
    """
    gemm.check_packable(b, side, precision)
    if gemm.is_dtensor(b):
        return _pack_shard(b, side, precision)
    return PackedOperand(b, side, precision, torch.ops.mm32.pack(b.detach(), side, precision))


def _pack_shard(b: Any, side: Side, precision: Precision) -> PackedOperand:
    """Pack this rank's own shard of a DTensor, and keep it: nothing is communicated."""
    if any(p.is_partial() for p in b.placements):
        raise RuntimeError(
            f"mm32.pack takes a DTensor that is sharded or replicated, and this one is a sum that is not added up yet, "
            f"{tuple(b.placements)}: redistribute it first"
        )
    local = local_of(b)
    if local.numel() == 0:  # as when a dimension is shorter than the mesh
        shard = PackedOperand(local, side, precision, local.new_empty(0, dtype=torch.uint8))
    else:
        shard = pack(local, side=side, precision=precision)
    return PackedOperand(b, side, precision, shard.memory, shard)


def local_of(t: Any) -> torch.Tensor:
    """The local tensor of a DTensor, without gradient, after the collective that makes it is done."""
    with torch.no_grad():
        return ready(t.to_local())


def ready(t: torch.Tensor) -> torch.Tensor:
    """Return what a collective returned, after waiting until it is done: torch hands the tensor out before that."""
    wait = getattr(t, "trigger_wait", None)
    return t if wait is None else wait()


def unwrap(
    a: object, b: object, precision: str, kernel: str, caller: str = "mm32.matmul"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return the tensors of a product's operands, one of which is not a tensor, and the packed form of each or None. `caller` is
    the function that a message names.

    Raises TypeError for an operand that is neither a tensor nor packed, RuntimeError for a packed operand that is stale or on the
    wrong side, ValueError for options that it was not packed for.
    """
    if not (isinstance(a, (torch.Tensor, PackedOperand)) and isinstance(b, (torch.Tensor, PackedOperand))):
        raise TypeError(
            f"{caller} takes torch.Tensors or packed operands, got {type(a).__name__} and {type(b).__name__}: "
            "torch.as_tensor converts"
        )
    planning.check_kernel(kernel)
    gemm.check_options(None, precision)
    for name, operand, side in (("a", a, "left"), ("b", b, "right")):
        if not isinstance(operand, PackedOperand):
            continue
        if operand.side != side:
            raise RuntimeError(
                f"{name} is a {operand._words()}, packed as the {operand.side} operand of a product: make it with "
                f"mm32.pack({name}, side={side!r})"
            )
        if operand.precision != precision:
            raise ValueError(
                f"{name} was packed for precision {operand.precision!r}, and precision {precision!r} was asked for: make it with "
                f"mm32.pack({name}, side={side!r}, precision={precision!r})"
            )
        if kernel not in ("auto", *planning.EMULATED_KERNELS):
            raise ValueError(f"kernel {kernel!r} takes operands as they are: give it the packed operand's source")
        operand.check()
    return (
        a.source if isinstance(a, PackedOperand) else a,
        b.source if isinstance(b, PackedOperand) else b,
        a.memory if isinstance(a, PackedOperand) else None,
        b.memory if isinstance(b, PackedOperand) else None,
    )


# ---------------------------------------------------------------------------------------------------------------------


def _plan(t: torch.Tensor, side: str, precision: str, aligned: bool) -> planning.Plan | str:
    """Return the plan that packs a tensor, or why it is not packed."""
    index = t.device.index
    why = prepared.unavailable(index)
    if why is not None:
        return why
    problem = gemm.describe_operand(t, side, precision, aligned)
    try:
        return planning.pack(problem, launch.card_of(index), gemm.SIDES.index(side))
    except planning.Unplannable as error:
        return str(error)


def _pack_cuda(operand: torch.Tensor, side: str, precision: str) -> torch.Tensor:
    own = prepared.form(operand)
    sides = (own, None) if side == "left" else (None, own)
    key = ("pack", *sides, None, None, None, precision, "auto", None, None, None, prepared.NO_SCALES)
    found = prepared.CACHE.find(key)
    if found is None:
        gemm.check_packable(operand, side, precision)
        found = _prepare(operand, side, precision)
        prepared.CACHE.keep(key, found)
    return found.run.pack(operand) if found.run is not None else operand.new_empty(0, dtype=torch.uint8)


def _prepare(operand: torch.Tensor, side: str, precision: str) -> prepared.Prepared:
    index = operand.device.index
    plan = _plan(operand, side, precision, operand.data_ptr() % 16 == 0)
    run = prepared.executable(plan, index) if isinstance(plan, planning.Plan) else None
    # Without a compiler `executable` returns torch's product, and there is nothing to pack.
    return prepared.Prepared([], None if run is None or run.plan.kernel == "torch" else run)


def _pack_nothing(operand: torch.Tensor, side: str, precision: str) -> torch.Tensor:
    gemm.check_packable(operand, side, precision)
    return operand.new_empty(0, dtype=torch.uint8)


for _device, _pack in (("CUDA", _pack_cuda), ("CPU", _pack_nothing), ("CompositeExplicitAutograd", _pack_nothing)):
    torch.library.impl("mm32::pack", _device, _pack)


@torch.library.register_fake("mm32::pack")
def _pack_fake(operand: torch.Tensor, side: str, precision: str) -> torch.Tensor:
    gemm.check_packable(operand, side, precision)
    count = 0
    if operand.device.type == "cuda" and torch.cuda.is_available():
        plan = _plan(operand, side, precision, True)
        if isinstance(plan, planning.Plan) and plan.workspace is not None:
            count = plan.workspace.bytes
    return operand.new_empty(count, dtype=torch.uint8)


def _pack_vmap(
    info: Any, in_dims: tuple[int | None, ...], operand: torch.Tensor, side: str, precision: str
) -> tuple[torch.Tensor, None]:
    """The batching rule. Samples are not packed: their products are one batch, which reads them as they are (transforms.vmap)."""
    return operand.new_empty(0, dtype=torch.uint8), None


torch.library.register_vmap("mm32::pack", _pack_vmap)
