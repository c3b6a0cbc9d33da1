"""docs/errors.md has every error that mm32 raises to users of its functions, in the words of the sources, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import mm32

SOURCES = Path(mm32.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "errors.md"
FILES = (
    "__init__.py",
    "gemm.py",
    "settings.py",
    "sizes.py",
    "ops.py",
    "packed.py",
    "nn.py",
    "prepared.py",
    "dropin.py",
    "transforms.py",
    "cpu.py",
    "dispatch.py",
    "plan/plan.py",
    "plan/choose.py",
    "cuda/compile.py",
    "cuda/driver.py",
    "cuda/launch.py",
    "cuda/cublas.py",
    "export/script.py",
)
# Only mm32's own code can cause these, or catches them.
INTERNAL = {
    "torch's own product has precision 'fp32' or 'tf32', got …",
    "not a whole mm32 cubin: its checksum does not match",
    "not an mm32 cubin: its header is a …, not a dict",
    "compiling …: expected a cubin's bytes, got …",
    "module … has no attribute …",
}


def words(message: ast.expr) -> str | None:
    """A message with … for what is filled in; None for one that is made elsewhere."""
    if isinstance(message, ast.Constant) and isinstance(message.value, str):
        return message.value
    if isinstance(message, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in message.values)
        return " ".join("".join(parts).split())
    return None


def raised(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The type and the words of each error that is raised with a message of its own."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or node.exc is None:
            continue
        for call in ast.walk(node.exc):
            if isinstance(call, ast.Call) and call.args and (said := words(call.args[0])) is not None:
                name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                if name.endswith(("Error", "Unplannable")) and said.strip("… :()"):
                    yield name, said


def in_sources() -> dict[str, set[str]]:
    """The types of each message."""
    found: dict[str, set[str]] = {}
    for name in FILES:
        for kind, said in raised(ast.parse((SOURCES / name).read_text())):
            if said not in INTERNAL:
                found.setdefault(said, set()).add("ValueError" if kind == "Unplannable" else kind)
    return found


def on_page() -> dict[str, tuple[str, str]]:
    """The type and the explanation of each message of the page."""
    entry = r"^- (`+)(.+?)\1\s+\((\w+)\):\s(.*?)(?=\n- |\n\n|\Z)"
    entries = [found[1:] for found in re.findall(entry, PAGE.read_text(), flags=re.M | re.S)]
    found = {" ".join(said.split()): (kind, " ".join(why.split())) for said, kind, why in entries}
    assert len(found) == len(entries), "a message stands twice"
    return found


def matches(skeleton: str, said: str) -> bool:
    """Whether a message of the page is one of the sources', each … filled in by something."""
    return re.fullmatch(".+?".join(map(re.escape, skeleton.split("…"))), said) is not None


def test_every_error_is_on_the_page() -> None:
    page = on_page()
    assert len(in_sources()) > 50
    missing = [
        f"- `{said}` ({kind})"
        for said, kinds in in_sources().items()
        for kind in kinds
        if not any(matches(said, shown) and kind == of for shown, (of, _) in page.items())
    ]
    assert missing == [], f"{PAGE.name} lacks errors that the sources raise: say why each comes and what to do"


def test_the_page_has_no_other_errors() -> None:
    sources = in_sources()
    for shown, (kind, why) in on_page().items():
        assert any(matches(said, shown) and kind in kinds for said, kinds in sources.items()), (
            f"nothing raises: {shown}"
        )
        assert len(re.findall(r"[.:](?= |$)", why)) >= 2, f"two sentences, why and what to do: {shown}"


def test_what_mm32_alone_can_cause_is_still_there() -> None:
    raised_now = {said for name in FILES for _, said in raised(ast.parse((SOURCES / name).read_text()))}
    assert raised_now >= INTERNAL
    assert "mat1 and mat2 shapes cannot be multiplied (… and …) (mm32.matmul of … and …)" in in_sources()


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda a, b: mm32.matmul(a, a), RuntimeError),
        (lambda a, b: mm32.matmul(a, b, activation="swish"), ValueError),
        (lambda a, b: mm32.matmul(a, b, kernel="fast"), ValueError),
        (lambda a, b: mm32.matmul(a, b, out=torch.empty(2, 4)), RuntimeError),
        (lambda a, b: mm32.pack(b, side="top"), ValueError),
        (lambda a, b: mm32.matmul(mm32.pack(a.T.contiguous()), b), RuntimeError),
        (lambda a, b: mm32.replace_linear({}), TypeError),
        (lambda a, b: mm32.enable("fp16"), ValueError),
        (lambda a, b: mm32.freeze(mm32.nn.Linear(2, 3)), RuntimeError),
    ],
)
def test_what_is_raised_is_on_the_page(call: Callable[..., object], kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised_:
        call(torch.ones(2, 3), torch.ones(3, 5))
    said = " ".join(str(raised_.value).split())
    assert [s for s, kinds in in_sources().items() if matches(s, said) and kind.__name__ in kinds]


if __name__ == "__main__":
    for said, kinds in in_sources().items():
        print(f"- `{said}` ({', '.join(sorted(kinds))}): ")
