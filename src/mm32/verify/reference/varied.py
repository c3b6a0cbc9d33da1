"""Other data for the reference, made from its own: what variations and probes put into its inputs and parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .. import text
from ..exchange import wire
from ..inputs import catalogue, contents, isolating, probes, redrawn, regrouped, states, variations
from ..inputs.catalogue import Variation
from ..judging.draws import ORDERED, Watch
from ..judging.places import GUARDED, Guard
from ..worker import plain
from ..worker.runner import Answer, Request
from .traits import ALL_BY_NAME, DIVIDES, Traits

if TYPE_CHECKING:
    from .runner import ReferenceRunner

NEAR_AN_END = 1 / 16
EXPLODED = 1e9
KEPT_BESIDE = 64 << 20  # the most bytes of inputs that are kept as they were beside the varied ones
# How a variation changes the model's floating-point parameters and buffers, by its name.
CHANGES: dict[str, Callable[[torch.nn.Module, torch.Generator], list[str] | None]] = {
    "parameters": states.perturb,
    "parameters of one sign": partial(states.perturb, signs=False),
    "large parameters": states.enlarge,
    "parameters times 4": partial(states.enlarge, by=4.0),
    "parameters times 2": partial(states.enlarge, by=2.0),
    "small parameters": partial(states.enlarge, by=2.0**-10),
    "low biases": states.lower_biases,
    "rare rows of parameters": states.rare_rows,
    "rare entries of parameters": states.rare_entries,
    "large scales": states.enlarge_scales,
    "negative parameters": states.negate,
    "single parameters": states.move_apart,
    "single parameters turned": partial(states.move_apart, turned=True),
    "single parameters times 4": partial(states.move_apart, by=4.0),
    "single parameters turned times 4": partial(states.move_apart, by=4.0, turned=True),
}
CHANGES |= {f"{data} with other parameters": states.perturb for data in catalogue.COMBINED}
CHANGES |= {f"{data} with parameters of one sign": partial(states.perturb, signs=False) for data in catalogue.COMBINED}
# Variations of tables that the model looks up by integers, and the change of floating-point inputs that the tables get.
TABLES = {"offset tables": "offset", "planted tables": "planted"}


class Varied:
    """Varies the inputs and parameters of a runner's model."""

    def __init__(self, runner: ReferenceRunner):
        self.runner = runner
        self.traits = Traits(runner)
        self.draws_integers = True  # whether get_inputs draws integers, as far as is known

    def vary(self, request: Request) -> Answer:
        """Fill the inputs with other data made from them, or change the parameters, by the variation "name" with "seed". Return
        both, or "why_not", which is empty if the model has nothing that this variation could show, and "short" if the card has
        no memory left for it."""
        return self.runner.with_memory(partial(self._vary, request))

    def _vary(self, request: Request) -> Answer:
        runner = self.runner
        assert runner.model is not None
        name, seed = request["name"], request["seed"]
        variation = ALL_BY_NAME.get(name)
        why_not = self.traits.unsuited(name, variation, request["entries"])
        if why_not is not None:
            return {"why_not": why_not}
        generator = torch.Generator(device=runner.device).manual_seed(seed)
        leaves, spec = pytree.tree_flatten(runner.inputs)
        own: list[Any] = []  # the inputs before the variation: `place` writes to the present ones
        if sum(t.nbytes for t in leaves if isinstance(t, Tensor)) <= KEPT_BESIDE:
            own = [t.clone() if isinstance(t, Tensor) else t for t in leaves]
        odd = variation is not None and variation.odd
        filled: list[Any] = []
        infinite = False  # whether the answer may be
        unvaried: list[str] = []
        turned: dict[str, Tensor] = {}
        try:
            data = variation.data if variation is not None and variation.state else name
            if data:
                filled = self._filled(data, ALL_BY_NAME.get(data), leaves, generator, request)
                infinite = _only_integers(leaves, filled) and not runner.operators() & DIVIDES
            if variation is not None and variation.state:
                turned = self._change_state(variation, generator, seed, unvaried, request.get("keep") or [])
            if data:
                runner.place(pytree.tree_unflatten(filled, spec))
        except contents.CannotVary as error:
            return {"why_not": str(error), "unvaried": unvaried}
        # The probabilities of large scores underflow to equal numbers in fp32, but not in float64.
        ties = bool(runner.operators() & ORDERED) and self.traits.is_steep() and not odd
        watch = Watch(name == "an Inf" and bool(request.get("integers")), ties)
        with watch if odd or ties else contextlib.nullcontext():
            why_not = self._fails(seed, odd, infinite)
        if not why_not and data and not odd and not infinite and not (variation is not None and variation.larger):
            why_not = self._explodes(own, request.get("largest") or 0.0)
        if not why_not and name == "impossible" and self._has_nan(seed):
            return {"why_not": "the reference makes NaN of it"}
        if not why_not and watch.cast:
            return {"why_not": "the reference makes integers of NaN or Inf: which ones, means nothing"}
        if not why_not and watch.found:
            return {"why_not": "the reference makes NaN of it, and integers of that: which ones, means nothing"}
        if why_not and own and filled and self._vary_some(own, filled, spec, seed, odd, request.get("largest") or 0.0):
            why_not = ""
        if why_not:
            return {"why_not": why_not}
        made: Answer = {"inputs": runner.inputs, "state": dict(runner.model.state_dict()), "plain": turned}
        runner.usual = (own, spec) if odd else ([], None)
        return {"value": made, "unvaried": unvaried, "tied": watch.tied, "factors": self.traits.may_fail()}

    def _filled(
        self,
        name: str,
        variation: Variation | None,
        leaves: list[Any],
        generator: torch.Generator,
        request: Request,
    ) -> list[Any]:
        """Return other inputs in place of these `leaves`. Raises CannotVary."""
        runner = self.runner
        recorder = runner.recorder
        limited: dict[int, str] = {}
        if recorder is not None and (variation is None or variation.may_leave_unit_range):
            limited = recorder.limited
        hiding: set[int] = set()
        if name.startswith("fractions") and recorder is not None and isolating.exponential(recorder.names):
            hiding = recorder.hiding
        if variation is not None and variation.isolating:
            filled = self._isolated(name, leaves, generator)
        elif name in ("near one", "near zero"):
            filled = variations.near(leaves, generator, name == "near one", max(runner.lengths, default=0))
        elif name == "edges":
            filled = variations.on_edges(leaves, generator, self.traits.edges(leaves))
        elif name == "aligned":
            filled = variations.aligned(leaves, generator, self.traits.weights(leaves))
        elif name == "ends":
            filled = variations.on_ends(
                leaves, generator, {*(recorder.limited if recorder else ()), *_of_fractions(leaves)}
            )
        elif name == "another draw":
            other = pytree.tree_leaves(runner.script_inputs(request["seed"])) if variations.alike(leaves) else []
            filled = variations.of_another_draw(leaves, other, generator)
        elif name in redrawn.NAMES:
            filled = self._redrawn(name, leaves, request["seed"])
        elif name in ("other integers", "integers in other places"):
            exchange = name == "integers in other places"
            filled = regrouped.replaced(leaves, generator, exchange, request["steady"])
        else:
            wide = name == "wide integers" and not runner.products
            of = "wide sums" if wide else name
            filled = variations.fill(of, leaves, generator, not self.traits.takes_apart(), request["entries"] == 1)
        filled = _kept_within(filled, leaves, limited, hiding)
        if name == "ones and zeros" and not self.traits.may_rise(1):
            filled = [old if _all_zero(old) else new for old, new in zip(leaves, filled, strict=True)]
        return filled

    def _redrawn(self, name: str, leaves: list[Any], seed: int) -> list[Any]:
        """Return what get_inputs makes if it draws other integers of the same ranges. Raises CannotVary, with nothing to report
        if it draws none."""
        runner = self.runner
        choose = redrawn.choice(name, self.traits.numbers(), seed) if self.draws_integers else None
        if choose is None:
            raise contents.CannotVary("")
        for fractions in (False, True):
            with redrawn.Redraw(choose, seed, fractions) as redraw:
                try:
                    filled = pytree.tree_leaves(runner.script_inputs(seed))
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:
                    raise contents.CannotVary(
                        text.one_line(f"get_inputs fails with other integers of its ranges: {error}", 160)
                    ) from error
            if not (redraw.cast and name in redrawn.OF_ANY_RANGE):
                break
        self.draws_integers = redraw.drawn > 0
        if not redraw.changed or [contents.kind(new) for new in filled] != [contents.kind(old) for old in leaves]:
            raise contents.CannotVary("")
        return filled

    def _change_state(
        self, variation: Variation, generator: torch.Generator, seed: int, unvaried: list[str], keep: list[str]
    ) -> dict[str, Tensor]:
        """Change the model's parameters and buffers, or its plain tensors, and return the changed plain tensors. Those that had
        to stay as they are go into `unvaried`; the buffers `keep`, which the candidate does not have, stay so as well. Raises
        CannotVary."""
        runner = self.runner
        assert runner.model is not None
        turned: dict[str, Tensor] = {}
        runner.keep_parameters()
        state = runner.model.state_dict()
        constants = {name: state[name].clone() for name in keep if name in state}
        if variation.name == "integer buffers":
            self._exchange(generator, seed, unvaried)
        elif variation.name in TABLES:
            inputs = pytree.tree_leaves(runner.inputs) if self.traits.lookups() else []
            some = [t for t in inputs if isinstance(t, Tensor) and t.dtype in contents.WIDEST and t.numel()]
            largest = {int(t.max()) for t in some}
            states.vary_tables(runner.model, generator, largest, TABLES[variation.name])
        elif variation.name == "plain tensors":
            runner.own_tensors = {}  # the copy does not hold the plain tensors that are changed here
            turned = states.turn(plain.tensors(runner.model), generator, unvaried)
        else:
            change = isolating.thin if variation.isolating else CHANGES[variation.name]
            unvaried += change(runner.model, generator) or []
        for name, value in constants.items():
            state[name].copy_(value)
            unvaried[:] = [said for said in unvaried if not said.startswith(f"buffer {name!r} ")]
        runner.ready = None
        runner.keep_state(list(runner.kept_state))
        return turned

    def probe(self, request: Request) -> Answer:
        """Fill inputs and parameters with the data of the probe "name", and return both, or "why_not" as `vary` does."""
        return self.runner.with_memory(partial(self._probe, request))

    def _probe(self, request: Request) -> Answer:
        runner = self.runner
        contraction, values = runner.traced()
        assert runner.model is not None
        try:
            filled = probes.fill(probes.BY_NAME[request["name"]], contraction, values, request["seed"])
        except probes.CannotProbe as error:
            return {"why_not": str(error)}
        count = len(values) - len(pytree.tree_leaves(runner.inputs))
        for parameter, new in zip(values[:count], filled[:count], strict=True):
            parameter.detach().copy_(new)
        spec = pytree.tree_flatten(runner.inputs)[1]
        runner.place(pytree.tree_unflatten(filled[count:], spec))
        runner.free_memory()
        return {"value": {"inputs": runner.inputs, "state": dict(runner.model.state_dict())}}

    def _exchange(self, generator: torch.Generator, seed: int, unvaried: list[str]) -> None:
        """Change buffers of integers and booleans. Those that had to stay go into `unvaried`. Raises CannotVary."""
        runner = self.runner
        assert runner.model is not None

        def fails() -> bool:
            runner.ready = None
            runner.keep_state(list(runner.kept_state))
            return bool(self._fails(seed, odd=False))

        safe = self.traits.may_rise(states.SMALL)
        states.exchange(runner.model, generator, runner.changing, fails, unvaried, safe)

    def _vary_some(self, own: list[Any], filled: list[Any], spec: Any, seed: int, odd: bool, usual: float) -> bool:
        """Change only those inputs for which the reference has an answer when each is changed alone, and return whether there are
        any. So one input under a root does not keep the others from being negative."""
        runner = self.runner
        changed = [i for i, (old, new) in enumerate(zip(own, filled, strict=True)) if not _same(old, new)]
        if len(changed) < 2:
            return False

        def fails(some: list[int]) -> bool:
            runner.place(pytree.tree_unflatten([filled[i] if i in some else t for i, t in enumerate(own)], spec))
            return bool(self._fails(seed, odd) or (not odd and self._explodes(own, usual)))

        some = [i for i in changed if not fails([i])]
        return bool(some) and len(some) < len(changed) and not fails(some)

    def _explodes(self, own: list[Any], usual: float) -> str:
        """Say if the reference's answer for its present inputs, which `_fails` has kept, is far larger than its `usual` one,
        though the inputs are not: rounding, and the order of sums, then decide what it is. `own`: the usual inputs."""
        assert self.runner.ready is not None
        if not (usual > 0 and own):
            return ""
        before, now = (max(1.0, contents.largest(own)), contents.largest(pytree.tree_leaves(self.runner.inputs)))
        answer = contents.largest([t for _, t in wire.leaves(self.runner.ready[1].get("value"))])
        return catalogue.EXPLODES if answer > EXPLODED * max(1.0, usual) * max(1.0, now / before) ** 2 else ""

    def _has_nan(self, seed: int) -> bool:
        """Return whether the reference's answer for its present inputs, which `_fails` has kept, has a NaN."""
        assert self.runner.ready is not None
        assert self.runner.ready[0] == seed
        found = (t for _, t in wire.leaves(self.runner.ready[1].get("value")) if isinstance(t, Tensor))
        return any(t.is_floating_point() and bool(t.isnan().any()) for t in found)

    def _fails(self, seed: int, odd: bool, infinite: bool = False) -> str:
        """Say why the reference has no answer for its present inputs; empty if it has one. `odd`: it may be NaN or infinite.
        `infinite`: it may be -Inf."""
        runner = self.runner
        guard = Guard() if runner.device.type == "cuda" and runner.operators() & GUARDED else contextlib.nullcontext()
        try:
            with guard:
                answer = runner.forward({"seed": seed})
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a failure on a GPU is reported once it is synchronised
            return text.one_line(f"the reference fails on it: {error}", 160)
        finally:
            runner.restore_state()
        tensors = [t for _, t in wire.leaves(answer.get("value")) if isinstance(t, Tensor) and t.is_floating_point()]
        fine = odd or not any(bool((~t.isfinite() & ~(t.isneginf() & infinite)).any()) for t in tensors)
        runner.ready = (seed, answer) if fine else None
        return "" if fine else catalogue.NOT_FINITE

    def _isolated(self, name: str, leaves: list[Any], generator: torch.Generator) -> list[Any]:
        runner = self.runner
        operators = runner.recorder.names if runner.recorder is not None else set()
        spec = pytree.tree_flatten(runner.inputs)[1]
        try:
            return isolating.fill(
                name,
                leaves,
                generator,
                runner.lengths,
                isolating.exponential(operators),
                lambda: isolating.slopes(lambda flat: runner.call(pytree.tree_unflatten(flat, spec)), leaves),
            )
        finally:
            runner.restore_state()


def _same(a: Any, b: Any) -> bool:
    """Return whether an input was left as it is. One with NaN was not: the NaN was put there."""
    return a is b or not isinstance(a, Tensor) or bool(torch.equal(a, b))


def _of_fractions(values: list[Any]) -> list[int]:
    """Return the inputs of numbers from 0 to 1 that reach both ends, as uniform ones do: such an input may hold 0 and 1, too."""
    found = []
    for i, t in enumerate(values):
        if isinstance(t, Tensor) and t.is_floating_point() and t.numel():
            low, high = (float(end) for end in t.aminmax())
            if 0 <= low < NEAR_AN_END and 1 - NEAR_AN_END < high <= 1:
                found.append(i)
    return found


def _only_integers(own: list[Any], filled: list[Any]) -> bool:
    """Return whether only integers and booleans were changed. If the reference does not divide, a -Inf in its answer is then one
    that it means, such as that of a score that it excludes."""
    changed = [old for old, new in zip(own, filled, strict=True) if not _same(old, new)] if filled else []
    return bool(changed) and not any(isinstance(t, Tensor) and t.is_floating_point() for t in changed)


def _all_zero(value: Any) -> bool:
    """Return whether `value` is a tensor of integers that are all zero."""
    whole = isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool
    return whole and not bool(value.any())


def _kept_within(filled: list[Any], own: list[Any], limited: dict[int, str], hiding: set[int]) -> list[Any]:
    """Return `filled`, with numbers from 0 to 1 in the `limited` inputs, and with the masks (`hiding`) as they were. Raises
    CannotVary if nothing is changed then."""
    kept = [old if i in hiding else new for i, (old, new) in enumerate(zip(own, filled, strict=True))]
    for i in limited:
        if kept[i] is not own[i] and isinstance(kept[i], Tensor):
            kept[i] = variations.within(own[i], kept[i])
    if (limited or hiding) and all(new is old for new, old in zip(kept, own, strict=True)):
        i = next(i for i in sorted((*limited, *hiding)) if filled[i] is not own[i])
        raise contents.CannotVary(
            f"the reference takes values from 0 to 1 only: input {i} goes into {limited.get(i, '1 - x, as a mask does')}"
        )
    return kept
