"""Writes the C++ with which an exported file launches its kernels: each launch as a call, and its argument as assignments."""

from __future__ import annotations

from mm32.cuda import compile as compiler
from mm32.export import cuda
from mm32.plan import PARAMS, Field, Plan, Workspace

WORKSPACE = """\
    workspace = @A@.new_empty(@BYTES@, dtype=torch.uint8)  # on 512 bytes; reused in the stream's order
"""


def fields(plan: Plan) -> dict[str, str]:
    """Return the template's fields for the kernels, for their launches, and for passing the workspace to them."""
    kernels, names = cuda.translation_unit(plan)
    if '"""' in kernels:
        raise ValueError(f'a source of kernel {plan.kernel!r} holds """, which ends the string that a file keeps it in')
    arguments: dict[Workspace, str] = {}  # the variable that holds each Params
    prepare, start = [], []
    for launch in plan.launches:
        space, kernel = plan.workspace_of(launch), f"KERNEL({names[launch]})"
        argument = "p"
        if space is not None:
            argument = arguments.setdefault(space, f"s{len(arguments) + 1}" if arguments else "s")
        carveout = "FOR_SHARED" if launch.takes_workspace else "DEFAULT"
        order = "DEPENDENT" if launch.dependent else "IN_ORDER"
        prepare.append(f"    if (!failure) failure = prepare({kernel}, {launch.shared}, {carveout});")
        start.append(
            f"    if (!failure) failure = start({kernel}, {launch.grid_in_cpp()},\n"
            f"                                  {launch.block}, {launch.shared}, {order}, {launch.cluster}, {argument}, stream);"
        )
    return {
        "SOURCE": kernels.strip("\n"),
        "PREPARE": "\n".join(dict.fromkeys(prepare)),
        "START": "\n".join(start),
        "FLAGS": ", ".join(f'"-{option}"' for option in compiler.OPTIONS),
        "PARAMS": "".join(_params(name, space) for space, name in arguments.items()),
        "WORKSPACE": WORKSPACE.replace("@BYTES@", str(plan.workspace.bytes)) if plan.workspace else "",
        "WORKSPACE_TYPE": ", pointer" if plan.workspace else "",
        "WORKSPACE_PARAMETER": "char* workspace, " if plan.workspace else "",
        "WORKSPACE_POINTER": "workspace.data_ptr(), " if plan.workspace else "",
    }


def _params(name: str, space: Workspace) -> str:
    """Return C++ that makes a variable of struct Params for a workspace."""
    lines = [f"    Params {name}{{}};", f"    {name}.p = p;"]
    for field in PARAMS:
        value = getattr(space, field.name)
        if field.pair:
            first, second = (_value(field, number) for number in value)
            lines.append(f"    {name}.{field.name}[0] = {first}, {name}.{field.name}[1] = {second};")
        else:
            lines.append(f"    {name}.{field.name} = {_value(field, value)};")
    return "\n".join(lines) + "\n"


def _value(field: Field, number: int) -> str:
    if not field.pointer:
        return str(number)
    return f"workspace + {number}" if field.type == "char*" else f"({field.type})(workspace + {number})"
