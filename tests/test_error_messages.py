"""docs/errors.md lists every error that mm32's functions raise to their users, in the words of the sources, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import mm32
from mm32 import error_page

SOURCES = Path(mm32.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "errors.md"
FILES = (
    "__init__.py",
    "gemm.py",
    "settings.py",
    "sizes.py",
    "functions.py",
    "ops.py",
    "packed.py",
    "nn.py",
    "prepared.py",
    "dropin.py",
    "enabling.py",
    "transforms.py",
    "torch_product.py",
    "dispatch.py",
    "sharding.py",
    "distributed.py",
    "demo.py",
    "plan/plan.py",
    "plan/card.py",
    "plan/choose.py",
    "cuda/compile.py",
    "cuda/driver.py",
    "cuda/launch.py",
    "cuda/cublas.py",
    "export/__init__.py",
    "export/script.py",
    "numerics/__init__.py",
    "verify/__init__.py",
    "verify/entry.py",
    "verify/batch/cards.py",
    "verify/batch/jobs.py",
    "verify/batch/on_ray.py",
    "verify/batch/run.py",
    "verify/batch/store.py",
    "verify/batch/worker.py",
    "verify/html/single.py",
    "verify/html/table.py",
)
# Folders whose errors, except those of FILES, come from commands, exported files, or processes that only mm32 starts.
ELSEWHERE = ("cli/", "bench/", "verify/", "export/", "plan/emulated.py")
OF_VALUES = ("Unplannable", "WrongArgument")  # kinds of ValueError
# Messages of errors that only mm32's own code can cause, or that it catches.
INTERNAL = {
    "torch's own product has precision 'fp32' or 'tf32', got …",
    "not a whole mm32 cubin: its checksum does not match",
    "not an mm32 cubin: its header is a …, not a dict",
    "compiling …: expected a cubin's bytes, got …",
    "module … has no attribute …",
}


def words(message: ast.expr) -> str | None:
    """Return a message with … for what is filled in, or None if the message is made elsewhere."""
    if isinstance(message, ast.Constant) and isinstance(message.value, str):
        return message.value
    if isinstance(message, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in message.values)
        return " ".join("".join(parts).split())
    return None


def raised(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the type and the words of each error that is raised with a message of its own."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or node.exc is None:
            continue
        for call in ast.walk(node.exc):
            if isinstance(call, ast.Call) and call.args and (said := words(call.args[0])) is not None:
                name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                if name.endswith(("Error", *OF_VALUES)) and said.strip("… :()"):
                    yield name, said


def in_sources() -> dict[str, set[str]]:
    """Return the types of the errors with each message, by message."""
    found: dict[str, set[str]] = {}
    for name in FILES:
        for kind, said in raised(ast.parse((SOURCES / name).read_text())):
            if said not in INTERNAL:
                found.setdefault(said, set()).add("ValueError" if kind in OF_VALUES else kind)
    return found


def on_page() -> dict[str, tuple[str, str]]:
    """Return the type and the explanation of each message of the page."""
    entries = [entry for entry in error_page.entries() if entry.message]
    assert len(entries) == PAGE.read_text().count("\n- "), "an entry is not of the form that is read"
    found = {entry.message: (entry.kind, entry.why) for entry in entries}
    assert len(found) == len(entries), "a message stands twice"
    return found


def matches(skeleton: str, said: str) -> bool:
    """Return whether a message of the page is one of the sources', with each … filled in by something."""
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


def test_every_source_that_raises_is_looked_at() -> None:
    """Every file that raises is in FILES or in ELSEWHERE, so that a new one cannot be missed."""
    raising = set()
    for path in SOURCES.rglob("*.py"):
        name = path.relative_to(SOURCES).as_posix()
        if not name.startswith(ELSEWHERE) and list(raised(ast.parse(path.read_text()))):
            raising.add(name)
    assert raising <= set(FILES)


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


# ---------------------------------------------------------------------------------------------------------------------
# The command `mm32 errors`


def test_each_entry_is_found_by_its_own_message_and_by_half_of_it() -> None:
    known = error_page.entries()
    for entry in known:
        if not entry.message:
            continue
        assert error_page.find(entry.message, known)[0] == entry
        assert error_page.find(f"Traceback:\n  File x.py, line 3\n{entry.kind}: {entry.message}\n", known)[0] == entry
        words = entry.message.split()
        half = " ".join(words[len(words) // 2 :])
        if len(re.findall(r"[^\W\d]{3,}", half)) > 3:
            assert entry in error_page.find(half, known), half


def test_an_entry_is_found_by_a_message_with_other_names_and_numbers() -> None:
    known = error_page.entries()
    tried = 0
    for said in in_sources():
        if len(re.findall(r"[^\W\d]{2,}", said)) < 6:  # so few words, with any names filled in, may match other entries
            continue
        for other in ("7", "(64, 3)", "Another_name"):
            found = error_page.find(said.replace("…", other), known)
            assert found, said
            assert matches(said, found[0].message), f"{said}: {found[0].message}"
            tried += 1
    assert tried > 200


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no such thing",
        "no such thing at all",
        "ZeroDivisionError: division by zero",
        "list index out of range",
        "expected scalar type Float but found Half",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_what_is_no_error_of_mm32s_is_not_found(text: str) -> None:
    assert error_page.find(text, error_page.entries()) == []


def test_headings_and_the_drivers_names_are_found() -> None:
    known = error_page.entries()
    shapes = error_page.find("shapes", known)
    assert {entry.heading for entry in shapes} == {"Shapes"}
    assert len(shapes) == error_page.headings(known)["Shapes"] > 5
    for code in ("CUDA_ERROR_OUT_OF_MEMORY", "loading kernel simt of 8 x 8: CUDA_ERROR_NO_BINARY_FOR_GPU"):
        (entry,) = error_page.find(code, known)
        assert entry.why.startswith("A `LaunchError` says which kernel")


def test_an_entry_as_text_has_no_link_and_fits() -> None:
    text = [entry.shown(80) for entry in error_page.entries()]
    assert not any("](" in one for one in text)
    assert max(len(line) for one in text for line in one.splitlines()) <= 82
    assert text[0].startswith("Importing\n\nImportError: mm32.matmul needs torch")


if __name__ == "__main__":
    for said, kinds in in_sources().items():
        print(f"- `{said}` ({', '.join(sorted(kinds))}): ")
