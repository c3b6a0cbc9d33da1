"""mm32 on the ranks of a mesh: `check`, that they compute alike.

What mm32 does with DTensors needs no call and is in sharding.py.
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
from mm32 import dropin, settings, torch_product
from mm32 import plan as planning
from mm32.cuda import compile as compiler
from mm32.cuda import launch, prebuilt
from mm32.errors import CompileError

__all__ = ["check"]

_FAILED = "error"  # the fact that takes the place of all others


def check(mesh: DeviceMesh | None = None) -> None:
    """Raises on every rank of a mesh if the ranks would compute the same product in different ways.

    The planner chooses a kernel for the card, and may choose torch's own product. So ranks with different cards, versions or
    settings may give results with different bits, where a replicated tensor has to be the same on all ranks. Only this function
    compares ranks, once, when you call it. A good place is after the mesh is made.

    It is a collective that all ranks of the mesh have to call: one all_gather_object for each dimension of the mesh. It compares
    the versions of mm32 (with the sources of its kernels and planner, and the compiled kernels that came with it), torch, CUDA
    and the compiler; the current card; the precision of torch's products; deterministic mode; `mm32.enable` and MM32_DISABLE.

    Args:
        mesh: None for all ranks of the default process group.

    Raises:
        RuntimeError: ranks differ; the message is the same on all of them and says how. Also if a rank could not find these facts
            out, and if torch.distributed is not initialized.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "mm32.distributed.check compares the ranks of a process group, and there is none: call "
            "torch.distributed.init_process_group or init_device_mesh first"
        )
    if mesh is not None and mesh.get_coordinate() is None:
        return  # this rank is not part of it
    groups = [None] if mesh is None else [mesh.get_group(dim) for dim in range(mesh.ndim)]
    failed: Exception | None = None
    try:
        facts = _facts(mesh.device_type if mesh is not None else None)
    except Exception as error:  # the other ranks wait in the gathering: it is told there
        failed, facts = error, {_FAILED: f"{type(error).__name__}: {error}"}
    known = {dist.get_rank(): facts}
    for group in groups:  # after each, a rank knows of all that it reaches along the dimensions so far
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
    """What decides how this rank computes a product, in words, by name."""
    facts = {
        "mm32": mm32.__version__,
        "mm32's kernels": _digest(compiler.KERNEL_DIR, "*.cu*"),
        "mm32's planner": _digest(Path(planning.__file__).parent, "*.py"),
        "mm32's compiled kernels": _digest(prebuilt.FOLDER, "*.cubin", contents=False),
        "MM32_DISABLE": "on" if settings.disabled() else "off",
        "torch": str(torch.__version__),
        "CUDA": str(torch.version.cuda or torch.version.hip),
        "deterministic mode": str(torch.are_deterministic_algorithms_enabled()),
        "mm32.enable": dropin.state(),
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
    except CompileError:  # then products are torch's, on this rank
        return "missing"


def _digest(folder: Path, pattern: str, contents: bool = True) -> str:
    """Of the files of a folder, of which a checkout may have others under the same version; of their names alone where these are
    hashes of what is in them."""
    digest, paths = hashlib.sha256(), sorted(folder.rglob(pattern))
    for path in paths:
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + (path.read_bytes() if contents else b""))
    return digest.hexdigest()[:12] if paths else "none"


def _differences(known: dict[int, dict[str, str]]) -> list[str]:
    """For each fact that ranks differ in, who has what."""
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
