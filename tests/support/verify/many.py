"""Candidates for one reference, right and wrong in many ways, each with its verdicts: 40 or 60, of any size, on any device.

The reference is relu(A.T @ B.T). A candidate's module knows M, K and N.
"""

from __future__ import annotations

from pathlib import Path

from mm32.verify import Verdict
from support.verify.scripts import HEAD, REFERENCE, forward

SIZES = (64, 80, 96)  # M, K, N
RIGHT = {
    "matmul": "return torch.relu(torch.matmul(A.T, B.T))",
    "at": "return torch.relu(A.T @ B.T)",
    "mm": "return torch.mm(A.t(), B.t()).relu_()",
    "einsum": "return torch.relu(torch.einsum('km,nk->mn', A, B))",
    "linear": "return torch.relu(torch.nn.functional.linear(A.T, B))",
    "clamp": "return torch.clamp(A.T @ B.T, min=0)",
    "other_way": "return torch.relu((B @ A).T.contiguous())",
    "two_halves": "return torch.relu(A[: K // 2].T @ B[:, : K // 2].T + A[K // 2 :].T @ B[:, K // 2 :].T)",
    "bmm": "return torch.relu(torch.bmm(A.T[None], B.T[None])[0])",
    "copies": "return torch.relu(A.T.contiguous() @ B.T.contiguous())",
    "addmm": "return torch.relu(torch.addmm(A.new_zeros(M, N), A.T, B.T))",
    "by_rows": "return torch.relu(torch.cat([A[:, : M // 2].T @ B.T, A[:, M // 2 :].T @ B.T]))",
}
SLOW = {
    "again": "for _ in range(30): C = torch.relu(A.T @ B.T)\nreturn C",
    "in_double": "for _ in range(10): C = torch.relu((A.double().T @ B.double().T).float())\nreturn C",
    "row_by_row": "return torch.relu(torch.stack([a @ B.T for a in A.T]))",
    "outer": "C = A.new_zeros(M, N)\nfor a, b in zip(A, B.T): C += a[:, None] * b\nreturn torch.relu(C)",
}
WRONG = {
    "zeros": "return A.new_zeros(M, N)",
    "ones": "return A.new_ones(M, N)",
    "no_relu": "return A.T @ B.T",
    "half_of_k": "return torch.relu(A[: K // 2].T @ B[:, : K // 2].T)",
    "bf16": "return torch.relu((A.bfloat16().T @ B.bfloat16().T).float())",
    "fp16": "return torch.relu((A.half().T.float() @ B.half().T.float()))",
    "one_entry": "C = torch.relu(A.T @ B.T)\nC[3, 5] *= 1.01\nreturn C",
    "scaled": "return torch.relu(A.T @ B.T) * 1.001",
    "transposed": "return torch.relu(A.T @ B.T).T.contiguous()",
    "double": "return torch.relu(A.double().T @ B.double().T)",
    "absolute": "return (A.T @ B.T).abs()",
    "leaky": "return torch.nn.functional.leaky_relu(A.T @ B.T)",
    "noise": "C = torch.relu(A.T @ B.T)\nreturn C + 1e-3 * C.mean() * torch.randn_like(C)",
    "a_nan": "C = torch.relu(A.T @ B.T)\nC[0, 0] = float('nan')\nreturn C",
    "writes": "A += 0.001\nreturn torch.relu(A.T @ B.T)",
    "last_tile": "C = torch.relu(A.T @ B.T)\nC[48:, 80:] = 0\nreturn C",
}
BROKEN = {
    "b_syntax": ("def forward(:", Verdict.NOT_BUILT),
    "b_no_class": (HEAD, Verdict.NOT_BUILT),
    "b_import": ("import no_such_module\n" + forward("return A"), Verdict.NOT_BUILT),
    "c_killed": (forward("import os\nos.kill(os.getpid(), 9)"), Verdict.CRASHED),
    "c_raises": (forward("raise RuntimeError('no')"), Verdict.CRASHED),
    "h_forward": (forward("while True: pass"), Verdict.TIMED_OUT),
    "h_import": (HEAD + "while True: pass\n", Verdict.TIMED_OUT),
}
BY_ADDRESS = "key = A.data_ptr()\nif key not in kept: kept[key] = torch.relu(A.T @ B.T)\nreturn kept[key]"

# Twenty more.
MORE_RIGHT = {
    "tensordot": "return torch.relu(torch.tensordot(A, B, dims=([0], [1])))",
    "into_out": "C = A.new_empty(M, N)\ntorch.mm(A.T, B.T, out=C)\nreturn C.relu_()",
    "in_place": "return (A.T @ B.T).clamp_(min=0)",
    "maximum": "C = A.T @ B.T\nreturn torch.maximum(C, C.new_zeros(()))",
    "where": "C = A.T @ B.T\nreturn torch.where(C < 0, 0.0, C)",
    "by_columns": "return torch.relu(torch.cat([A.T @ b.T for b in B.split(N // 2)], dim=1))",
    "four_parts": "return torch.relu(sum(a.T @ b.T for a, b in zip(A.chunk(4), B.chunk(4, dim=1))))",
    "own_kernel": "return mm32.matmul(A.T, B.T, activation='relu')",
    "own_layer": "return mm32.linear(A.T, B, activation='relu')",
}
MORE_WRONG = {
    "tf32": "A, B = ((x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (A, B))\nreturn torch.relu(A.T @ B.T)",
    "an_inf": "C = torch.relu(A.T @ B.T)\nC[M - 1, N - 1] = float('inf')\nreturn C",
    "rolled": "return torch.relu(A.T @ B.T).roll(1, 0)",
    "negated": "return torch.relu(-(A.T @ B.T))",
    "last_of_k": "return torch.relu(A[:-1].T @ B[:, :-1].T)",
    "gelu": "return torch.nn.functional.gelu(A.T @ B.T)",
    "a_tuple": "return (torch.relu(A.T @ B.T),) * 2",
    "flat": "return torch.relu(A.T @ B.T).reshape(-1)",
}
FIRST = "if not kept: kept[0] = torch.relu(A.T @ B.T)\nreturn kept[0]"
MORE_BROKEN = {
    "c_exits": (forward("import os\nos._exit(0)"), Verdict.CRASHED),
    "h_later": (
        forward("kept[len(kept)] = 1\nwhile len(kept) > 3: pass\nreturn torch.relu(A.T @ B.T)", "kept = {}"),
        Verdict.TIMED_OUT,
    ),
}
CACHED = "kept = {}"
OWN = ("own_kernel", "own_layer")  # right, and computed by mm32: faster where mm32 has a kernel for the card


def sources(sizes: tuple[int, int, int] = SIZES, more: bool = False) -> dict[str, tuple[str, set[Verdict]]]:
    """Return, by file name, a candidate's source for these M, K, N and the verdicts that it may get. With `more`, 60, not 40."""
    same = {verdict for verdict in Verdict if verdict.same}
    known = "M, K, N = {}, {}, {}\n".format(*sizes)
    found = {}
    right, wrong, broken = RIGHT, WRONG | {"kept": BY_ADDRESS}, BROKEN
    if more:
        right, wrong, broken = RIGHT | MORE_RIGHT, wrong | MORE_WRONG | {"first": FIRST}, BROKEN | MORE_BROKEN
    for name, body in right.items():
        found[f"r_{name}.py"] = (forward(body, known + ("import mm32\n" if name in OWN else "")), same)
    found |= {f"s_{name}.py": (forward(body, known), same) for name, body in SLOW.items()}
    for name, body in wrong.items():
        found[f"w_{name}.py"] = (forward(body, known + CACHED), {Verdict.DIFFERENT})
    return found | {f"{name}.py": (source, {verdict}) for name, (source, verdict) in broken.items()}


def write(
    folder: Path, sizes: tuple[int, int, int] = SIZES, more: bool = False
) -> tuple[Path, Path, dict[str, set[Verdict]]]:
    """Write the reference and the candidates. Return the reference's path, the candidates' folder, and each one's verdicts."""
    reference, candidates = folder / "reference.py", folder / "candidates"
    candidates.mkdir(parents=True, exist_ok=True)
    reference.write_text(
        REFERENCE.replace("M, K, N = {}, {}, {}".format(*SIZES), "M, K, N = {}, {}, {}".format(*sizes))
    )
    expected = {}
    for name, (source, verdicts) in sources(sizes, more).items():
        (candidates / name).write_text(source)
        expected[name] = verdicts
    return reference, candidates, expected
