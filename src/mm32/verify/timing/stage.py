"""The timing stage of a verification: which processes are timed on which data, and the reference's answers to judge outputs by.

The reference is timed before the candidate's script is loaded, so that a candidate that slows it down is noticed.
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

import torch
from torch import Tensor

from ..exchange import handover
from ..exchange.wire import bytes_of, leaves, state_payload
from ..inputs.pools import Pools, Recipe
from ..judging.pieces import finite
from ..processes.channel import Failure
from ..processes.process import WorkerProcess
from . import needed_memory, one_call, repeated, rounds, settling, several
from .fresh import Fresh, states
from .kept_outputs import UNTIMED, Kept, Misfit, seeds_of
from .needed_memory import bytes_on, memory_for
from .rounds import Timing
from .window import Bench

ENTRIES = 3  # results of get_inputs in a pool; 2 where they are large, three times as many where inputs hold integers
LARGE = 256 << 20  # bytes of one result, above which no fresh ones are made: calls get mixtures of those in the pool
LARGE_STATE = 64 << 20  # bytes of buffers that forward changes, above which no call has a state of its own
FRESH_HELD = 8  # the most copies of a call's inputs that fresh inputs take, besides a window's
TRIED = 2  # calls with mixed integers and structures that the reference has to answer before such data are used
POOLED_CALLS = 64 << 20  # the most bytes of a window's slots on a CPU
BASELINES = ("eager", "compile", "tf32")  # how the reference is run where it is timed
WARM = 2  # the first windows of a fresh process, which do not count
CACHE = 2 << 20  # the most bytes of a CPU's caches that a window's data have to exceed
RECENT = 30.0  # seconds within which a reference timed by itself in the same batch is not timed so again


@dataclass(frozen=True)
class Estimate:
    """What is known of a reference's calls.

    `seconds`: of a call; `calls`: how many a window should have; `draws`: whether they draw random numbers; `alone`: seconds of a
    call by whole windows when the reference was last timed by itself; `timed_at`: the clock's time then."""

    seconds: float
    calls: int
    draws: bool
    alone: float | None = None
    timed_at: float = 0.0


class TimingStage:
    """Times a candidate against a reference.

    Call `prepare` before the candidate's script is loaded, `start_others` when timing is near, then `measure`. `start` starts a
    worker of the role that it is given. `baseline`, a name of BASELINES, says how the reference is run where it is timed; the
    eager reference still says what is right. `estimate`: what an earlier stage of the same reference has found out."""

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
        self.steady = True  # whether outputs have the same shapes for all data; slots can take no others
        self.unfit: Misfit | None = None  # an output that shows that they do not

    def prepare(self) -> None:
        """Make the pools, and find how many calls a window has. Raises Failure."""
        self.progress("timing the reference alone")
        reference = self.eager
        # Not derived from the trials' seeds: the candidate's process is told those, and could make the pool's data itself.
        first = secrets.randbelow(2**31)
        reply = reference.ask("make_inputs", seed=first)
        made, self.names = [reply.value], reply.header.get("names")
        output = reference.ask("forward", seed=first).value
        self.state = reference.ask("keep_changed_state").header["buffers"]
        # the most bytes in which a candidate's buffers may arrive; None where calls change no buffers
        left = reference.ask("get_state").value if self.state else {}
        self.state_bytes = state_payload(left) if left else None
        # A state that has no place in a slot (sparse tensors, say) or is large is the usual one in every timed call.
        plain = all(isinstance(t, Tensor) and t.layout is torch.strided for t in left.values())
        slotted = left if plain and bytes_of(left) <= LARGE_STATE else {}
        self.output = [(path, _described(leaf)) for path, leaf in leaves(output)]
        needed_memory.check_host(bytes_on(made[0], "cpu"), bytes_on(output, "cpu"), needed_memory.available())
        if self.kind == "cuda":
            handover.free(self.device)
            free = torch.cuda.mem_get_info(self.device)[0]
            needed_memory.check_card(bytes_on(made[0], "cuda"), bytes_on(output, "cuda"), free)
        del output
        size = bytes_on(made[0], "cpu") + bytes_on(made[0], "cuda")
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
            with memory_for("reference"):
                self.pools = Pools(made, self.device, slotted)
        except ValueError as error:
            raise Failure("raised", str(error), {"type": "ValueError", "built": 0}, role="reference") from None
        fresh = Fresh(reference, self.pools, each) if self._room_for_fresh() else None
        self.pools.fresh = fresh
        self.pools.left = partial(states, reference, each)
        if self.baseline != "eager":
            self.workers["reference"] = self.start("baseline")
            self._load("reference")
        with _one_thread(), memory_for("reference"):
            self._slots(("reference",), self._tried())
            self._try_mixed(first)
            self._estimate()
            if fresh is not None:
                fresh.call = self.seconds
            self._look()

    def _estimate(self) -> None:
        """Find out how long a call of the reference takes, and how many calls a window has."""

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
        """Return whether there is memory, besides the pool, for fresh inputs of one window and of the calls that are judged."""
        free = torch.cuda.mem_get_info(self.device)[0] if self.kind == "cuda" else needed_memory.available()
        return self.pools.bytes <= LARGE and 2 * (POOLED_CALLS + FRESH_HELD * self.pools.bytes) <= free

    def _look(self) -> None:
        """Note whether a window of the reference had an output of another shape."""
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
        """Leave integers and structured tensors as get_inputs makes them where the reference fails on mixed ones, or answers NaN
        or Inf."""
        while self.pools.kinds or self.pools.blended:
            if all(self._takes(self.pools.recipe(), seed) for _ in range(TRIED)):
                return
            # First give up only the variants of tensors that are the same each time, which may belong together.
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
        """Make a recipe's data the inputs of the eager reference, which says what is right."""
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
        """Take the reference's time by itself from an earlier verification, if that was within RECENT. Return whether it was.

        That was before the candidate, too. If the machine has become slower since, it looks like a candidate that slows the
        reference down, and is told apart in the same way (`alone_again`)."""
        found = self.estimate
        if found is None or found.alone is None or time.monotonic() - found.timed_at > RECENT:
            return False
        self.alone = found.alone
        return True

    def time_alone(self, keep: bool = True) -> None:
        """Time the reference by itself, before a candidate is there. Raises Failure.

        `keep`: whether the time is kept for the next verification of this reference."""
        self.alone = self.alone_again()
        if keep and self.estimate is not None:
            self.estimate = replace(self.estimate, alone=self.alone, timed_at=time.monotonic())
        self._look()

    def alone_again(self) -> float:
        """Return the seconds of a call that the reference takes by itself now. Raises Failure.

        It is called again after the candidate's processes have ended."""
        with _one_thread(), memory_for("reference"):
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
        """Bytes of one call's inputs and outputs; 0 while they are not known."""
        return self._slot if hasattr(self, "pools") else 0

    @property
    def _slot(self) -> int:
        return self.pools.bytes + sum(t.nbytes for _, t in self.output if isinstance(t, Tensor))

    def _tried(self) -> int:
        """Return the number of slots for finding out what a call costs.

        It is one where a slot is large: a window's own work is then small beside the call."""
        return 4 if 4 * self._slot <= self._most_bytes() else 1

    def _most_bytes(self) -> int:
        """Return the most bytes of a window's slots: on a card 8 GiB or a sixteenth of what is free, on a CPU POOLED_CALLS."""
        return min(8 << 30, torch.cuda.mem_get_info(self.device)[0] // 16) if self.kind == "cuda" else POOLED_CALLS

    def _calls(self, seconds: float) -> int:
        cache = torch.cuda.get_device_properties(self.device).L2_cache_size if self.kind == "cuda" else CACHE
        return rounds.calls_of_a_window(seconds, self._slot, cache, self._most_bytes(), self.kind)

    def _slots(self, names: tuple[str, ...], calls: int) -> None:
        """Give the workers of these names benches of `calls` slots: those that they have, or new ones."""
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
        """Time both sides for about `budget` seconds.

        `keep`: how many outputs are kept at random. `timeout`: of a window. `probes`: data of probes, by their names, for windows
        that do not count. `further`: whether `again` may follow. Raises Failure, and Misfit for an output that a timed call may
        not give.
        """
        self.workers["candidate"] = candidate
        self._load("control")
        with _one_thread(), memory_for("candidate"):
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
        """Whether `renew` is worth its time: with the baseline "compile", torch.compile would take long, twice."""
        return self.kind in repeated.DEVICES and self.baseline != "compile"

    def renew(self, candidate: Callable[[], WorkerProcess], load: Callable[[WorkerProcess], None]) -> None:
        """Replace the processes of the reference, the control and the candidate by fresh ones.

        They start in random order, so that neither side has a fixed place in it. The process that says what is right stays, but
        is no longer timed. `candidate` starts the candidate's process, `load` makes its model. Raises Failure, NoStart and
        OSError."""
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
        with _one_thread(), memory_for("candidate"):
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
        """Time `count` rounds of the processes that `renew` has made. Raises what `measure` raises.

        Returns the candidate's outputs that are kept, fewer than of the first processes."""
        with _one_thread(), memory_for("candidate"):
            made = self._rounds(several.SIDES, min(self.keep, 1))
            repetition.time(made, count)
            return made.keeper.kept()

    def one_call(self, claimed: Timing) -> tuple[Timing, list[Kept]]:
        """Check FASTER by windows of one call, of the processes that were timed last. Raises what `measure` raises.

        Returns the timing with the verdict then, and the candidate's outputs that are kept."""
        with _one_thread(), memory_for("candidate"):
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
        """Run a window that does not count, in which memory is touched for the first time.

        Do nothing where a window has been run already, unless `again`."""
        if again or not self.benches[name].used:
            self.benches[name].window([self.pools.recipe() for _ in range(self.calls)])

    def reference_output(self, recipe: Recipe, seed: int) -> Any:
        """Return what the reference answers now for the data of a timed call, which become its inputs."""
        with memory_for("candidate"):
            self._give(recipe)
        return self.eager.ask("forward", seed=seed).value

    def give_candidate(self, recipe: Recipe) -> None:
        """Make the data of a timed call the candidate's inputs."""
        with memory_for("candidate"):
            if "candidate" not in self.benches:
                self.benches["candidate"] = Bench(
                    self.workers["candidate"], self.pools, self.output, 1, self.device, names=self.names
                )
            self.benches["candidate"].give(recipe)

    def fits(self, output: Any) -> bool:
        """Return whether an output would fit into a slot."""
        return self._shapes(leaves(output)) == self._shapes(self.output)

    def close(self) -> None:
        for bench in self.benches.values():
            bench.close()
        self.benches = {}
        self.__dict__.pop("pools", None)  # on a card they may be gigabytes
        settling.forget(self.device)


def _described(leaf: Any) -> Any:
    """Return a tensor with the shape, strides and type of an output's leaf but no data; any other leaf as it is."""
    if not isinstance(leaf, Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Let this process copy with one thread meanwhile: others would still spin when the worker needs their cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
