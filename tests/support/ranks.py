"""Runs a function on the ranks of a process group: `Ranks.run(function, *args)` returns a list of what each rank returned.

A server process imports torch once; ranks are forked from it, so that a test costs tenths of a second and not two imports of
torch. Ranks meet in a file, so there is no port that could be in use. What a rank raises is raised here, with its traceback.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

TIMEOUT = 120.0  # the most seconds that a run may take
COLLECTIVE = 60.0  # seconds after which torch gives up a collective


class RankError(Exception):
    """A rank raised, died or took too long."""


class Ranks:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._server = context.Process(target=_serve, args=(there,), daemon=False)
        before = {name: os.environ.get(name) for name in _ENVIRONMENT}
        os.environ.update(_ENVIRONMENT)
        try:
            self._server.start()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        there.close()

    @property
    def pid(self) -> int | None:
        """The process id of the server while it is alive, or None."""
        return self._server.pid if self._server.is_alive() else None

    def said(self, function: Callable[..., Any], *args: Any, world: int = 2, backend: str = "gloo") -> list[tuple]:
        """Return for each rank ("answer", what it returned), ("error", its traceback) or ("died", its exit code)."""
        self._here.send((function, args, world, backend))
        return [pickle.loads(each) for each in self._here.recv()]

    def run(self, function: Callable[..., Any], *args: Any, world: int = 2, backend: str = "gloo") -> list[Any]:
        said = self.said(function, *args, world=world, backend=backend)
        wrong = [f"rank {rank} {kind}: {text}" for rank, (kind, text) in enumerate(said) if kind != "answer"]
        if wrong:
            raise RankError("\n".join(wrong))
        return [answer for _, answer in said]

    def close(self) -> None:
        self._here.send(None)
        self._server.join(10)
        if self._server.is_alive():
            self._server.kill()
            self._server.join()


# By NVML, because forked ranks could not use CUDA if the server asked CUDA's runtime whether there is a card.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


# Modules that ranks use, imported once: each takes a second or two.
_IMPORTED = (
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "mm32.distributed",
)


def _serve(connection: Connection) -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    while (asked := connection.recv()) is not None:
        connection.send(_fork(*asked))
    os._exit(0)  # skips the exit handlers of all these modules


def _fork(function: Callable[..., Any], args: tuple, world: int, backend: str) -> list[bytes]:
    """Return the pickled answer of each rank. It is pickled here because multiprocessing's own pickles refer to tensors in shared
    memory, which is gone when the rank ends."""
    said: list[bytes | None] = [None] * world
    with tempfile.TemporaryDirectory() as folder:
        pids, pipes = [], {}
        for rank in range(world):
            here, there = multiprocessing.Pipe(duplex=False)
            pid = os.fork()
            if pid == 0:
                here.close()
                _be(rank, function, args, world, backend, os.path.join(folder, "store"), there)
            there.close()
            pids.append(pid)
            pipes[here] = rank
        end = time.monotonic() + TIMEOUT
        while pipes and (ready := wait(list(pipes), max(0.0, end - time.monotonic()))):
            for pipe in ready:
                rank = pipes.pop(pipe)
                with contextlib.suppress(EOFError):  # the rank ended without an answer
                    said[rank] = pipe.recv_bytes()
        for rank, pid in enumerate(pids):
            if rank in pipes.values():
                os.kill(pid, signal.SIGKILL)
                said[rank] = pickle.dumps(("error", f"nothing for {TIMEOUT:g} s"))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            said[rank] = said[rank] or pickle.dumps(("died", code))
    return [each for each in said if each is not None]


def _be(rank: int, function: Callable[..., Any], args: tuple, world: int, backend: str, store: str, pipe: Any) -> None:
    """Run one rank to its end; this does not return."""
    import torch
    import torch.distributed as dist

    try:
        torch.set_num_threads(1)
        if backend == "nccl":
            torch.cuda.set_device(rank)
        wait_for = datetime.timedelta(seconds=COLLECTIVE)
        dist.init_process_group(backend, f"file://{store}", rank=rank, world_size=world, timeout=wait_for)
        torch.manual_seed(0)
        said = ("answer", function(*args))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        said = ("error", traceback.format_exc())
    pipe.send_bytes(pickle.dumps(said))
    os._exit(0)
