"""Writes a plan out as one Python file: `class ModelNew`, get_inputs() and get_init_inputs(), with the CUDA C++ inside.

The file needs torch and a CUDA toolkit, not mm32. Its text is export_template.py.txt, filled in from the `Plan` that the
library itself would launch and from the same kernel sources: constants, launches and workspace are the plan's. A plan without
a workspace makes a file for any sizes; the offsets, grids and splits of one with a workspace hold for its own sizes only.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from dataclasses import replace
from pathlib import Path

from mm32 import gemm
from mm32 import plan as planning
from mm32.cuda import compile as compiler
from mm32.plan import Card, Constants, Launch, Plan

TEMPLATE = Path(__file__).with_name("export_template.py.txt")
OLDEST = (8, 0)  # a kernel that runs on cards of this compute capability runs on all later ones
INCLUDE = re.compile(r'^#include "([\w./]+)"\n', re.M)
DIRECTIVE = re.compile(r"#(if|ifdef|ifndef|elif|else|endif)\b(.*)")
CONDITION = re.compile(r"(?P<not>!?)MM32_(?P<name>\w+)(?: (?P<operator>[!=]=) (?P<number>\d+))?")
VARIABLE = re.compile(r'^extern "C" \{\n__device__ [\w ]+ (\w+);\n\}$', re.M)
OF_A_FORM = (
    "emulated/inline_pack.cuh",
    "common/epilogue.cuh",
    "fma/simt.cuh",
    "fma/stream_k.cuh",
    "emulated/tiles.cuh",
)  # headers that a launch's constants decide
VECTOR_LOADS = (
    "fma/simt.cu",
    "fma/narrow.cu",
    "emulated/fallback.cu",
    "emulated/pack.cu",
    "emulated/tensorcore.cu",
)  # with A_LOAD and B_LOAD, or LOAD of the operand SIDE: 0 reads 16 bytes along rows, 2 along K
FOR_HEADERS = ("PRODUCTS",)  # what the other headers use: of one value in all launches of a plan
WRAP = textwrap.TextWrapper(120, initial_indent=" " * 4, subsequent_indent=" " * 15)  # under explain()'s words


def export(
    layout: str,
    m: int,
    n: int,
    k: int,
    *,
    bias: bool = False,
    activation: str | None = None,
    precision: str = "fp32",
    kernel: str = "auto",
    linear: bool = False,
    device: Card = planning.H200,
) -> str:
    """The text of a file whose ModelNew computes ``activation(a @ b + bias)``, planned for these sizes and this card.

    A is stored (M, K) for a layout that begins with n, (K, M) for t; B is stored (K, N) for one that ends with n, (N, K) for
    t. forward takes (A, B), or (A, B, bias) with a bias of shape (N,). With `linear`, which is layout nt, ModelNew holds
    weight (N, K) and, with `bias`, bias (N,) as its parameters, and forward takes x (M, K).

    Raises ValueError for an unknown layout, activation, precision or kernel, `mm32.plan.Unplannable` for a kernel that cannot
    run on the card.
    """
    asked = gemm.from_layout(layout, m, n, k, bias=bias, activation=activation, precision=precision)
    return export_script(planning.plan(asked, device, kernel), layout, linear=linear)


def export_script(plan: Plan, layout: str, *, linear: bool = False) -> str:
    """`export` for a plan that is made, of contiguous operands in `layout` (`mm32.gemm.from_layout`)."""
    g = plan.gemm
    options = {"bias": g.bias is not None, "activation": g.activation, "precision": g.precision}
    if g != gemm.from_layout(layout, g.m, g.n, g.k, **options):  # type: ignore[arg-type]
        raise ValueError(f"a file is exported for contiguous operands in a named layout; these are not {layout!r}: {g}")
    if linear and layout != "nt":
        raise ValueError(f"a linear layer has layout 'nt' (x as it lies, weight stored (N, K)), not {layout!r}")
    fields = {"COMMAND": _command(plan, layout, linear, plan.kernel), "ANOTHER": _command(plan, layout, linear, None)}
    fields |= _card(plan) | _cuda(plan) | _workspace(plan) | _operands(plan, layout, linear) | _sizes(plan)
    text = _fill(TEMPLATE.read_text(), {**fields, **_alignment(plan, layout)})
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return text.replace("@NAME@", f"mm32_export_{digest}")


def write(path: Path, text: str, *, force: bool = False) -> None:
    """Writes the file; FileExistsError if there is one, unless `force`."""
    with open(path, "w" if force else "x") as file:
        file.write(text)


def _fill(template: str, fields: dict[str, str]) -> str:
    """Replaces @NAME@ by fields["NAME"], and again in what that brought; a name that is no field stays."""
    while (filled := re.sub(r"@([A-Z_]+)@", lambda found: fields.get(found[1], found[0]), template)) != template:
        template = filled
    return template


def _command(plan: Plan, layout: str, linear: bool, kernel: str | None) -> str:
    """The command that writes this file, without its sizes; with no kernel, the command for the one that is then best."""
    g = plan.gemm
    words = ["mm32 export", f"--layout {layout}"]
    words += [f"--kernel {kernel}"] if kernel else []
    words += ["--linear"] if linear else []
    words += ["--bias"] if g.bias is not None else []
    words += [f"--activation {g.activation}"] if g.activation else []
    words += [f"--precision {g.precision}"] if g.precision != "fp32" else []
    return " ".join(words)


def _card(plan: Plan) -> dict[str, str]:
    """The card that the file needs, and what it tells of the plan."""
    from mm32 import __version__  # here, so that mm32/__init__.py may import this module

    specific = planning.unsupported(plan.kernel, replace(plan.card, capability=OLDEST)) is not None
    major, minor = plan.card.capability if specific else OLDEST
    count = len(plan.launches)
    return {
        "KERNELS": "one CUDA kernel" if count == 1 else f"{count} CUDA kernels",
        "ACCURACY": ", with TF32's accuracy" if plan.gemm.precision == "tf32" else "",
        "UNFIT": f"capability {'!=' if specific else '<'} ({major}, {minor})",
        "CAPABILITY": f"compute capability {major}.{minor}{'' if specific else ' or later'}",
        "PLAN": "\n".join(WRAP.fill(line) for line in plan.explain().splitlines()),
        "VERSION": __version__,
    }


# ---------------------------------------------------------------------------------------------------------------------
# The C++: one translation unit of several sources that were written to be compiled apart.


def _pieces(source: str, constants: Constants) -> dict[str, str]:
    """A kernel's own headers and, last, itself: texts by name, each after what it includes."""
    pieces: dict[str, str] = {}

    def visit(name: str) -> None:
        text = _chosen((compiler.KERNEL_DIR / name).read_text(), constants)
        for header in INCLUDE.findall(text):
            if header not in pieces:
                visit(header)
        pieces[name] = INCLUDE.sub("", text.replace("#pragma once\n", "")).strip("\n") + "\n"

    visit(source)
    return pieces


def _chosen(text: str, constants: Constants) -> str:
    """A source without the branches that these constants rule out, and so without what only those include."""
    values, kept = dict(constants), []
    # Of each #if around: whether a branch was kept, and whether this one is; None where the constants do not decide.
    frames: list[tuple[bool, bool] | None] = []
    for line in text.splitlines(keepends=True):
        if directive := DIRECTIVE.match(line):
            word, condition = directive.groups()
            if word.startswith("if"):
                holds = _holds(condition, values) if word == "if" else None
                decided = holds is not None
                frames.append((holds, holds) if holds is not None else None)
            else:
                frame = frames.pop()
                decided = frame is not None
                if word == "elif" and frame is not None and not frame[0] and _holds(condition, values) is None:
                    raise ValueError(f"#elif{condition} follows a condition on a constant, and is none")
                if word != "endif":
                    holds = frame is not None and not frame[0] and (word == "else" or bool(_holds(condition, values)))
                    frames.append((frame[0] or holds, holds) if frame is not None else None)
            if decided:
                continue
        if all(frame is None or frame[1] for frame in frames):
            kept.append(line)
    return "".join(kept)


def _holds(condition: str, values: dict[str, int]) -> bool | None:
    """A condition on one constant; None for any other."""
    found = CONDITION.fullmatch(condition.strip())
    if found is None or found["name"] not in values:
        return None
    value = values[found["name"]]
    holds = bool(value) if found["operator"] is None else (value == int(found["number"])) == (found["operator"] == "==")
    return holds != bool(found["not"])


def _definitions(constants: Constants) -> tuple[str, str]:
    """Lines that define the constants, and lines that take the definitions back."""
    return compiler.definitions(constants), "".join(f"#undef MM32_{name}\n" for name, _ in constants)


def _source(plan: Plan) -> str:
    """Device code. Headers stand once, in front; each kernel source is a namespace, among definitions of its constants, and
    has its own of the headers that these decide: where K is split, the multiply's epilogue is empty, the next launch's is not."""
    parts = dict.fromkeys((launch.source, launch.constants) for launch in plan.launches)
    if len({source for source, _ in parts}) < len(parts):
        raise ValueError(f"kernel {plan.kernel!r} has one source in two forms: export cannot write that")
    headers: dict[str, str] = {}
    shared: dict[str, int] = {}
    bodies = []
    for source, constants in parts:
        *above, (_, body) = _pieces(source, constants).items()
        headers.update((name, text) for name, text in above if name not in OF_A_FORM)
        own = "".join(text + "\n" for name, text in above if name in OF_A_FORM)
        shared.update((name, value) for name, value in constants if name in FOR_HEADERS)
        define, undefine = _definitions(tuple(c for c in constants if c[0] not in FOR_HEADERS))
        space = Path(source).stem
        # What nvcc generates refers to C variables as global ones.
        using = "".join(f"using {space}::{name};\n" for name in VARIABLE.findall(body))
        bodies.append(f"namespace {space} {{\n{define}{own}{body}{undefine}}}  // namespace {space}\n{using}")
    text = "\n".join([_definitions(tuple(shared.items()))[0] + "\n".join(headers.values()), *bodies])
    if '"""' in text:
        raise ValueError(f'a source of kernel {plan.kernel!r} holds """, which ends the string that a file keeps it in')
    return text.strip("\n")


def _cuda(plan: Plan) -> dict[str, str]:
    """Device code, and the launches as calls."""
    prepare, start = "", ""
    for launch in plan.launches:
        kernel = f'"{launch.entry}", {Path(launch.source).stem}::{launch.entry}'
        split = launch.takes_workspace
        prepare += (
            f"    if (!failure) failure = prepare({kernel}, {launch.shared}, {'FOR_SHARED' if split else 'DEFAULT'});\n"
        )
        start += (
            f"    if (!failure) failure = start({kernel}, {_grid(launch)}, {launch.block}, {launch.shared},\n"
            f"                                  {'EARLY' if launch.dependent else 'IN_TURN'}, {'s' if split else 'p'}, stream);\n"
        )
    return {
        "SOURCE": _source(plan),
        "PREPARE": prepare.rstrip("\n"),
        "START": start.rstrip("\n"),
        "FLAGS": ", ".join(f'"-{option}"' for option in compiler.OPTIONS),
    }


def _grid(launch: Launch) -> str:
    """Launch.grid in C++, for m and n of one matrix."""
    if launch.blocks is not None:
        return str(launch.blocks)
    if len(launch.unit) == 1:
        units = f"ceil_div(m * n, {launch.unit[0]})"
    else:
        units = f"ceil_div(m, {launch.unit[0]}) * ceil_div(n, {launch.unit[1]})"
    return f"min({units}, {planning.card.MAX_GRID}LL)"


def _workspace(plan: Plan) -> dict[str, str]:
    """The workspace: its allocation, its way to the C++ and what lies where in it."""
    space = plan.workspace
    if space is None:
        return dict.fromkeys(("SPLIT", "WORKSPACE", "WORKSPACE_TYPE", "WORKSPACE_PARAMETER", "WORKSPACE_POINTER"), "")

    def pair(name: str, value: str, numbers: tuple[int, int]) -> str:
        first, second = (value.replace("#", str(number)) for number in numbers)
        return f"    s.{name}[0] = {first}, s.{name}[1] = {second};\n"

    split = (
        "    Params s{};\n    s.p = p;\n"
        + pair("panels", "workspace + #", space.panels)
        + pair("stats", "(RowStats*)(workspace + #)", space.stats)
        + pair("ready", "(unsigned*)(workspace + #)", space.ready)
        + f"    s.decision = (Decision*)(workspace + {space.decision});\n"
        + f"    s.partial_sums = (float*)(workspace + {space.partial_sums});\n"
        + pair("matrices", "#", space.matrices)
        + f"    s.parts = {space.parts};\n"
        + pair("first_rows", "#", space.first_rows)
    )
    return {
        "SPLIT": split,
        "WORKSPACE": WORKSPACE.replace("@BYTES@", str(space.bytes)),
        "WORKSPACE_TYPE": ", pointer",
        "WORKSPACE_PARAMETER": "char* workspace, ",
        "WORKSPACE_POINTER": "workspace.data_ptr(), ",
    }


# ---------------------------------------------------------------------------------------------------------------------
# The Python.


def _operands(plan: Plan, layout: str, linear: bool) -> dict[str, str]:
    """What the Python says: names, shapes, checks of shapes, and the model."""
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


def _sizes(plan: Plan) -> dict[str, str]:
    """Which sizes the file takes. The plan's alone if there is a workspace. Otherwise any, but for what accesses of 16 bytes
    ask: sizes that are multiples of 4. The other constants make a kernel fast for a layout, never wrong for any strides."""
    if plan.workspace is not None:
        return {
            "SIZES": "M=@M@ N=@N@ K=@K@, no other: launches and workspace are made for these. For other sizes export\n"
            "            another file.",
            "SIZE_CHECK": EXACT,
        }
    constants = dict(plan.launches[0].constants)
    # Loads run along M, N or K, stores along N.
    checked = {*_vector_loads(plan).values(), *(["N"] if constants.get("C_VECTOR") == 1 else [])}
    axes = sorted(checked, key="MNK".index)
    listed = ", ".join(f'("{axis}", {axis.lower()})' for axis in axes)
    multiples = (
        f"; {' and '.join(axes)} in multiples of 4, for loads and stores of 16 bytes.\n            For other sizes export a file "
        "with those sizes."
    )
    return {
        "SIZES": f"Any M, N and K, 0 included{multiples if axes else '.'}\n            "
        "The plan was made for M=@M@ N=@N@ K=@K@; far from that another file may be faster, not more right.",
        "SIZE_CHECK": MULTIPLES.replace("@LISTED@", listed) if axes else "",
    }


def _vector_loads(plan: Plan) -> dict[str, str]:
    """The axis along which an operand is read 16 bytes at a time, for those that are: {"A": "M" or "K", "B": "N" or "K"}."""
    found: dict[str, str] = {}
    for launch in plan.launches:
        for operand, rows in (("A", "M"), ("B", "N")):
            constants = dict(launch.constants)
            mode = constants.get(f"{operand}_LOAD", -1)
            if operand == "AB"[constants.get("SIDE", 0)]:
                mode = constants.get("LOAD", mode)
            axis = {0: rows, 2: "K"}.get(mode) if launch.source in VECTOR_LOADS else None
            if axis and found.setdefault(operand, axis) != axis:
                raise ValueError(f"{launch.source} reads {operand} along {axis}, another launch along {found[operand]}")
    return found


def _alignment(plan: Plan, layout: str) -> dict[str, str]:
    """What accesses of 16 bytes ask of operands: a copy of one that lies differently."""
    loads = _vector_loads(plan)
    stored = {"A": "K" if layout[0] == "n" else "M", "B": "N" if layout[1] == "n" else "K"}  # the contiguous axis
    copied = (
        f"A slice is read where it lies. If the rows of {' or '.join(f'@{name}@' for name in loads)} are not contiguous, as in a"
        "\n            transposed view, not a multiple of 4 apart or not on 16 bytes, a copy is made first."
    )
    return {
        "OPERANDS": copied if loads else "Any strides: a slice or a transposed view is read where it lies.",
        "ALIGNED": ALIGNED.lstrip("\n") if loads else "",
        "ALIGN": "".join(
            # Only where one axis has size 1 is the other read along: what is one row then is a column when stored.
            f"    @{name}@ = _aligned(@{name}@)\n"
            if stored[name] == axis
            else f"    @{name}@ = _aligned(@{name}@.T).T\n"
            for name, axis in loads.items()
        ),
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
            "ModelNew: this file is for M=@M@ N=@N@ K=@K@, its launches and its workspace are made for these; "
            f"got M={m} N={n} K={k}. For these sizes export another: "
            f"@ANOTHER@ --m {m} --n {n} --k {k}"
        )
"""

MULTIPLES = """\
    m, n = @A@.shape[@A_M@], @B@.shape[@B_N@]
    for axis, size in [@LISTED@]:
        if size % 4:
            raise RuntimeError(
                f"ModelNew: this file's loads and stores of 16 bytes take {axis} in multiples of 4; got {axis}={size}. For "
                "these sizes export another: @COMMAND@ "
                f"--m {m} --n {n} --k {k}"
            )
"""

WORKSPACE = """\
    workspace = @A@.new_empty(@BYTES@, dtype=torch.uint8)  # on 512 bytes; reused in the stream's order
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
    """@FORMULA@: nothing to hold, nothing to learn."""

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
