"""The timing stage of a verification: which processes are timed on which data, and the judgement of what timed calls gave.

The reference is timed before the candidate's script is loaded, so that a candidate which slows it down shows.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from ..exchange import handover
from ..exchange.wire import bytes_of, leaves, state_payload
from ..inputs.pools import Pools, Recipe
from ..judging.pieces import finite
from ..processes.channel import Failure
from ..processes.process import WorkerProcess
from . import one_call, repeated, rounds, settling, several
from .fresh import Fresh, states
from .kept_outputs import UNTIMED, Kept, Misfit, seeds_of
from .rounds import Timing
from .window import Bench

# How many times their size inputs and outputs are held at most, over all processes; and what needs no look at the memory.
INPUTS_HELD, OUTPUTS_HELD, SURELY = 6, 12, 1 << 30
ON_A_CARD = 6, 8  # the same of those that stay on the card
ENTRIES = 3  # results of get_inputs in a pool; 2 where they are large, three times as many where inputs hold integers
LARGE = 256 << 20  # bytes of one result, above which no fresh ones are made: calls get mixtures of those of the pool
LARGE_STATE = 64 << 20  # bytes of buffers that forward changes, above which no call has a state of its own
FRESH_HELD = 8  # times a call's inputs that fresh ones take, at most, beside a window's
TRIED = 2  # calls with mixed integers and structures, before these are taken
POOLED_CALLS = 64 << 20  # bytes of a window's slots on a CPU
BASELINES = ("eager", "compile", "tf32")  # how the reference is run where it is timed
WARM = 2  # windows of a fresh process that do not count
CACHE = 2 << 20  # bytes of a CPU's caches that a window is to exceed, at most
RECENT = 30.0  # seconds for which a reference that was timed by itself, in the same batch, is not timed so again


@dataclass(frozen=True)
class Estimate:
    """Seconds of a call of the reference, how many calls a window should have, and whether they draw random numbers; and the
    seconds of a call by whole windows when it was last timed by itself, with the time of the clock then."""

    seconds: float
    calls: int
    draws: bool
    alone: float | None = None
    timed_at: float = 0.0


class TimingStage:
    """Times a candidate against a reference: `prepare` before the candidate's script is loaded, `start_others` when timing
    is near, then `measure`. `start` starts a worker of the role that it is given. `baseline`, a name of BASELINES, says how the
    reference is run where it is timed: what is right stays the eager reference's to say. `estimate`: what an earlier stage of
    the same reference has found out."""

    def __init__(
        self,
        reference: WorkerProcess,
        script: Path,
        seed: int,
        device: str,
        start: Callable[[str], WorkerProcess],
        progress: Callable[[str], None],
        baseline: str = "eager",
        estimate: Estimate | None = None,
    ):
        self.eager = reference
        self.baseline = baseline
        self.estimate = estimate
        self.workers = {"reference": reference}
        self.script = script
        self.seed = seed
        self.kind = device
        self.device = torch.device("cuda:0" if device == "cuda" else "cpu")
        self.start = start
        self.progress = progress
        self.benches: dict[str, Bench] = {}
        self.steady = True  # whether outputs have the same shapes for all data; others have no slots to go into
        self.unfit: Misfit | None = None  # the output that shows that they have not

    def prepare(self) -> None:
        """Make the pools, and find how many calls a window has. Raises Failure."""
        self.progress("timing the reference alone")
        reference = self.eager
        # Not behind the trials' seeds: the candidate's process is told those, and could make the pool's data itself.
        first = secrets.randbelow(2**31)
        reply = reference.ask("make_inputs", seed=first)
        made, self.names = [reply.value], reply.header.get("names")
        output = reference.ask("forward", seed=first).value
        self.state = reference.ask("keep_changed_state").header["buffers"]
        # the most bytes that a candidate's buffers may come in; None where calls change none
        left = reference.ask("get_state").value if self.state else {}
        self.state_bytes = state_payload(left) if left else None
        # What has no place in a slot, sparse tensors say, or is large, is as usual in every timed call.
        plain = all(isinstance(t, Tensor) and t.layout is torch.strided for t in left.values())
        slotted = left if plain and bytes_of(left) <= LARGE_STATE else {}
        self.output = [(path, _described(leaf)) for path, leaf in leaves(output)]
        check_memory(_bytes(made[0], "cpu"), _bytes(output, "cpu"), available_memory())
        if self.kind == "cuda":
            handover.free(self.device)
            free = torch.cuda.mem_get_info(self.device)[0]
            check_card(_bytes(made[0], "cuda"), _bytes(output, "cuda"), free)
        del output
        size = _bytes(made[0], "cpu") + _bytes(made[0], "cuda")
        floats = all(t.is_floating_point() for _, t in leaves(made[0]) if isinstance(t, Tensor) and t.numel() > 1)
        begin = time.monotonic()
        for number in range(1, 2 if size > LARGE else ENTRIES if floats else 3 * ENTRIES):
            made.append(reference.ask("make_inputs", seed=first + number).value)
            if number == 1:
                each = time.monotonic() - begin
                other = reference.ask("forward", seed=first).value
                self.steady = self._shapes(self.output) == self._shapes(leaves(other))
                del other
        if not self.steady:
            return
        try:
            with _memory_for("reference"):
                self.pools = Pools(made, self.device, slotted)
        except ValueError as error:
            raise Failure("raised", str(error), {"type": "ValueError", "built": 0}, role="reference") from None
        fresh = Fresh(reference, self.pools, each) if self._room_for_fresh() else None
        self.pools.fresh = fresh
        self.pools.left = partial(states, reference, each)
        if self.baseline != "eager":
            self.workers["reference"] = self.start("baseline")
            self._load("reference")
        with _one_thread(), _memory_for("reference"):
            self._slots(("reference",), self._tried())
            self._try_mixed(first)
            self._estimate()
            if fresh is not None:
                fresh.call = self.seconds
            self._look()

    def _estimate(self) -> None:
        """Find out what a call of the reference takes, and how many a window has."""

        def cost(slots: int) -> float:
            if "reference" in self.benches:
                self._look()
            self._slots(("reference",), slots)
            self._first("reference")
            seconds, self.draws = rounds.cost(self.benches["reference"], self.pools)
            return seconds

        if self.estimate is None:
            seconds, calls = rounds.estimated(cost, self._tried(), self._calls, rounds.TARGET[self.kind])
            self.estimate = Estimate(seconds, calls, self.draws)
        self.seconds, self.draws = self.estimate.seconds, self.estimate.draws
        self._look()
        self._slots(("reference",), self.estimate.calls)
        self._first("reference")

    def _room_for_fresh(self) -> bool:
        """Whether there is memory for inputs of one window, and of the calls that are judged, beside the pool."""
        free = torch.cuda.mem_get_info(self.device)[0] if self.kind == "cuda" else available_memory()
        return self.pools.bytes <= LARGE and 2 * (POOLED_CALLS + FRESH_HELD * self.pools.bytes) <= free

    def _look(self) -> None:
        """See whether a window of the reference's had an output of another shape."""
        bench = self.benches["reference"]
        if bench.misfit_call is not None and self.steady:
            self.steady = False
            recipe, seed = bench.misfit_call
            others = [(self.pools.recipe(), seeds_of(1, True)[0], "") for _ in range(UNTIMED - 1)]
            self.unfit = Misfit("reference", bench.misfit, [(recipe, seed, ""), *others])

    @staticmethod
    def _shapes(output: list[tuple[str, Any]]) -> list[Any]:
        return [(path, (t.shape, t.dtype) if isinstance(t, Tensor) else type(t)) for path, t in output]

    def _try_mixed(self, seed: int) -> None:
        """Leave integers, and what has structure, as get_inputs makes them where the reference fails on others, or answers NaN
        or Inf."""
        while self.pools.kinds or self.pools.blended:
            if all(self._takes(self.pools.recipe(), seed) for _ in range(TRIED)):
                return
            # First without others for what is the same each time, which may belong together.
            if not self.pools.keep_constants():
                self.pools.leave_structure()
                return

    def _takes(self, recipe: Recipe, seed: int) -> bool:
        """Whether the reference has a finite answer for these data."""
        self._give(recipe)
        try:
            output = self.eager.ask("forward", seed=seed, guarded=True).value
        except Failure as error:
            if error.kind != "raised":
                raise
            return False
        return all(finite(t) for _, t in leaves(output) if isinstance(t, Tensor))

    def _give(self, recipe: Recipe) -> None:
        """Make a recipe's data the inputs of the reference as it says what is right."""
        if self.baseline != "eager" and "eager" not in self.benches:
            self.benches["eager"] = self._on_eager(1)
        name = "eager" if "eager" in self.benches else "reference"
        if not self.benches[name].current:  # another stage has made slots in that process since
            before = self.benches.pop(name)
            before.close()
            self.benches[name] = self._on_eager(before.count)
        self.benches[name].give(recipe)

    def _on_eager(self, count: int) -> Bench:
        return Bench(self.eager, self.pools, self.output, count, self.device, names=self.names)

    def recall_alone(self) -> bool:
        """Take what the reference took by itself from an earlier verification of it, where that was a moment ago. It was before
        the candidate, too; if the machine has become slower since, that shows as a candidate which slows it down does, and is
        told apart as of that (`alone_again`)."""
        found = self.estimate
        if found is None or found.alone is None or time.monotonic() - found.timed_at > RECENT:
            return False
        self.alone = found.alone
        return True

    def time_alone(self, keep: bool = True) -> None:
        """What the reference takes by itself, before a candidate is there; `keep` it for the next verification of it. Raises
        Failure."""
        self.alone = self.alone_again()
        if keep and self.estimate is not None:
            self.estimate = replace(self.estimate, alone=self.alone, timed_at=time.monotonic())
        self._look()

    def alone_again(self) -> float:
        """What it takes by itself now, as after the candidate's processes have ended: the seconds of a call. Raises Failure."""
        with _one_thread(), _memory_for("reference"):
            return rounds.alone(self.benches["reference"], self.pools, self.calls, self.draws)

    def start_others(self) -> None:
        """Start the control, a second process of the reference, and the null worker, without waiting for them."""
        for role in ("control", "null"):
            self.workers[role] = self.start(role)

    def _load(self, name: str) -> None:
        """Make another process's model as the reference's was made, and run it as the baseline says."""
        worker = self.workers[name]
        worker.ask("load", path=str(self.script), class_name="Model")
        worker.ask("construct", seed=self.seed)
        worker.ask("keep_state", names=self.state)
        if self.baseline != "eager":
            worker.ask("baseline", how=self.baseline)

    @property
    def call_bytes(self) -> int:
        """Of one call's inputs and outputs; 0 while they are not known."""
        return self._slot if hasattr(self, "pools") else 0

    @property
    def _slot(self) -> int:
        return self.pools.bytes + sum(t.nbytes for _, t in self.output if isinstance(t, Tensor))

    def _tried(self) -> int:
        """Slots to find out in what a call costs: one where it is large, which a window's own work takes little beside."""
        return 4 if 4 * self._slot <= self._most_bytes() else 1

    def _most_bytes(self) -> int:
        """Of a window's slots: on a card 8 GiB, or a sixteenth of what is free there; POOLED_CALLS on a CPU."""
        return min(8 << 30, torch.cuda.mem_get_info(self.device)[0] // 16) if self.kind == "cuda" else POOLED_CALLS

    def _calls(self, seconds: float) -> int:
        cache = torch.cuda.get_device_properties(self.device).L2_cache_size if self.kind == "cuda" else CACHE
        return rounds.calls_of_a_window(seconds, self._slot, cache, self._most_bytes(), self.kind)

    def _slots(self, names: tuple[str, ...], calls: int) -> None:
        """Benches of `calls` slots for the workers of these names: those that there are, or new ones."""
        self.calls = calls
        for name in names:
            if name in self.benches and self.benches[name].count == calls and self.benches[name].current:
                continue
            if name in self.benches:
                self.benches.pop(name).close()
            self.benches[name] = Bench(
                self.workers[name], self.pools, self.output, calls, self.device, names=self.names
            )

    def measure(
        self,
        candidate: WorkerProcess,
        budget: float,
        keep: int,
        timeout: float,
        probes: Mapping[str, Any],
        further: bool = False,
    ) -> Timing:
        """Time both sides, for about `budget` seconds; `keep` outputs at random are kept. `timeout`: of a window. `probes`: data
        of probes, by their names, that windows which do not count hold as well. `further`: `again` may follow.

        Raises Failure, and Misfit for an output that a timed call may not give.
        """
        self.workers["candidate"] = candidate
        self._load("control")
        with _one_thread(), _memory_for("candidate"):
            self._slots(("candidate",), self._tried())
            slower = max(self.seconds, self._candidates_cost())
            calls = self.benches["reference"].count
            if slower * calls > rounds.MOST:
                calls = max(1 if slower > rounds.LONG else 2, min(calls, int(rounds.MOST / slower)))
            self._slots(rounds.SIDES, calls)
            self.benches["candidate"].timeout = self.timeout = timeout
            for name in rounds.SIDES:
                self._first(name)
            self.keep, self.probes = keep, {name: self.pools.add(inputs) for name, inputs in probes.items()}
            return rounds.measure(
                self._rounds(rounds.SIDES, keep),
                self.kind,
                self.alone,
                budget,
                self.progress,
                further and self.renewable,
            )

    def _rounds(self, names: Sequence[str], keep: int) -> rounds.Rounds:
        benches = {name: self.benches[name] for name in names}
        paused = self.workers["candidate"].paused
        return rounds.Rounds(
            benches, self.pools, self.calls, self.draws, keep, paused, self.probes, state=self.state_bytes
        )

    @property
    def renewable(self) -> bool:
        """Whether `renew` is worth its time: torch.compile would take long, twice."""
        return self.kind in repeated.DEVICES and self.baseline != "compile"

    def renew(self, candidate: Callable[[], WorkerProcess], load: Callable[[WorkerProcess], None]) -> None:
        """Fresh processes of the reference, the control and the candidate in place of those that there are, all in random order,
        so that neither side has a place of its own. The process that says what is right stays, and is timed no more.
        `candidate` starts the candidate's, `load` makes its model. Raises Failure, NoStart and OSError."""
        if self.workers["reference"] is self.eager and "eager" not in self.benches:
            self.benches["eager"] = self.benches.pop("reference")
            self.benches["eager"].leave_outputs()
        for name in several.SIDES:
            if (bench := self.benches.pop(name, None)) is not None:
                bench.close()
            if self.workers[name] is not self.eager:
                self.workers[name].close()
        role = "control" if self.baseline == "eager" else "baseline"
        order = list(several.SIDES)
        random.SystemRandom().shuffle(order)
        for name in order:
            self.workers[name] = candidate() if name == "candidate" else self.start(role)
        with _one_thread(), _memory_for("candidate"):
            for name in order:
                if name == "candidate":
                    load(self.workers[name])
                else:
                    self._load(name)
                self._slots((name,), self.calls)
                self.benches[name].timeout = repeated.WITHIN
                for _ in range(WARM):
                    self._first(name, again=True)
                self.benches[name].timeout = self.timeout if name == "candidate" else None

    def again(self, repetition: repeated.Repetition, count: int) -> list[Kept]:
        """Time so many rounds of the processes that `renew` has made; what is kept of the candidate's outputs, fewer than of the
        first processes. Raises as `measure`."""
        with _one_thread(), _memory_for("candidate"):
            made = self._rounds(several.SIDES, min(self.keep, 1))
            repetition.time(made, count)
            return made.keeper.kept()

    def one_call(self, claimed: Timing) -> tuple[Timing, list[Kept]]:
        """Hold FASTER to windows of one call, of the processes that were timed last; and what is kept of the candidate's outputs.
        Raises as `measure`."""
        with _one_thread(), _memory_for("candidate"):
            self._slots(rounds.SIDES, 1)
            self.benches["candidate"].timeout = self.timeout
            for name in rounds.SIDES:
                self._first(name)
            seconds = claimed.sides["reference"].call
            benches = {name: self.benches[name] for name in rounds.SIDES}
            paused = self.workers["candidate"].paused
            made = rounds.Rounds(
                benches,
                self.pools,
                1,
                self.draws,
                min(self.keep, 1),
                paused,
                self.probes,
                warm=seconds < one_call.BRIEF,
                state=self.state_bytes,
            )
            claim = one_call.Claim(seconds, claimed.ratio, claimed.low)
            found = rounds.measure_one_call(made, claim, self.kind, self.progress)
            return rounds.borne_out(claimed, found, made.quiet), made.keeper.kept()

    def _candidates_cost(self) -> float:
        return rounds.cost(self.benches["candidate"], self.pools)[0]

    def _first(self, name: str, again: bool = False) -> None:
        """A window that does not count, in which memory is touched for the first time. None where one has been made, unless
        `again`."""
        if again or not self.benches[name].used:
            self.benches[name].window([self.pools.recipe() for _ in range(self.calls)])

    def reference_output(self, recipe: Recipe, seed: int) -> Any:
        """What the reference answers now for the data of a timed call, which become its inputs."""
        with _memory_for("candidate"):
            self._give(recipe)
        return self.eager.ask("forward", seed=seed).value

    def give_candidate(self, recipe: Recipe) -> None:
        """Make the data of a timed call the candidate's inputs."""
        with _memory_for("candidate"):
            if "candidate" not in self.benches:
                self.benches["candidate"] = Bench(
                    self.workers["candidate"], self.pools, self.output, 1, self.device, names=self.names
                )
            self.benches["candidate"].give(recipe)

    def fits(self, output: Any) -> bool:
        """Whether an output of the reference's would fit into a slot."""
        return self._shapes(leaves(output)) == self._shapes(self.output)

    def close(self) -> None:
        for bench in self.benches.values():
            bench.close()
        self.benches = {}
        self.__dict__.pop("pools", None)  # on a card they may be gigabytes
        settling.forget(self.device)


def available_memory() -> int:
    """Bytes that processes may still take here, a container's limit included."""
    free = int(psutil.virtual_memory().available)
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
    return max(free, 0)


def check_memory(inputs: int, outputs: int, free: int) -> None:
    """Raise Failure where a verification with so many bytes of inputs and outputs needs more memory than is `free`."""
    needed = INPUTS_HELD * inputs + OUTPUTS_HELD * outputs
    if needed > max(free, SURELY):
        parts = f"{inputs / 2**30:.1f} GiB of inputs and {outputs / 2**30:.1f} GiB of outputs"
        raise Failure(
            "memory",
            f"{parts} take about {needed / 2**30:.0f} GiB of the host's memory to verify, and {free / 2**30:.0f} GiB are "
            "free: smaller shapes show the same",
            role="reference",
        )


def check_card(inputs: int, outputs: int, free: int) -> None:
    """The same of a card, for the bytes of those inputs and outputs that stay there."""
    needed = ON_A_CARD[0] * inputs + ON_A_CARD[1] * outputs
    if needed > free:
        parts = f"{inputs / 2**30:.1f} GiB of inputs and {outputs / 2**30:.1f} GiB of outputs"
        raise Failure(
            "memory",
            f"{parts} on the card take about {needed / 2**30:.0f} GiB of its memory to verify, and {free / 2**30:.0f} GiB are "
            "free: smaller shapes show the same",
            {"on_card": True},
            role="reference",
        )


def _bytes(tree: Any, device: str) -> int:
    """Of the tensors of a tree that this process has on a device."""
    return sum(t.nbytes for _, t in leaves(tree) if isinstance(t, Tensor) and t.device.type == device)


def _described(leaf: Any) -> Any:
    """A leaf of an output with the same shape, strides and type, and no data."""
    if not isinstance(leaf, Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")


@contextlib.contextmanager
def _memory_for(role: str) -> Iterator[None]:
    """Names the process on whose account this one lacks memory: whose it is that was started last."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        on_card = isinstance(error, RuntimeError) and torch.cuda.is_available()  # the driver's, or torch's
        where = " on the card" if on_card else ""
        said = f"no memory is left{where} for timed windows ({error})"
        raise Failure("memory", said, {"on_card": on_card}, role) from None


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """This process copies with one thread meanwhile: others would still spin when the worker needs their cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
