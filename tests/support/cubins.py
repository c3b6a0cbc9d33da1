"""The resources of a compiled kernel, read from the cubin itself: an ELF file whose layout is the same for every NVRTC, whether
that reports resources or not.

Section .nv.info holds, for each entry, the number of registers (attribute REGCOUNT) and the bytes of stack (FRAME_SIZE). The size
of section .nv.shared.ENTRY is the entry's static shared memory. Loads and stores of local memory, where spilled registers and
arrays that found no register lie, are counted in the instructions, which are 16 bytes each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

REGISTERS, STACK = 0x2F, 0x11  # attributes of .nv.info: the symbol's number, then the value
WITH_PAYLOAD = 4  # the form of attributes with 2 bytes of length, then that many bytes; others have 2 bytes of value
LOAD_LOCAL, STORE_LOCAL = 0x983, 0x387
WIDTHS = (1, 1, 2, 2, 4, 8, 16)  # bytes that a memory instruction moves, by its bits 73 to 75
RESERVED = 1024  # bytes of every block's shared memory that the system reserves from compute capability 9.0 on


class Usage(NamedTuple):
    """What an entry of a source uses at most. `loads`, `stores`: bytes of local memory, each instruction counted once."""

    registers: int
    stack: int
    stores: int
    loads: int
    shared: int


class Section(NamedTuple):
    name: str
    type: int
    offset: int
    size: int
    link: int


def sections(elf: bytes) -> list[Section]:
    if not elf.startswith(b"\x7fELF\x02\x01"):
        raise ValueError("not a little-endian ELF file of 64 bits")
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    each, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    heads = [struct.unpack_from("<IIQQQQI", elf, start + i * each) for i in range(count)]
    return [Section(_text(elf, heads[names][4] + h[0]), h[1], h[4], h[5], h[6]) for h in heads]


def _text(elf: bytes, at: int) -> str:
    return elf[at : elf.index(b"\0", at)].decode()


def _attributes(elf: bytes, info: Section) -> Iterator[tuple[int, int, int]]:
    """Yield (attribute, symbol, value) of the attributes that belong to a symbol."""
    at = info.offset
    while at < info.offset + info.size:
        form, attribute, value = struct.unpack_from("<BBH", elf, at)
        at += 4
        if form == WITH_PAYLOAD:
            if value == 8:
                yield attribute, *struct.unpack_from("<II", elf, at)
            at += value


def entries(elf: bytes, capability: tuple[int, int]) -> dict[str, Usage]:
    """Return what each entry of a cubin uses."""
    found = sections(elf)
    named = {section.name: section for section in found}
    symbols, said = named[".symtab"], dict[tuple[int, str], int]()
    for attribute, symbol, value in _attributes(elf, named[".nv.info"]):
        (name,) = struct.unpack_from("<I", elf, symbols.offset + 24 * symbol)
        said[attribute, _text(elf, found[symbols.link].offset + name)] = value
    reserved = RESERVED if capability >= (9, 0) else 0
    usage = {}
    for entry in (section.name.removeprefix(".text.") for section in found if section.name.startswith(".text.")):
        code, shared = named[f".text.{entry}"], named.get(f".nv.shared.{entry}")
        moved = {LOAD_LOCAL: 0, STORE_LOCAL: 0}
        for low, high in struct.iter_unpack("<QQ", elf[code.offset : code.offset + code.size]):
            if low & 0xFFF in moved:
                moved[low & 0xFFF] += WIDTHS[high >> 9 & 7]
        usage[entry] = Usage(
            said[REGISTERS, entry],
            said[STACK, entry],
            moved[STORE_LOCAL],
            moved[LOAD_LOCAL],
            max(0, shared.size - reserved) if shared else 0,
        )
    return usage


def most(elf: bytes, capability: tuple[int, int]) -> Usage:
    """Return the largest value of each figure over all entries."""
    return Usage(*map(max, zip(*entries(elf, capability).values(), strict=True)))
