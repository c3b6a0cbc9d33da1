"""The variations of a model's data that probes are made of: their names, what they ask, and what their judging has to allow."""

from __future__ import annotations

from dataclasses import dataclass

MIXED = "mixed"  # each row is changed in a way of its own: the data of one trial
# Why a variation shows nothing, where others read the reason.
NO_PARAMETERS = "it has no parameters"
EXPLODES = "the reference's own answer is a billion times as large there as usually: it diverges"
NOT_FINITE = "the reference's own answer is not finite there"


@dataclass(frozen=True)
class Variation:
    """A change of a model's data, and how the answers to the changed data are judged."""

    name: str
    asks: str
    # What is changed.
    odd: bool = False  # NaN or Inf is put into the inputs
    state: bool = False  # parameters or buffers are changed
    data: str = ""  # with other parameters, the name of the variation by which the inputs are changed too
    may_leave_unit_range: bool = True  # whether values may leave [0, 1]
    larger: bool = False  # values grow
    rare: bool = False  # few rows are of another kind, and each row of the output is judged by itself
    isolating: bool = False  # the data are those of isolating.py
    # Which outputs it applies to.
    few: bool = False  # only outputs of few numbers, in which the errors of many entries average out
    places: bool = False  # only outputs of integers, such as the place of the largest entry
    # How it is judged.
    equal: bool = False  # sums add numbers that are equal, or small beside a few, and all are rounded the same way
    extreme: bool = False  # honest arithmetic may be hundreds of times as far off as the reference
    # Entries are equal, so that an integer output, such as the place of the largest, may be any of several.
    ties: bool = False
    # NaN may stand in entries of the output that do not depend on the entry that is NaN: adding a mask of -Inf does not hide
    # a NaN.
    spreads: bool = False
    # NaN in more entries of the output than in the reference's is reported on the verdict's line, and is not wrong.
    further: bool = False
    # Names of milder variations, which are tried in turn where the reference has no finite answer, or where rounding decides
    # what its answer is.
    milder: tuple[str, ...] = ()


# Variations of inputs that are asked for with other parameters too, in words.
COMBINED = {
    "zero-mean": "data of both signs",
    "times 100": "large data",
    "boolean rows": "booleans with rows that are all true or all false",
    "smallest integers": "integers of which many are the least of their range",
    "largest integers": "integers of which many are the largest of their range",
}


def _combined(data: str, parameters: str, asks: str, milder: tuple[str, ...] = ()) -> Variation:
    """Return the variation of inputs that is called `data`, with other parameters too."""
    return Variation(
        f"{data} with {parameters}",
        f"{COMBINED[data]}, and {asks}",
        state=True,
        data=data,
        equal="integers" in data,
        ties=True,
        larger=data == "times 100",
        milder=milder,
    )


VARIATIONS = (
    Variation("zero-mean", "data of both signs: what hides in large sums, or behind positive data, shows"),
    Variation(
        "parameters",
        "other parameters: a weight of ones or a bias of zeros cannot be left out, nor that some weights are negative",
        state=True,
        milder=("parameters of one sign",),
    ),
    Variation(
        "large parameters",
        "parameters 8 times as large, and zeros up to 4 of either sign: what is left out as small, or overflows, shows",
        state=True,
        milder=("parameters times 4", "parameters times 2"),
    ),
    Variation(
        "small parameters",
        "parameters and buffers a thousandth as large: an epsilon beside them that is wrong or left out shows",
        state=True,
        equal=True,
    ),
    Variation(
        "integer buffers",
        "buffers of integers and booleans: an order, a mask or zero points cannot be left out",
        state=True,
    ),
    Variation(
        "plain tensors",
        "tensors of ones or zeros that are neither parameters nor buffers: they cannot be left out",
        state=True,
    ),
    Variation(
        "single parameters",
        "parameters of one number 32 times as large and a 32nd, in turn: what is settled sooner for usual ones shows",
        state=True,
        milder=("single parameters times 4",),
    ),
    Variation(
        "single parameters turned",
        "the same, those a 32nd that were 32 times as large",
        state=True,
        milder=("single parameters turned times 4",),
    ),
    Variation(
        "planted",
        "its own data, but for a few rows that are 4 to 12 times as large: what is left out because it is mostly small shows",
    ),
    Variation(
        "rare large rows",
        "its own data, but for a few rows that are 100000 times as large: what looks at a sample of rows misses them",
        milder=("rare rows times 100",),
        equal=True,
        rare=True,
    ),
    Variation(
        "rare small rows",
        "its own data, but for a few rows of zeros, or a thousandth or 1e-7 as large: what looks at a sample misses them",
        may_leave_unit_range=False,
        ties=True,
        equal=True,
        milder=("rare rows times 0.001",),
        rare=True,
    ),
    Variation(
        "rare odd rows",
        "its own data, but for a few rows that are below zero, of both signs, far from zero, equal or of one large entry",
        ties=True,
        equal=True,
        milder=("rare equal rows",),
        rare=True,
    ),
    Variation(
        "rare columns",
        "its own data, but for a few lines along another axis that are larger, smaller, below zero, or of both signs",
        ties=True,
        milder=("rare columns of one sign",),
        equal=True,
        rare=True,
    ),
    Variation("negated", "the signs turned"),
    Variation(
        "times 100",
        "large values: exponentials overflow unless their maximum is subtracted, as does fp16",
        larger=True,
    ),
    Variation(
        "times 100000",
        "values beyond 65504, the largest of fp16: statistics of an fp16 copy are infinite",
        milder=("times 10000", "times 1000"),
        larger=True,
    ),
    Variation(
        "aligned",
        "rows of the signs of the model's own weights, 16 times as large as any entry: what adds up in few bits overflows",
        ties=True,
        larger=True,
    ),
    Variation(
        "near one", "sizes around 1, of either sign: long products keep a size, so that what is left out of them shows"
    ),
    Variation("near zero", "around 0, of either sign: long products of 1 - x keep a size"),
    Variation(
        "times 0.001",
        "small values: an epsilon that is wrong or left out shows",
        may_leave_unit_range=False,
        equal=True,
    ),
    Variation(
        "times 1e-7",
        "tiny values: an epsilon that is wrong shows, and fp16's range",
        may_leave_unit_range=False,
        equal=True,
    ),
    Variation(
        "tiny rows",
        "rows of 1e-14 to 1e-9 of their size: an epsilon that is left out, or stands elsewhere, shows",
        may_leave_unit_range=False,
        equal=True,
    ),
    Variation(
        "moderate",
        "values from -12 to -4: what is small beside 1 in an exponential must still be accurate",
        ties=True,
    ),
    Variation("offset", "values around ten times their spread: a mean taken for zero shows", larger=True),
    Variation("graded", "entries from 2^-8 to 2^8: small ones must be as accurate as large ones"),
    Variation("close", "entries around 1 that differ by a thousandth: their low bits carry the answer", few=True),
    Variation("distinct", "entries around 1, no two alike: their low bits decide which is the largest", places=True),
    Variation(
        "conditioned",
        "positive definite matrices of condition 64: iterations that end early show",
        may_leave_unit_range=False,
    ),
    Variation(
        "isolated",
        "of symmetric and triangular matrices some rows without others: nodes without edges",
        may_leave_unit_range=False,
        ties=True,
    ),
    Variation(
        "indefinite",
        "symmetric matrices with eigenvalues of both signs, triangular ones with diagonals of both",
        may_leave_unit_range=False,
    ),
    Variation(
        "isotropic",
        "multiples of the identity among symmetric matrices: a closed form divides by 0",
        may_leave_unit_range=False,
        ties=True,
    ),
    Variation("wide integers", "integers as large as sums leave room for, where all inputs are integers"),
    Variation(
        "distributions",
        "of rows that add up to one: one of them all, half of them zeros, peaked, uniform: a missing case for 0 shows",
        may_leave_unit_range=False,
        ties=True,
        equal=True,
    ),
    Variation(
        "distributions without zeros",
        "of rows that add up to one: peaked ones, with entries near 0 and near 1: an epsilon shows",
        may_leave_unit_range=False,
        ties=True,
        equal=True,
    ),
    Variation(
        "other integers",
        "of integers that get_inputs makes the same each time, some others: what is remembered of them shows",
        may_leave_unit_range=False,
        milder=("integers in other places",),
    ),
    Variation(
        "repeated integers",
        "of integers, most of some rows the same: what takes collisions, or full groups, for rare shows",
        may_leave_unit_range=False,
        ties=True,
        equal=True,
    ),
    Variation(
        "zeros among integers",
        "of integers that are all above 0, some 0: what does not look for padding shows",
        may_leave_unit_range=False,
        ties=True,
    ),
    *(
        Variation(name, asks, may_leave_unit_range=False, ties=True, equal=True)
        for name, asks in (
            (
                "smallest integers",
                "integers that get_inputs draws, many the least of their range: an empty length, a first place, show",
            ),
            (
                "largest integers",
                "integers that get_inputs draws, many the largest of their range: a length that is full, a last place, show",
            ),
            (
                "equal integers",
                "integers that get_inputs draws, half of them what stands before them: repetition that is left out shows",
            ),
            (
                "multiples among integers",
                "integers that get_inputs draws, multiples of what the model divides by: what happens every so often shows",
            ),
            (
                "integers on edges",
                "integers that get_inputs draws, beside and on what the model compares with: the wrong side shows",
            ),
        )
    ),
    Variation(
        "sorted integers",
        "integers and booleans in order along their axes: what takes them for scattered shows",
        may_leave_unit_range=False,
        milder=("integers sorted along one axis",),
    ),
    Variation(
        "uneven steps",
        "integers in order with large steps and none: groups of nothing, and one that is long",
        may_leave_unit_range=False,
    ),
    Variation(
        "boolean rows",
        "of booleans, rows that are all true, all false, or so but for one: what takes them for mixed shows",
        may_leave_unit_range=False,
        ties=True,
        milder=("boolean rows but for one",),
    ),
    Variation(
        "chained",
        "of square matrices of zeros and ones, and of pairs of integers, a path through all: a search of few steps shows",
        may_leave_unit_range=False,
        ties=True,
    ),
    Variation(
        "relabelled",
        "symmetric matrices with rows and columns in another order: a band, or blocks, that are taken for granted show",
        may_leave_unit_range=False,
    ),
    Variation("rolled", "rows in another order: answers remembered by place show", may_leave_unit_range=False),
    Variation("constant", "every entry the same", may_leave_unit_range=False, ties=True, equal=True),
    Variation("zero rows", "a third of the rows zeros: a missing epsilon shows", ties=True, equal=True),
    Variation(
        "odd rows",
        "rows below zero, in order, or with their largest entries at a stride: a maximum that starts at zero and a choice by "
        "pieces show",
    ),
    Variation(
        "clustered",
        "rows that are nearly copies of a few: what takes neighbours for rare shows",
        ties=True,
    ),
    Variation(
        "stepping",
        "places and boxes in chains, each a small step from the one before: a search or a suppression of few rounds shows",
    ),
    Variation(
        "edges",
        "entries equal to numbers that the model compares with, in an operator or a buffer: the wrong side shows",
        may_leave_unit_range=False,
    ),
    Variation(
        "ends",
        "of values from 0 to 1, some 0, some 1, and some close to these: a logarithm without a bound shows",
        may_leave_unit_range=False,
    ),
    Variation(
        "equal neighbours",
        "of rows in order, some entries equal to the one before: a difference without a guard and a missing case for ties show",
        may_leave_unit_range=False,
        ties=True,
    ),
    Variation(
        "missing values",
        "of inputs that hold NaN for what is missing, rows without a value, with one, with two, and with all",
        may_leave_unit_range=False,
        ties=True,
        milder=("missing but one", "missing but two"),
    ),
    Variation(
        "another draw",
        "of integers in inputs of one shape, rows of another call of get_inputs, or moved: what they share must not matter",
        may_leave_unit_range=False,
    ),
    Variation("far below", "nothing above -65504: a maximum that starts at some negative number shows", ties=True),
    Variation(
        "steady",
        "large values, the same at every step of a sequence: what is remembered for long shows",
        ties=True,
        equal=True,
    ),
    Variation(
        "ones and zeros",
        "of an input that is all ones, all zeros or one integer, some entries others",
        may_leave_unit_range=False,
    ),
    Variation(
        "fractions",
        "of an input that is all one number, other numbers of both signs: weights that are taken for a mask show",
        milder=("fractions of one sign",),
    ),
    Variation(
        "a NaN",
        "NaN in an input, at its end, and in vectors: they must appear where the reference has them",
        odd=True,
        ties=True,
        further=True,
    ),
    *(
        Variation(
            name,
            "NaN in an input: it must appear where the reference has it",
            odd=True,
            ties=True,
            spreads=True,
            further=True,
        )
        for name in ("a NaN in another input", "a NaN in a third input", "a NaN in a later input")
    ),
    Variation(
        "an Inf", "one Inf and one -Inf: they must lead to what the reference makes of them", odd=True, further=True
    ),
    Variation(
        "offset tables",
        "tables that integers are places in, all numbers 10 times their size higher: a variance by squares shows",
        state=True,
    ),
    Variation(
        "planted tables",
        "tables that integers are places in, a few rows 4 to 12 times as large: what is left out as small shows",
        state=True,
    ),
    Variation(
        "narrow integers",
        "of integers, some rows of a narrower range, and some of one number: what takes a range for granted shows",
        may_leave_unit_range=False,
        ties=True,
        equal=True,
    ),
    Variation(
        "opposed",
        "rows that are nearly alike, and one that is their opposite: terms that are left out as small show",
        ties=True,
    ),
    Variation(
        "alike inputs",
        "inputs of one shape, their rows equal, or nearly: an epsilon beside a distance shows",
        may_leave_unit_range=False,
        ties=True,
    ),
    Variation(
        "low biases",
        "biases 1 to 2.5 lower: what holds behind positive numbers only, where an activation rises, say, shows",
        state=True,
        ties=True,
    ),
    Variation(
        "negative parameters",
        "parameters that are all below zero, or above it if none had been: growth that is taken for decay, and the reverse, show",
        state=True,
        ties=True,
    ),
    Variation(
        "huge rows",
        "where entries are only picked, rows around -1e36 and around 1e36: a maximum that starts at -1e30 shows",
        larger=True,
    ),
    Variation(
        "just below one",
        "of data between 0 and 1, rows close to 1: a memory that is cut short, where usual decays leave nothing, shows",
        may_leave_unit_range=False,
        equal=True,
    ),
    Variation(
        "equal pairs",
        "of integers in pairs, such as the ends of edges, some equal: a case for loops that is missing shows",
        may_leave_unit_range=False,
        ties=True,
    ),
    Variation(
        "rare rows of integers",
        "of integers and booleans, a row or two in another order: what takes some rows for all shows",
        may_leave_unit_range=False,
    ),
    *(
        _combined(
            data,
            "other parameters",
            "other parameters than ones and zeros: one that matters for such data only shows",
            milder=(f"{data} with parameters of one sign",),
        )
        for data in COMBINED
    ),
    Variation(
        "rare rows of parameters",
        "of weights, a row of zeros and a tiny one: an epsilon that is wrong or left out shows",
        state=True,
        equal=True,
    ),
    Variation(
        "large scales",
        "weights that are all one number, as those of norms, 64 times as large: a maximum that is not subtracted shows",
        state=True,
        ties=True,
    ),
    Variation(
        "rare entries of parameters",
        "of weights and biases that are all one number, one that is 0 and one that is large: what divides by a weight shows",
        state=True,
        ties=True,
    ),
    Variation(
        "quiet",
        "its own data, but only one entry in 64 as large as usual: what lasts longer than a window shows",
        may_leave_unit_range=False,
    ),
    Variation(
        "sparse",
        "a third of the entries zeros: a pivot or a divisor that is taken for granted shows",
        may_leave_unit_range=False,
        ties=True,
    ),
    Variation(
        "zero input",
        "one of the inputs all zeros: a scale or a norm without a guard shows",
        may_leave_unit_range=False,
        ties=True,
        equal=True,
    ),
    Variation(
        "opposite inputs",
        "inputs of one shape, half of their rows opposite: a bound that is left out on one side shows",
        ties=True,
    ),
    Variation(
        "whole range of bytes",
        "of integers of 8 and 16 bits, any that the type holds, and rows of its ends: a sum in too narrow a type shows",
        ties=True,
    ),
    Variation(
        "impossible",
        "of logarithms that are added up, many -Inf: a case for the logarithm of 0 that is missing shows",
        odd=True,
        ties=True,
    ),
)
# Operators whose arguments are logarithms of what is added up.
LOGARITHMS = {"logsumexp", "logaddexp", "logaddexp2", "logcumsumexp"}
MILDER = {
    variation.name: variation
    for variation in (
        Variation(
            "parameters of one sign",
            "other parameters, none of them negative that was not",
            state=True,
            may_leave_unit_range=False,
        ),
        Variation(
            "integers in other places",
            "of integers that get_inputs makes the same each time, some in other places: what is remembered of them shows",
        ),
        Variation(
            "integers sorted along one axis",
            "integers and booleans in order along one axis: what takes them for scattered shows",
        ),
        Variation(
            "boolean rows but for one",
            "of booleans, rows that are all true or all false but for one: what takes them for mixed shows",
            ties=True,
        ),
        Variation("fractions of one sign", "of an input that is all one number, other numbers of its sign"),
        Variation(
            "rare rows times 100",
            "its own data, but for a few rows that are 100 times as large: what looks at a sample of rows misses them",
            equal=True,
            rare=True,
        ),
        Variation(
            "rare rows times 0.001",
            "its own data, but for a few rows, a thousandth as large: what looks at a sample of rows misses them",
            equal=True,
            rare=True,
        ),
        Variation(
            "rare equal rows",
            "its own data, but for a few rows that are equal, or of one large entry: what looks at a sample misses them",
            ties=True,
            equal=True,
            rare=True,
        ),
        Variation(
            "rare columns of one sign",
            "its own data, but for a few lines along another axis that are larger or smaller",
            equal=True,
            rare=True,
        ),
        *(
            Variation(
                f"missing but {least}",
                f"of inputs that hold NaN for what is missing, rows with {least} value{'s' * (least != 'one')}, and with all",
                may_leave_unit_range=False,
                ties=True,
            )
            for least in ("one", "two")
        ),
        *(
            _combined(data, "parameters of one sign", "other parameters, none of them negative that was not")
            for data in COMBINED
        ),
        *(
            Variation(
                f"parameters times {by}",
                f"parameters {by} times as large, and zeros up to {by / 2:g} of either sign: what is left out as small shows",
                state=True,
            )
            for by in (4, 2)
        ),
        *(
            Variation(
                f"single parameters {turned}times 4",
                "parameters of one number 4 times as large and a quarter, in turn: what is settled sooner for usual ones shows",
                state=True,
            )
            for turned in ("", "turned ")
        ),
        *(
            Variation(
                f"times {by}",
                "very large values: a mask of -10000 or another large number in place of -Inf shows",
                extreme=True,
                larger=True,
            )
            for by in (10000, 1000)
        ),
    )
}
BY_NAME = {variation.name: variation for variation in (*VARIATIONS, *MILDER.values())}
# For each name, the index of the input that gets the NaN, among the inputs of two axes or more that come after the first.
# LATER_INPUT draws, by seed, one of those from its index on, or a vector.
LATER_INPUT = "a NaN in a later input"
OTHERS = {"a NaN in another input": 0, "a NaN in a third input": 1, LATER_INPUT: 2}
