"""Other parameters and buffers for any model, made from its own. Runs in the reference's process.

Only what the candidate is given is changed: parameters and buffers that are in the model's state_dict().
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from .catalogue import NO_PARAMETERS
from .contents import CannotVary, all_same, structure
from .rows import CHANGES

LARGE = 8.0  # how many times as large "large parameters" are
# The least and the largest size of what replaces zeros in them: exp, sigmoid and tanh of 4 are far from those of 0.
NEAR, FAR = 0.5, 4.0
SCALES = 64.0  # how many times as large "large scales" are: exponentials of normalised rows overflow
APART = 32.0  # how many times as large, and as small, "single parameters" become
NEGATIVE = 4  # one in so many entries of a parameter that is all of one sign gets the other one
CHANGED = 16  # one in so many booleans that are all the same becomes the other
FEWER = 4  # one in so many integers that are all the same becomes another
SMALL = 3  # the largest number that an integer 0 becomes
RUNS = 2  # booleans with at most so many changes along each row lie in blocks
SHOWN = 3  # the most names of tensors that are shown
SHARES = "with rows that add up to one"
TINY = 2.0**-7  # parameters of one number below it, such as a layer scale of 1e-6, are enlarged as zeros are
RARE_ROWS = 8  # the least rows of a parameter of which two become of another kind
COUNTERS = "num_batches_tracked"  # a buffer of batch norms, which a model in use does not look at
# By how much "low biases" are lower, at least and at most: where smooth activations fall, and below what is usual.
LOWER = 1.0, 2.5
BIASES = ("bias", "beta")  # a parameter with one of these in its name is a bias
LEAST_TABLE = 16  # the least rows of a table that integers are places in
LOOKED_AT = 1 << 22  # the most entries of a buffer in which structure is looked for


def _floats(model: nn.Module, kinds: str = "both") -> list[Tensor]:
    """Return the parameters and buffers that are numbers; complex ones as views of both their parts."""
    state = {id(t): t for t in model.state_dict(keep_vars=True).values() if isinstance(t, Tensor) and t.numel()}
    own = {id(p) for p in model.parameters()}
    found = [t.detach() for key, t in state.items() if kinds == "both" or (key in own) == (kinds == "parameters")]
    tensors = [t for t in found if t.is_floating_point()]
    for t in found:
        if t.is_complex():
            tensors += [t.real, t.imag]
    return tensors


def perturb(model: nn.Module, generator: torch.Generator, signs: bool = True) -> list[str]:
    """Change every parameter and buffer of floating point, so that none is all ones or zeros.

    What is positive stays so, and what is negative, except with `signs` for some entries of parameters that are all of one
    sign: the weights of a norm may be negative, a running variance may not. With `signs`, a parameter's zeros beside other
    numbers become numbers too. What is in order, symmetric, triangular, or has rows that add up to one stays so, as the edges
    of buckets have to: these tensors are returned, in words.
    """
    kept = []
    with torch.no_grad():
        some = _floats(model)
        if not some:
            raise CannotVary(NO_PARAMETERS)
        turned = {t.data_ptr() for t in _floats(model, "parameters")} if signs else set()
        for t in some:
            noise = torch.rand(t.shape, generator=generator, device=t.device) - 0.5
            first = float(t.reshape(-1)[0])
            if not all_same(t):
                of = structure(t)
                if of == SHARES and _picks(t):  # their sums are one because the ones are, as those of an identity
                    of = "symmetric" if t.dim() == 2 and t.shape[0] == t.shape[1] and torch.equal(t, t.mT) else ""
                before = t[..., 0] <= t[..., -1] if of == "in order" else None
                t.mul_((1 + noise / 4).to(t.dtype))
                if _restored(t, of, before):
                    kept.append(f"{_named(model, t)} other than {of}")
                elif t.data_ptr() in turned:
                    _turn(t, generator)
            elif first <= 0 or (first < TINY and t.data_ptr() in turned):
                t.add_(noise.to(t.dtype))
            else:
                t.mul_((1 + noise).to(t.dtype))
                if t.data_ptr() in turned:
                    _turn(t, generator)
    return kept


def _picks(t: Tensor) -> bool:
    """Whether each row of a tensor is zeros but for one 1."""
    return bool(((t == 0) | (t == 1)).all()) and bool((t.sum(-1) == 1).all())


def _turn(t: Tensor, generator: torch.Generator) -> None:
    """Give zeros beside other numbers the size of these, with either sign; where all entries have one sign, negate some."""
    one_sign, zero = bool((t > 0).all()) or bool((t < 0).all()), t == 0
    if bool(zero.any()):
        size = float(torch.linalg.vector_norm(t, dtype=torch.float64)) / int((~zero).sum()) ** 0.5
        drawn = torch.rand(t.shape, generator=generator, device=t.device)
        values = size * torch.where(
            drawn < 0.5, -0.5 - drawn, drawn
        )  # from half of it to all of it, or below zero likewise
        t.copy_(torch.where(zero, values.to(t.dtype), t))
    elif one_sign and t.numel() >= NEGATIVE:
        t.mul_(1 - 2 * _some(t, NEGATIVE, generator).to(t.dtype))


def _restored(t: Tensor, of: str, rises: Tensor | None) -> bool:
    """Give a changed tensor back the structure `of` that it had; zeros have stayed zeros, so a triangular one has it
    already. Return whether the structure is one that can be kept."""
    if of == "in order" and rises is not None:
        up = t.sort(-1).values
        t.copy_(torch.where(rises[..., None], up, up.flip(-1)))
    elif of == "symmetric":
        t.copy_((t + t.mT) / 2)
    elif of == SHARES:
        t.div_(t.sum(-1, keepdim=True))
    else:
        return of == "triangular"
    return True


def _named(model: nn.Module, t: Tensor) -> str:
    """Return a tensor of the model's state in words."""
    parameters = {name for name, _ in model.named_parameters()}
    name = next((n for n, own in model.state_dict(keep_vars=True).items() if own.data_ptr() == t.data_ptr()), "")
    return f"{'parameter' if name in parameters else 'buffer'} {name!r}"


def turn(tensors: dict[str, Tensor], generator: torch.Generator, kept: list[str]) -> dict[str, Tensor]:
    """Change tensors that are neither parameters nor buffers, as `perturb` changes parameters.

    These are tensors of floating point that are all one number, such as the scale and the offset of a norm. All others are
    constants that the constructor computes, which nobody may change: `kept` gets these, in words. Return the tensors that
    were changed; raise CannotVary, with nothing to report, where none can be.
    """
    some = {name: t for name, t in tensors.items() if t.is_floating_point() and t.numel() >= NEGATIVE and all_same(t)}
    if len(some) < len(tensors):
        kept.append(not_given(name for name in tensors if name not in some))
    if not some:
        raise CannotVary("")
    with torch.no_grad():
        for t in some.values():
            noise = torch.rand(t.shape, generator=generator, device=t.device) - 0.5
            if float(t.reshape(-1)[0]) == 0:
                t.add_(noise.to(t.dtype))
            else:
                t.mul_(((1 + noise) * (1 - 2 * _some(t, NEGATIVE, generator).float())).to(t.dtype))
    return some


def not_given(names: Iterable[str]) -> str:
    """What is said of tensors that are neither parameters nor buffers, and were left as they are."""
    found = sorted(names)
    shown = ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
    return f"tensors that are neither parameters nor buffers ({shown}) other than they are"


def enlarge(model: nn.Module, generator: torch.Generator, by: float = LARGE) -> None:
    """Multiply every parameter and buffer by `by`. Those that are all zeros, and parameters that are all one tiny number,
    become numbers of both signs, up to half of `by`."""
    with torch.no_grad():
        some = _floats(model)
        if not some:
            raise CannotVary(NO_PARAMETERS)
        own = {t.data_ptr() for t in _floats(model, "parameters")}
        for t in some:
            tiny = by > 1 and t.data_ptr() in own and all_same(t) and abs(float(t.reshape(-1)[0])) < TINY
            if bool(t.any()) and not tiny:
                t.mul_(by)
                continue
            place = torch.randperm(t.numel(), generator=generator, device=t.device).view(t.shape)
            size = NEAR + (FAR - NEAR) * (place + 0.5) / t.numel()
            first = int(torch.randint(0, 2, (1,), generator=generator, device=t.device))
            # The number of terms of a product with it: with its root as a divisor, the product is as large as one with one
            # term.
            terms = max(1, t.numel() // len(t)) if t.dim() > 1 else 1
            t.copy_(size * (1 - 2 * ((place + first) % 2)) * (by / LARGE / terms**0.5))


def enlarge_scales(model: nn.Module, generator: torch.Generator) -> None:
    """Multiply each parameter that is all one number, not zero, by SCALES: the weights of norms. Raises CannotVary, with nothing
    to report, where there are none of two entries or more."""
    with torch.no_grad():
        some = [t for t in _floats(model, "parameters") if t.numel() > 1 and all_same(t) and bool(t.any())]
        if not some:
            raise CannotVary("")
        for t in some:
            t.mul_(SCALES)


def rare_rows(model: nn.Module, generator: torch.Generator) -> None:
    """Make one row of each parameter of two axes and more zeros, and another one 2^-24 times as large, never at a multiple
    of 8. What is in order, symmetric or the like stays so. Raises CannotVary, with nothing to report, where none has RARE_ROWS
    rows."""
    with torch.no_grad():
        some = [t for t in _floats(model, "parameters") if t.dim() > 1 and len(t) >= RARE_ROWS and not structure(t)]
        if not some:
            raise CannotVary("")
        for t in some:
            places = torch.randperm(len(t), generator=generator, device=t.device)
            zero, small = places[places % RARE_ROWS != 0][:2]
            t[zero] = 0
            t[small] *= 2.0**-24


def rare_entries(model: nn.Module, generator: torch.Generator) -> None:
    """Change one entry of each vector of parameters that is all one number: to 0, or from 0 to FAR of either sign. Vectors of one
    length are changed at the same place, which is no multiple of 8. Raises CannotVary, with nothing to report, where none has
    RARE_ROWS entries."""
    places: dict[int, int] = {}
    with torch.no_grad():
        for t in _floats(model, "parameters"):
            if t.dim() != 1 or len(t) < RARE_ROWS or not all_same(t):
                continue
            if len(t) not in places:
                drawn = torch.randperm(len(t), generator=generator, device=t.device)
                places[len(t)] = int(drawn[drawn % RARE_ROWS != 0][0])
            sign = 1 - 2 * int(torch.randint(0, 2, (1,), generator=generator, device=t.device))
            t[places[len(t)]] = 0.0 if bool(t[0]) else sign * FAR
    if not places:
        raise CannotVary("")


def has_neutral(model: nn.Module) -> bool:
    """Whether any parameter or buffer is all one number, and so may do nothing on usual data."""
    return any(all_same(t) for t in _floats(model))


def lower_biases(model: nn.Module, generator: torch.Generator) -> None:
    """Subtract a number from the range LOWER from each entry of the parameters that are biases by their names. Raises
    CannotVary, with nothing to report, where there are none."""
    with torch.no_grad():
        some = [
            p.detach()
            for name, p in model.named_parameters()
            if any(word in name.rsplit(".", 1)[-1].lower() for word in BIASES) and p.is_floating_point() and p.numel()
        ]
        if not some:
            raise CannotVary("")
        for t in some:
            least, most = LOWER
            t.sub_((least + (most - least) * torch.rand(t.shape, generator=generator, device=t.device)).to(t.dtype))


def negate(model: nn.Module, generator: torch.Generator) -> None:
    """Make all parameters negative, and up to four times as large; those that have no positive entry, positive and no larger
    than they are. Zeros stay zeros.

    Raises CannotVary, with nothing to report, where no parameter has another entry than zero."""
    with torch.no_grad():
        some = [t for t in _floats(model, "parameters") if bool(t.any())]
        if not some:
            raise CannotVary("")
        for t in some:
            drawn = torch.rand(t.shape, generator=generator, device=t.device)
            t.copy_(t.abs() * drawn if bool((t <= 0).all()) else -t.abs() * (1 + 3 * drawn))


def vary_tables(model: nn.Module, generator: torch.Generator, largest: set[int], name: str) -> None:
    """Change tables as the variation `name` changes inputs of floating point.

    A table is a parameter of two axes of which integers of the inputs seem to be rows: the `largest` integer of an input is
    in its second half. Rows of zeros stay. Raises CannotVary, with nothing to report, where there are no tables.
    """
    with torch.no_grad():
        tables = [
            t
            for t in _floats(model, "parameters")
            if t.dim() == 2 and len(t) >= LEAST_TABLE and any(len(t) // 2 <= place < len(t) for place in largest)
        ]
        if not tables:
            raise CannotVary("")
        for t in tables:
            t.copy_(torch.where((t != 0).any(-1, keepdim=True), CHANGES[name](t, generator), 0))


def move_apart(model: nn.Module, generator: torch.Generator, by: float = APART, turned: bool = False) -> None:
    """Multiply every second parameter of one number by `by`, and divide the others by it; the other way round if `turned`.
    Raises CannotVary, with nothing to report, where there are none but zeros."""
    with torch.no_grad():
        some = [t for t in _floats(model, "parameters") if t.numel() == 1 and bool(t.any())]
        if not some:
            raise CannotVary("")
        for i, t in enumerate(some):
            t.mul_(by if (i % 2 == 0) != turned else 1 / by)


def exchange(
    model: nn.Module,
    generator: torch.Generator,
    changing: Iterable[str],
    fails: Callable[[], bool],
    kept: list[str],
    safe: bool = True,
) -> None:
    """Change buffers of integers and booleans, except those that a forward changes (`changing`).

    `kept` gets those that had to stay as they are, and how: where structure is kept, where the reference `fails`, and,
    unless it is `safe`, where zeros would become larger, which an index must not. Raises CannotVary, with nothing to report,
    where none can be changed.
    """
    out: dict[str, Tensor] = {}
    buffers = {
        name: t.detach()
        for name, t in model.state_dict(keep_vars=True).items()
        if isinstance(t, Tensor) and t.numel() and not t.is_floating_point() and not t.is_complex()
    }
    for name, t in buffers.items():
        if name.endswith(COUNTERS):
            continue
        if name in set(changing):
            kept.append(f"buffer {name!r}, which forward changes, from another state on")
            continue
        new, of = other(t, generator)
        if new is not None and not safe and not bool(t.any()) and t.dtype != torch.bool:
            new, of = None, "zeros"
        if new is None:
            kept.append(f"buffer {name!r} other than {of}")
        else:
            out[name] = new
    own = {name: buffers[name].clone() for name in out}

    def put(names: Iterable[str]) -> bool:
        """Change these buffers alone. Return whether the reference has an answer then."""
        for name in own:
            buffers[name].copy_(out[name] if name in names else own[name])
        return not fails()

    if out and not put(out):
        some = [name for name in out if len(out) > 1 and put([name])]
        some = some if some and put(some) else []
        kept += [f"buffer {name!r} other than it is" for name in out if name not in some]
        out = {name: out[name] for name in some}
        put(out)
    if not out:
        raise CannotVary("")


def other(t: Tensor, generator: torch.Generator) -> tuple[Tensor | None, str]:
    """Return other integers or booleans of the same range and kind; a permutation stays one. Return None, and what the
    entries have in common, where that has to stay: in order (where segments begin, say), or booleans in blocks (a causal
    mask)."""
    flat = t.reshape(-1)
    if all_same(t):
        some, first = _some(t, CHANGED if t.dtype == torch.bool else FEWER, generator), flat[0]
        if t.dtype == torch.bool:
            return t ^ some, ""
        if not t.dim() and int(first):
            return None, str(int(first))
        low, high = (1, SMALL + 1) if int(first) == 0 else (0, 1) if int(first) in (-1, 1) else (1, abs(int(first)))
        drawn = torch.randint(low, high, t.shape, generator=generator, device=t.device)
        return torch.where(some, drawn if int(first) >= 0 else -drawn, t.to(torch.int64)).to(t.dtype), ""
    rows = t.reshape(-1, t.shape[-1])
    width = t.shape[-1]
    seen = rows[: max(1, LOOKED_AT // width)].to(torch.int64)
    if t.dtype == torch.bool:
        grid = seen.reshape(-1, *t.shape[-2:]) if t.dim() > 1 and seen.numel() == t.numel() else seen[None]
        if any(
            bool(((grid.diff(dim=axis) != 0).sum(axis) <= RUNS).all()) for axis in (-1, -2) if grid.shape[axis] > RUNS
        ):
            return None, "in blocks"
    else:
        ordered = seen.sort(-1).values
        distinct = width > 1 and bool((ordered.diff(dim=-1) > 0).all())
        count = torch.arange(width, device=t.device)
        permuted = bool((ordered == count).all())
        if not permuted and width > 2 and any(bool((sign * seen.diff(dim=-1) >= 0).all()) for sign in (1, -1)):
            return None, "in order"
        if distinct:
            order = torch.rand(rows.shape, generator=generator, device=t.device).argsort(-1)
            return rows.gather(-1, order).view(t.shape), ""
    return flat[torch.randperm(t.numel(), generator=generator, device=t.device)].view(t.shape), ""


def _some(t: Tensor, apart: int, generator: torch.Generator) -> Tensor:
    """Return which entries are to be changed: one in `apart`, and at least one."""
    place = torch.randperm(t.numel(), generator=generator, device=t.device).view(t.shape)
    return place < max(1, t.numel() // apart)
