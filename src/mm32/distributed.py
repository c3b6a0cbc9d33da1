"""mm32 on the ranks of a mesh: `check` makes sure that they compute in the same way.

Products of DTensors need no call of this module; they are in sharding.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import mm32
from mm32 import enabling, settings, torch_product
from mm32 import plan as planning
from mm32.cuda import compile as compiler
from mm32.cuda import launch, prebuilt
from mm32.errors import CompileError

__all__ = ["check"]

_FAILED = "error"  # the only fact of a rank that could not find out its facts


def check(mesh: DeviceMesh | None = None) -> None:
    """Raise an error on every rank of a mesh if the ranks would compute the same product in different ways.

    The planner chooses a kernel for the card, and may choose torch's own product. So ranks with different cards, versions or
    settings may give results with different bits, but a replicated tensor has to be the same on all ranks. Only this function
    compares ranks, once, when you call it. A good place for the call is right after the mesh is made.

    It is a collective that all ranks of the mesh have to call: one all_gather_object for each dimension of the mesh. It compares
    the versions of mm32 (with the sources of its kernels and planner, and the compiled kernels that came with it), torch, CUDA
    and the compiler; the current card; the precision of torch's products; deterministic mode; `mm32.enable`, MM32_DISABLE and the
    workspace limit.

    Args:
        mesh: None for all ranks of the default process group.

    Raises:
        TypeError: `mesh` is no DeviceMesh.
        RuntimeError: ranks differ; the message is the same on all of them and says how. Also if a rank could not find out these
            facts, and if torch.distributed is not initialized.
    """
    if mesh is not None and not hasattr(mesh, "get_coordinate"):
        raise TypeError(
            f"mm32.distributed.check takes a DeviceMesh, or nothing for all ranks, got {type(mesh).__name__}"
        )
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "mm32.distributed.check compares the ranks of a process group, and there is none: call "
            "torch.distributed.init_process_group or init_device_mesh first"
        )
    if mesh is not None and mesh.get_coordinate() is None:
        return  # this rank is not part of the mesh
    groups = [None] if mesh is None else [mesh.get_group(dim) for dim in range(mesh.ndim)]
    failed: Exception | None = None
    try:
        facts = _facts(mesh.device_type if mesh is not None else None)
    except Exception as error:  # the other ranks wait in the collective below: they get the error there
        failed, facts = error, {_FAILED: f"{type(error).__name__}: {error}"}
    known = {dist.get_rank(): facts}
    # After each group, a rank knows the facts of all ranks that it reaches along the dimensions so far.
    for group in groups:
        gathered: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(gathered, known, group=group)
        known = {rank: facts for part in gathered for rank, facts in part.items()}
    lost = [f"rank {rank}: {known[rank][_FAILED]}" for rank in sorted(known) if _FAILED in known[rank]]
    if lost:
        raise RuntimeError(
            f"mm32.distributed.check: ranks failed to find out how they compute, {'; '.join(lost)}. See what is wrong there with "
            "`mm32 env`"
        ) from failed
    said = _differences(known)
    if said:
        raise RuntimeError(f"the ranks of this mesh would not compute alike with mm32: {'; '.join(said)}")


def _facts(device: str | None) -> dict[str, str]:
    """The facts that decide how this rank computes a product, as text by name."""
    facts = {
        "mm32": mm32.__version__,
        "mm32's kernels": _digest(compiler.KERNEL_DIR, "*.cu*"),
        "mm32's planner": _digest(Path(planning.__file__).parent, "*.py"),
        "mm32's compiled kernels": _digest(prebuilt.FOLDER, "*.cubin", contents=False),
        "MM32_DISABLE": "on" if settings.disabled() else "off",
        "torch": str(torch.__version__),
        "CUDA": str(torch.version.cuda or torch.version.hip),
        "deterministic mode": str(torch.are_deterministic_algorithms_enabled()),
        "mm32.enable": enabling.state(),
        "mm32's workspace limit": "none" if (limit := settings.read_limit()) is None else f"{limit} bytes",
    }
    if device == "cpu" or not torch.cuda.is_available():
        return facts | {"device": device or "cpu", "torch's products": torch_product.torch_precision("cpu")}
    return facts | {
        "device": str(launch.card_of(torch.cuda.current_device())),
        "compiler": _compiler(),
        "torch's products": torch_product.torch_precision("cuda"),
    }


def _compiler() -> str:
    try:
        return compiler.compiler_version()
    except CompileError:  # torch then computes the products of this rank
        return "missing"


def _digest(folder: Path, pattern: str, contents: bool = True) -> str:
    """A digest of the files of a folder, because checkouts of the same version may have different files. Without `contents` it
    is of their names alone, for files whose names are hashes of their contents."""
    digest, paths = hashlib.sha256(), sorted(folder.rglob(pattern))
    for path in paths:
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + (path.read_bytes() if contents else b""))
    return digest.hexdigest()[:12] if paths else "none"


def _differences(known: dict[int, dict[str, str]]) -> list[str]:
    """A text for each fact in which ranks differ: which ranks have which value."""
    said = []
    for name in sorted({name for facts in known.values() for name in facts}):
        ranks: dict[str, list[int]] = {}
        for rank in sorted(known):
            ranks.setdefault(known[rank].get(name, "none"), []).append(rank)
        if len(ranks) > 1:
            said.append(f"{name} is " + ", ".join(f"{value} on {_words(who)}" for value, who in ranks.items()))
    return said


def _words(ranks: Iterable[int]) -> str:
    named = [str(rank) for rank in ranks]
    return f"rank {named[0]}" if len(named) == 1 else f"ranks {', '.join(named)}"
