"""benchmarks/sass.py on loops whose cycles can be counted by hand, and the forms that it compiles."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("sass", Path(__file__).parent.parent / "benchmarks" / "sass.py")
sass = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sass)


def fmas(pattern: str, count: int = 100) -> list[str]:
    return [pattern] * count


def test_two_banks_give_two_registers_a_cycle() -> None:
    """With one operand kept, an FMA takes one cycle if the other two are in different banks, and two if they are in one bank.
    With none kept it takes a cycle and a half."""
    apart = sass.bank_cycles(fmas("FFMA R8, R2.reuse, R5, R8 "))
    together = sass.bank_cycles(fmas("FFMA R8, R2.reuse, R4, R8 "))
    three = sass.bank_cycles(["FFMA R8, R2, R5, R8 ", "FFMA R9, R4, R7, R9 "] * 50)
    assert apart in range(100, 103)
    assert together in range(196, 203)
    assert three in range(146, 153)


def test_another_instruction_takes_a_cycle_and_drops_what_was_kept() -> None:
    loop = ["FFMA R8, R2.reuse, R5, R8 ", "MOV R20, R21 "] * 50
    assert sass.bank_cycles(loop) in range(100, 103)
    # Here three operands are in one bank, which takes two cycles.
    assert sass.bank_cycles(["FFMA R8, R2.reuse, R4, R8 ", "MOV R20, R21 "] * 50) > 130


@pytest.mark.parametrize(("between", "short"), [(0, 24), (10, 14), (23, 1), (24, 0), (60, 0)])
def test_reads_before_their_use(between: int, short: int) -> None:
    loop = ["LDS.128 R4, [R30+0x10] ", *fmas("FFMA R8, R2, R3, R8 ", between), "FFMA R8, R2, R6, R8 "]
    assert sass.late(loop + fmas("FFMA R8, R2, R3, R8 ")) == short
    assert sass.late([*fmas("FFMA R8, R2, R3, R8 "), "LDS.128 R4, [R30+0x10] "]) == 0


def test_the_main_loop_is_found() -> None:
    def line(text: str) -> str:
        return f"        /*0010*/                   {text} ;"

    inner = [".L_x_2:", *[line("FFMA R8, R2, R3, R8")] * 600, line("@P0 BRA `(.L_x_2)")]
    text = "\n".join([".L_x_1:", line("MOV R1, R2"), *inner, line("@P1 BRA `(.L_x_1)"), line("EXIT")])
    loop = sass.main_loop(text)
    assert len(loop) == 601
    assert "BRA" in loop[-1]
    with pytest.raises(ValueError, match="no loop of 512 FMAs among 1 instructions"):
        sass.main_loop(line("EXIT"))


def test_the_forms_are_those_of_whole_tiles_without_promotion() -> None:
    forms = sass.simt_forms()
    assert list(forms) == ["256x128", "128x64", "64x64"]
    assert list(forms["256x128"]) == [(0, 0), (0, 2), (2, 0), (2, 2)]
    assert len(forms["64x64"]) == 16
    for tile, loads in forms.items():
        for pair, constants in loads.items():
            assert (constants["A_LOAD"], constants["B_LOAD"]) == pair
            assert f"{constants['TILE_M']}x{constants['TILE_N']}" == tile
            assert constants["SPLIT_K"] == constants["STREAM_K"] == constants["PROMOTE"] == 0
