"""The C++ of exported files: it has the library's own sources, each once, with the plan's constants, launches and workspace."""

from __future__ import annotations

import ctypes
import functools
import random
import re
import subprocess
from dataclasses import replace

import pytest

from mm32 import gemm
from mm32 import plan as planning
from mm32.cuda import compile as compiler
from mm32.cuda import launch
from mm32.export import cuda, export_script
from mm32.plan import KERNELS, PARAMS, Constants, Plan
from support.export import FORMS, cuda_source, plan_of, two_forms

KERNEL_FILES = sorted(str(path.relative_to(compiler.KERNEL_DIR)) for path in compiler.KERNEL_DIR.rglob("*.cu*"))
NAMESPACE = re.compile(r"^namespace (\w+) \{\n(.*?)^\}  // namespace \1$", re.M | re.S)
HEADING = re.compile(r"^// (\w+/\w+\.cuh?)(?: with (.*))?\n//\n", re.M)


def equations(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"MM32_(\w+) = (\d+)", text)}


def plan_and_sizes(request: pytest.FixtureRequest) -> tuple[Plan, str]:
    kernel, layout, sizes, options = request.param
    return plan_of(kernel, layout, sizes, options), layout


@pytest.fixture(params=[*(form.values for form in FORMS), None], ids=[*(form.id for form in FORMS), "two forms"])
def exported(request) -> tuple[Plan, str]:
    """A plan, and the C++ of its file."""
    plan, layout = (two_forms(), "nn") if request.param is None else plan_and_sizes(request)
    return plan, cuda_source(export_script(plan, layout))


def test_launches_are_the_plans(exported):
    plan, source = exported
    starts = re.findall(
        r"start\(KERNEL\((\w+)::(\w+)\), (.*),\n\s+(\d+), (\d+), (DEPENDENT|IN_ORDER), (\d+), (p|s\d*), stream\);",
        source,
    )
    assert len(starts) == len(plan.launches)
    spaces = dict(NAMESPACE.findall(source))
    for (space, entry, grid, block, dynamic, order, cluster, argument), step in zip(starts, plan.launches, strict=True):
        assert (entry, int(block), int(dynamic), int(cluster)) == (step.entry, step.block, step.shared, step.cluster)
        assert (order == "DEPENDENT", argument != "p") == (step.dependent, step.takes_workspace)
        assert len(re.findall(rf"__global__[^;{{]*\b{entry}\(", spaces[space])) == 1
        g = plan.gemm
        for m, n in [(g.m, g.n)] if plan.workspace else [(1, 1), (96, 80), (97, 129), (4096, 8192), (g.m, g.n)]:
            blocks = eval(grid.replace("LL", ""), {"ceil_div": lambda a, b: -(-a // b), "min": min, "m": m, "n": n})
            assert blocks == step.grid(gemm.from_layout(g.layout, m, n, g.k))


def test_constants_are_the_plans(exported):
    """Each part that a launch uses has the launch's constants: as numbers in its namespace, or in its heading for branches. It
    has every constant that the part's file names, except those of branches that are left out."""
    plan, source = exported
    stated: dict[str, list[dict[str, int]]] = {}  # by file and, if there is one, by namespace
    for text in source.split(cuda.RULE)[1:]:
        if heading := HEADING.match(text):
            space = re.search(r"^namespace (\w+) \{$", text, flags=re.M)
            numbers = "".join(re.findall(r"^constexpr int MM32_.*;$", text, flags=re.M))
            assert not equations(numbers).keys() & equations(heading[2] or "").keys()
            key = f"{heading[1]} {space[1] if space else ''}"
            stated.setdefault(key, []).append(equations(numbers) | equations(heading[2] or ""))
    assert all(len(found) == 1 for found in stated.values())
    spaces = dict(NAMESPACE.findall(source))
    _, names = cuda.translation_unit(plan)
    for step in plan.launches:
        constants, found, used = dict(step.constants), [names[step].partition("::")[0]], set()
        while found:
            used.add(space := found.pop())
            found += re.findall(r"^using namespace (\w+);$", spaces[space], flags=re.M)
        parts = set(cuda._in_order(cuda.read(step.source, step.constants)))
        for part in parts:
            (stands,) = (
                values
                for key, (values,) in stated.items()
                for name, space in [key.split(" ")]
                if name == part.name and (not space or space in used)
            )
            assert stands.items() <= constants.items()
            code = cuda._code((compiler.KERNEL_DIR / part.name).read_text())
            assert stands.keys() == set(cuda.CONSTANT.findall(code)) & constants.keys()


def test_no_header_stands_twice_with_one_text(exported):
    """A header has several namespaces only where its own code, its numbers or what it includes differs."""
    plan, source = exported
    names = [name for name, _ in HEADING.findall(source)]
    spaces = NAMESPACE.findall(source)
    assert len(set(spaces)) == len(dict(spaces)) == len(spaces)
    if len({dict(step.constants).get("PRODUCTS") for step in plan.launches} - {None}) < 2:
        assert len({body for _, body in spaces}) == len(spaces)
        assert {name for name in names if names.count(name) > 1} <= {"common/epilogue.cuh"}
    for struct in ("Problem", "Params", "RowStats", "Decision", "Matrix"):
        assert len(re.findall(rf"^struct {struct} \{{", source, flags=re.M)) <= 1
    assert '"C" __global__' not in source
    assert re.findall("#include.*", source) == ["#include <cstdio>"]


def test_stream_k_has_the_tile_once():
    plan = plan_of("simt", "nt", (2560, 2560, 2048), {"bias": True, "activation": "relu"})
    assert [step.entry for step in plan.launches] == ["mm32_simt", "mm32_fixup"]
    source = cuda_source(export_script(plan, "nt"))
    assert source.count("void multiply_tile(") == 1
    lines = [line for line in source.splitlines() if len(line) > 40 and not line.startswith(("//", "static"))]
    assert len(lines) - len(set(lines)) <= 5


@pytest.mark.parametrize("kernel", KERNELS)
def test_source_is_the_librarys(kernel):
    """Every line of code of every source and header is there, in order, except directives that join the files, and branches that
    the plan's constants rule out."""
    plan = plan_of(kernel, "tt", (256, 256, 16384), {"bias": True})
    text = cuda_source(export_script(plan, "tt"))
    for step in plan.launches:
        pending, seen = [step.source], set()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            body = cuda.resolve((compiler.KERNEL_DIR / name).read_text(), dict(step.constants))
            pending += re.findall(r'#include "(.*)"', body)
            body = re.sub(r'^(#pragma once|#include ".*")\n', "", body, flags=re.M)
            body = re.sub(r'extern "C" (\{\n(.*\n)\}\n)?', lambda found: found[2] or "", body)
            opening = cuda.OPENING.match(body)[0]
            if not (code := body[len(opening) :].strip("\n")):
                continue
            assert opening in text
            assert code in text
        assert "common/problem.cuh" in seen


@functools.cache
def forms_by_file() -> dict[str, set[Constants]]:
    """Return, by file, the constants of the forms whose C++ has code from it."""
    found: dict[str, set[Constants]] = {}
    for _, source, constants, _ in planning.forms():
        for part in cuda._in_order(cuda.read(source, constants)):
            found.setdefault(part.name, set()).add(constants)
    return found


@pytest.mark.compiler
@pytest.mark.parametrize("source", KERNEL_FILES)
def test_branches_are_left_out_as_the_preprocessor_does(source):
    """For up to 6 random forms of a source, the compiler's own preprocessor gives the same lines with and without the branches
    left out."""
    text = re.sub("#include.*", "", (compiler.KERNEL_DIR / source).read_text())

    def processed(text: str, constants: tuple[tuple[str, int], ...]) -> list[str]:
        defined = [f"-DMM32_{name}={value}" for name, value in constants]
        command = ["g++", "-E", "-P", "-x", "c++", *defined, "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        return done.stdout.split()

    forms = sorted(forms_by_file()[source])
    for constants in random.Random(1).sample(forms, min(len(forms), 6)):
        chosen = cuda.resolve(text, dict(constants))
        assert processed(chosen, constants) == processed(text, constants)
        assert not re.search(r"#(if|elif).*MM32_", chosen)
        assert ("#if MM32" in text or "#if !MM32" in text) == (chosen != text)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("MM32_A", True),
        ("!MM32_A", False),
        ("MM32_B", False),
        ("MM32_A == 3 && !MM32_B", True),
        ("MM32_A != 3 || MM32_B >= 1", False),
        ("(MM32_A + 1) * 2 == 8", True),
        ("!MM32_B == 1", True),
    ],
)
def test_conditions(condition, holds):
    text = f"#if {condition}\nkept\n#else\nelse\n#endif\n#if X\n#if {condition} // why\nkept\n#endif\n#elif Y\n#endif\n"
    first, second = ("kept\n", "kept\n") if holds else ("else\n", "")
    assert cuda.resolve(text, {"A": 3, "B": 0}) == f"{first}#if X\n{second}#elif Y\n#endif\n"


@pytest.mark.parametrize(
    "text",
    ["#if MM32_C\n#endif\n", "#ifdef MM32_A\n#endif\n", "#if MM32_A && X\n#endif\n", "#if X\n#elif MM32_A\n#endif\n"],
)
def test_directives_that_are_not_understood_are_refused(text):
    with pytest.raises(ValueError, match=r"no condition on the constants A|in a way that is not understood"):
        cuda.resolve(text, {"A": 3})


def test_a_constant_that_a_launch_does_not_define_is_refused():
    with pytest.raises(
        ValueError, match=r"panels\.cuh uses PRODUCTS, which a launch of emulated/pack\.cu does not define"
    ):
        cuda.read("emulated/pack.cu", (("A_LOAD", 0), ("B_LOAD", 0), ("GUARDED", 0), ("DECIDES", 0)))


def test_structs_that_the_argument_points_to_are_of_no_form():
    """They must be outside namespaces: a struct in a namespace would not be the one that Params (workspace.cuh) points to."""
    plan = two_forms()
    source = cuda_source(export_script(plan, "nn"))
    outside = NAMESPACE.sub("", source)
    declared = re.findall(r"^struct (\w+);", outside, flags=re.M)
    assert set(declared) == {"RowStats", "Decision"}
    for name in declared:
        assert re.search(rf"^struct (__align__\(16\) )?{name} {{", outside, flags=re.M)


def test_one_source_in_two_forms():
    """What depends on the constants is in two namespaces, the rest in one; the names tell the forms apart."""
    plan = two_forms()
    text = export_script(plan, "nn")
    source = cuda_source(text)
    _, names = cuda.translation_unit(plan)
    assert [names[step] for step in plan.launches] == [
        "pack_products_3::mm32_scale",
        "pack_products_3::mm32_pack",
        "tensorcore_products_3::mm32_tensorcore",
        "reduce_guarded_0::mm32_reduce",
        "pack_products_6::mm32_pack",
        "tensorcore_products_6::mm32_tensorcore",
        "reduce_guarded_1::mm32_reduce",
        "fallback::mm32_fallback",
    ]
    spaces = dict(NAMESPACE.findall(source))
    for products in (3, 6):
        assert f"constexpr int MM32_PRODUCTS = {products};" in spaces[f"panels_cuh_products_{products}"]
        assert f"using namespace panels_cuh_products_{products};" in spaces[f"hi_lo_cuh_products_{products}"]
    assert "using namespace panels_cuh_products_3;" in spaces["cancel_cuh_products_3"]
    assert "using namespace cancel_cuh_products_3;" in spaces["fallback"]
    for once in ("struct Operand {", "struct TileScheduler {", "void barrier_wait("):
        assert source.count(once) == 1
    lower = plan.workspace.lower.panels
    assert f"s2.panels[0] = workspace + {lower[0]}, s2.panels[1] = workspace + {lower[1]};" in source
    assert "s2.first_rows[0] = 0, s2.first_rows[1] = 0;" in source


def test_forms_that_no_single_constant_tells_apart_have_all_in_their_names():
    first = plan_of("simt", "nn", (2048, 512, 256), {})
    (step,) = first.launches
    both = (("A_LOAD", 0), ("B_LOAD", 1)), (("A_LOAD", 1), ("B_LOAD", 0)), (("A_LOAD", 1), ("B_LOAD", 1))
    steps = tuple(replace(step, constants=tuple((dict(step.constants) | dict(change)).items())) for change in both)
    _, names = cuda.translation_unit(replace(first, launches=steps))
    assert [names[s] for s in steps] == [f"simt_a_load_{a}_b_load_{b}::mm32_simt" for a, b in ((0, 1), (1, 0), (1, 1))]


# ---------------------------------------------------------------------------------------------------------------------
# The workspace


def test_params_are_the_kernels():
    """plan.PARAMS, workspace.cuh and the launcher's struct have the same fields, of the same types, in the same order."""
    text = (compiler.KERNEL_DIR / "common/workspace.cuh").read_text()
    body = re.search(r"^struct Params \{\n(.*?)^\};", text, flags=re.M | re.S)[1]
    declared = re.findall(r"^    (.*?) (\w+)(\[2\])?;", body, flags=re.M)
    assert declared == [("Problem", "p", ""), *((f.type, f.name, "[2]" if f.pair else "") for f in PARAMS)]
    assert [name for name, _ in launch._Params._fields_] == [name for _, name, _ in declared]
    assert ctypes.sizeof(launch._Params) == ctypes.sizeof(launch._Problem) + 8 * sum(2 if f.pair else 1 for f in PARAMS)
    for field in PARAMS:
        member = getattr(launch._Params, field.name)
        assert member.size == (16 if field.pair else 8)


def test_every_field_of_the_workspace_is_written():
    plan = plan_of("tensorcore", "tn", (256, 256, 16384), {"bias": True, "activation": "relu"})
    source, space = cuda_source(export_script(plan, "tn")), plan.workspace
    for field in PARAMS:
        numbers = getattr(space, field.name)
        for index, number in enumerate(numbers if field.pair else [numbers]):
            at = f"s.{field.name}[{index}]" if field.pair else f"s.{field.name}"
            (value,) = re.findall(rf"{re.escape(at)} = (.*?)[,;]", source)
            assert int(re.search(r"(\d+)\)?$", value)[1]) == number
            assert ("workspace + " in value) == field.pointer
