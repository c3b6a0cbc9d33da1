"""Writes a plan out as one Python file: `class ModelNew`, get_inputs() and get_init_inputs(), with the CUDA C++ inside.

The file needs torch and a CUDA toolkit, not mm32. Its text is template.py.txt, filled in from the `Plan` that the library itself
would launch and from the same kernel sources: constants, launches, grids and workspace are the plan's. A plan without a workspace
makes a file for any sizes. The offsets and grids of a plan with one hold for its own sizes only, and so does its file.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from dataclasses import replace
from pathlib import Path

from mm32 import gemm
from mm32 import plan as planning
from mm32.cuda.launch import planning_device
from mm32.export import host, python
from mm32.options import Activation, Kernel, Layout, Precision
from mm32.plan import Card, Plan
from mm32.plan.card import OLDEST

TEMPLATE = Path(__file__).with_name("template.py.txt")
WRAP = textwrap.TextWrapper(120, initial_indent=" " * 4, subsequent_indent=" " * 15)  # aligned with explain()'s words


def export(
    layout: Layout,
    *,
    m: int,
    n: int,
    k: int,
    bias: bool = False,
    activation: Activation | None = None,
    precision: Precision = "fp32",
    kernel: Kernel = "auto",
    linear: bool = False,
    device: Card | None = None,
) -> str:
    """The text of a file whose ModelNew computes ``activation(a @ b + bias)``, planned for these sizes and this card.

    Args:
        layout: how the operands are stored. A is (M, K) for a layout that begins with n, (K, M) for t; B is (K, N) for one that
            ends with n, (N, K) for t. forward takes (A, B), or (A, B, bias) with a bias of shape (N,), all float32.
        m: rows of the result, M.
        n: columns of the result, N.
        k: length of the sums, K.
        bias: whether a bias of shape (N,) is added.
        activation: applied last; None for none.
        precision: as for `mm32.matmul`.
        kernel: one of `mm32.plan.KERNELS`, or "auto" for the one that is estimated to be the fastest.
        device: the card to plan for, by default torch's current one, or an H200 where there is none. Others by name:
            `mm32.plan.card.named`.
        linear: for layout nt: ModelNew holds weight (N, K) and, with `bias`, bias (N,) as its parameters, and forward takes
            x (M, K).

    The file's workspace is not limited (`mm32.set_workspace_limit`): a product in blocks would need many plans.

    Raises ValueError for an unknown layout, activation, precision or kernel, and for a size of 0, with which nothing is
    multiplied; `mm32.plan.Unplannable` for a kernel that cannot run on the card.

    Example:
        >>> from mm32.plan import card
        >>> text = mm32.export.export("tt", m=512, n=512, k=512, device=card.named("h200"))
        >>> "class ModelNew" in text
        True
    """
    asked = gemm.from_layout(layout, m, n, k, bias=bias, activation=activation, precision=precision)
    card = planning_device()[0] if device is None else device
    return export_script(planning.plan(asked, card, kernel), layout, linear=linear)


def export_script(plan: Plan, layout: str, *, linear: bool = False) -> str:
    """Export an existing plan for contiguous operands in `layout` (`mm32.gemm.from_layout`), as `export` does.

    Raises ValueError for a plan that no file can hold: one for other operands, for packed ones, in blocks, without launches, or
    with a size of 0, with which nothing is multiplied.
    """
    g = plan.gemm
    options = {"bias": g.bias is not None, "activation": g.activation, "precision": g.precision}
    if g != gemm.from_layout(layout, g.m, g.n, g.k, **options):  # type: ignore[arg-type]
        raise ValueError(f"a file is exported for contiguous operands in a named layout; these are not {layout!r}: {g}")
    if linear and layout != "nt":
        raise ValueError(
            f"a linear layer has layout 'nt' (x as it lies, weight stored (N, K)), not {layout!r}: leave out the layout"
        )
    if not (g.m and g.n and g.k):
        raise ValueError(
            f"a file is exported for M, N and K of 1 or more; with M={g.m} N={g.n} K={g.k} nothing is multiplied"
        )
    if plan.blocks is not None:
        raise planning.Unplannable(
            "a file holds one plan, and this one is of many blocks within a limit of the workspace: plan it without the "
            "limit, as mm32.export.export does"
        )
    if not plan.launches:
        raise ValueError(f"a file holds the kernels of a plan; one of kernel {plan.kernel!r} has none")
    if plan.workspace is not None and any(plan.workspace.prepacked):
        raise ValueError("a file takes operands as they are; this plan is for operands that were packed beforehand")
    text = _fill(
        TEMPLATE.read_text(encoding="utf-8"),
        {**_about(plan, layout, linear), **host.fields(plan), **python.fields(plan, layout, linear)},
    )
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return text.replace("@NAME@", f"mm32_export_{digest}")


def write(path: Path, text: str, *, force: bool = False) -> None:
    """Write the file. Raises FileExistsError if it exists, unless `force`."""
    with open(path, "w" if force else "x", encoding="utf-8") as file:
        file.write(text)


def _fill(template: str, fields: dict[str, str]) -> str:
    """Replace each @NAME@ by fields["NAME"], and again in the text that this brings in; a name that is not a field stays."""
    while (filled := re.sub(r"@([A-Z_]+)@", lambda found: fields.get(found[1], found[0]), template)) != template:
        template = filled
    return template


def _about(plan: Plan, layout: str, linear: bool) -> dict[str, str]:
    """Return what the file says about itself: the plan, the card that it needs, and the commands that write it and others."""
    from mm32 import __version__  # here, so that mm32/__init__.py may import this module

    # A kernel that runs on cards of the oldest compute capability runs on all later ones.
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
        "LAYOUT": layout,
        "OPTIONS": _options(plan, linear, plan.kernel),
        "ANOTHER": _options(plan, linear, None),
    }


def _options(plan: Plan, linear: bool, kernel: str | None) -> str:
    """Return the options of the command that writes this file, after its sizes and layout. Without a kernel it picks the best."""
    g = plan.gemm
    words = [f"--kernel {kernel}"] if kernel else []
    words += ["--linear"] if linear else []
    words += ["--bias"] if g.bias is not None else []
    words += [f"--activation {g.activation}"] if g.activation else []
    words += [f"--precision {g.precision}"] if g.precision != "fp32" else []
    return "".join(f" {word}" for word in words)
