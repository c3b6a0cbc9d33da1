"""Writes the Python of an exported file: names, shapes and their checks, which sizes and strides it takes, and the model."""

from __future__ import annotations

from mm32.plan import Plan


def fields(plan: Plan, layout: str, linear: bool) -> dict[str, str]:
    """Return the template's fields for contiguous operands in `layout`; with `linear` the model is a layer."""
    return {**_operands(plan, layout, linear), **_sizes(plan), **_alignment(plan, layout)}


def _operands(plan: Plan, layout: str, linear: bool) -> dict[str, str]:
    """Return the fields for names, shapes, checks of shapes, and the model."""
    g, a_letter, b_letter, bias = plan.gemm, layout[0], layout[1], plan.gemm.bias is not None
    a, b = ("x", "weight") if linear else ("A", "B")
    a_axes = "(M, K)" if a_letter == "n" else "(K, M)"
    b_axes = "(K, N)" if b_letter == "n" else "(N, K)"
    a_used = a if a_letter == "n" else f"{a}.T"
    b_used = b if b_letter == "n" else f"{b}.T"
    formula = f"{a_used} @ {b_used}{' + bias' if bias else ''}"
    tensors = [(a, 2, a_axes), (b, 2, b_axes)] + ([("bias", 1, "(N,)")] if bias else [])
    names = [name for name, _, _ in tensors]
    inputs = tensors[:1] if linear else tensors
    return {
        "FORMULA": f"{g.activation}({formula})" if g.activation else formula,
        "CALL": f"ModelNew({g.k}, {g.n})(x)" if linear else f"ModelNew()({', '.join(names)})",
        "SHAPES": "\n".join(f"    {name:<8}{axes}" for name, _, axes in tensors) + "\n    C       (M, N), contiguous",
        "M": str(g.m),
        "N": str(g.n),
        "K": str(g.k),
        "A": a,
        "B": b,
        "A_AXES": a_axes,
        "B_AXES": b_axes,
        "A_USED": a_used,
        "B_USED": b_used,
        "A_M": "0" if a_letter == "n" else "1",
        "B_N": "1" if b_letter == "n" else "0",
        "A_K": "1" if a_letter == "n" else "0",
        "B_K": "0" if b_letter == "n" else "1",
        "TYPED": ", ".join(f"{name}: torch.Tensor" for name in names),
        "NAMED": ", ".join(f'("{name}", {name}, {rank}, "{axes}")' for name, rank, axes in tensors),
        "ARGUMENTS": ", ".join(names),
        "ON_CUDA": ", ".join(f"{name}.cuda()" for name in names),
        "BIAS_POINTER": "bias.data_ptr(), bias.stride(0)" if bias else "None, 0",
        "BIAS_CHECK": BIAS_CHECK if bias else "",
        "MODEL": (LINEAR if linear else MODEL).strip("\n"),
        "BIAS_PARAMETER": BIAS_PARAMETER if bias else "",
        "WITH_PARAMETERS": ", ".join(["x", *(f"self.{name}" for name in names[1:])]),
        "INPUTS": ", ".join(f"torch.rand{axes.replace(',)', ')')}" for _, _, axes in inputs),
        "INIT_INPUTS": "K, N" if linear else "",
    }


ANY_STRIDES = "Any strides: a slice or a transposed view is read where it lies."
LINES = "A slice is read where it lies; of an operand whose rows are not contiguous a copy is made first."


def _sizes(plan: Plan) -> dict[str, str]:
    """Return the fields that say which sizes the file takes: with a workspace, or from the kernel "direct", the plan's only.
    Otherwise any, except that 16-byte loads and stores need multiples of 4. All other constants decide how fast a kernel is for
    a layout; its results are right for any strides."""
    if plan.workspace is not None or plan.kernel == "direct":  # direct: its clusters share a K that is long enough
        return {
            "SIZES": "M=@M@ N=@N@ K=@K@, no other: launches depend on them. For other sizes, export\n"
            "            another file.",
            "SIZE_CHECK": EXACT,
        }
    constants = dict(plan.launches[0].constants)
    # Loads run along M, N or K, stores along N.
    checked = {*_vector_loads(plan).values(), *(["N"] if constants.get("C_VECTOR") == 1 else [])}
    axes = sorted(checked, key="MNK".index)
    listed = ", ".join(f'("{axis}", {axis.lower()})' for axis in axes)
    multiples = (
        f"; {' and '.join(axes)} in multiples of 4, for 16-byte loads and stores.\n            For other sizes, export a file "
        "with those sizes."
    )
    return {
        "SIZES": f"Any M, N and K, 0 included{multiples if axes else '.'}\n            "
        "The plan was made for M=@M@ N=@N@ K=@K@; for sizes far from these, another file may be faster.",
        "SIZE_CHECK": MULTIPLES.replace("@LISTED@", listed) if axes else "",
    }


def _vector_loads(plan: Plan) -> dict[str, str]:
    """Return the axis along which an operand is read 16 bytes at a time, for those that are: {"A": "M" or "K", "B": "N" or "K"}.
    The constants A_LOAD and B_LOAD, or LOAD of the operand SIDE, say so: 0 is along its rows (A's M, B's N), 2 along K.

    Raises ValueError if launches read one operand along different axes.
    """
    found: dict[str, str] = {}
    for launch in plan.launches:
        for operand, rows in (("A", "M"), ("B", "N")):
            constants = dict(launch.constants)
            mode = _load(constants, operand)
            if operand == "AB"[constants.get("SIDE", 0)]:
                mode = constants.get("LOAD", mode)
            axis = {0: rows, 2: "K"}.get(mode)
            if axis and found.setdefault(operand, axis) != axis:
                raise ValueError(f"{launch.source} reads {operand} along {axis}, another launch along {found[operand]}")
    return found


def _load(constants: dict[str, int], operand: str) -> int:
    """Return how an operand is copied, -1 if no constant says so. If a kernel swaps the operands, its A_LOAD is for B."""
    place = {"A": "B", "B": "A"}[operand] if constants.get("SWAPPED") else operand
    return constants.get(f"{place}_LOAD", -1)


def _lines(plan: Plan, layout: str) -> str:
    """Return the code for what kernels need besides: contiguous lines if they are read whole at any alignment (loads 4 and 5),
    and short strides for kernels that read operands in place."""
    constants, text = dict(plan.launches[0].constants), ""
    # Kernels that split what they read have 32 bits for offsets in a tile.
    in_place = plan.kernel == "direct" or any(dict(launch.constants).get("INLINE_PACK") for launch in plan.launches)
    for name, whole in (("A", {4: "M", 5: "K"}), ("B", {4: "N", 5: "K"})):
        stored = {"A": "K" if layout[0] == "n" else "M", "B": "N" if layout[1] == "n" else "K"}[name]
        load = _load(constants, name)
        axis = whole.get(load, stored)
        there = f"@{name}@" if stored == axis else f"@{name}@.T"
        conditions = [f"{there}.stride(1) != 1"] if load in whole else []
        conditions += [f"max(@{name}@.stride()) >= 2**23"] if in_place else []
        back = "" if stored == axis else ".T"
        if conditions:
            text += f"    if {' or '.join(conditions)}:\n        @{name}@ = {there}.contiguous(){back}\n"
    return text


def _alignment(plan: Plan, layout: str) -> dict[str, str]:
    """Return the fields for what 16-byte loads need: a copy of an operand whose strides or address do not allow them."""
    loads = _vector_loads(plan)
    stored = {"A": "K" if layout[0] == "n" else "M", "B": "N" if layout[1] == "n" else "K"}  # the contiguous axis
    copied = (
        f"A slice is read where it lies. If the rows of {' or '.join(f'@{name}@' for name in loads)} are not contiguous, as in a"
        "\n            transposed view, not a multiple of 4 apart or not on 16 bytes, a copy is made first."
    )
    lines = _lines(plan, layout)
    if not loads:
        copied = LINES if lines else ANY_STRIDES
    elif lines and plan.kernel != "direct":
        for other in sorted({"A", "B"} - set(loads)):
            copied += f"\n            Of @{other}@ a copy is made where its rows are not contiguous."
    return {
        "OPERANDS": copied,
        "ALIGNED": ALIGNED.lstrip("\n") if loads else "",
        "ALIGN": "".join(
            # Only an operand of one row or one column may be read along an axis other than the stored one: by its transpose.
            f"    @{name}@ = _aligned(@{name}@)\n"
            if stored[name] == axis
            else f"    @{name}@ = _aligned(@{name}@.T).T\n"
            for name, axis in loads.items()
        )
        + lines,
    }


BIAS_CHECK = """\
    if bias.shape[0] != @B@.shape[@B_N@]:
        raise RuntimeError(
            f"ModelNew: bias must have shape (N,) = ({@B@.shape[@B_N@]},), N being that of @B@ @B_AXES@ {tuple(@B@.shape)}; "
            f"got {tuple(bias.shape)}"
        )
"""

EXACT = """\
    m, n = @A@.shape[@A_M@], @B@.shape[@B_N@]
    if (m, n, k) != (@M@, @N@, @K@):
        raise RuntimeError(
            "ModelNew: this file is for M=@M@ N=@N@ K=@K@ only, on which its launches and workspace depend; "
            f"got M={m} N={n} K={k}. For these sizes, export another file: "
            f"mm32 export {m}x{k}x{n}:@LAYOUT@@ANOTHER@"
        )
"""

MULTIPLES = """\
    m, n = @A@.shape[@A_M@], @B@.shape[@B_N@]
    for axis, size in [@LISTED@]:
        if size % 4:
            raise RuntimeError(
                f"ModelNew: this file's 16-byte loads and stores take {axis} in multiples of 4; got {axis}={size}. For "
                f"these sizes, export another file: mm32 export {m}x{k}x{n}:@LAYOUT@@OPTIONS@"
            )
"""

ALIGNED = '''
def _aligned(x: torch.Tensor) -> torch.Tensor:
    """x if its rows can be read 16 bytes at a time, otherwise a copy whose rows can."""
    rows, columns = x.shape
    contiguous = columns < 2 or x.stride(1) == 1
    if contiguous and (rows < 2 or x.stride(0) % 4 == 0) and x.data_ptr() % 16 == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)


'''

MODEL = '''
class ModelNew(nn.Module):
    """@FORMULA@, without parameters."""

    def forward(self, @TYPED@) -> torch.Tensor:
        return product(@ARGUMENTS@)
'''

LINEAR = '''
class ModelNew(nn.Module):
    """@FORMULA@ for x (M, in_features), with the parameters of a Linear layer."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        bound = in_features**-0.5
        self.weight = nn.Parameter((2 * torch.rand(out_features, in_features) - 1) * bound)
@BIAS_PARAMETER@
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return product(@WITH_PARAMETERS@)
'''

BIAS_PARAMETER = "        self.bias = nn.Parameter((2 * torch.rand(out_features) - 1) * bound)\n"
