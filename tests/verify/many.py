"""Candidates for one small reference, right and wrong in many ways, each with what it has to come to."""

from __future__ import annotations

from pathlib import Path

from conftest_verify import HEAD, REFERENCE, forward

from mm32.verify import Verdict

RIGHT = {
    "matmul": "return torch.relu(torch.matmul(A.T, B.T))",
    "at": "return torch.relu(A.T @ B.T)",
    "mm": "return torch.mm(A.t(), B.t()).relu_()",
    "einsum": "return torch.relu(torch.einsum('km,nk->mn', A, B))",
    "linear": "return torch.relu(torch.nn.functional.linear(A.T, B))",
    "clamp": "return torch.clamp(A.T @ B.T, min=0)",
    "other_way": "return torch.relu((B @ A).T.contiguous())",
    "two_halves": "return torch.relu(A[:40].T @ B[:, :40].T + A[40:].T @ B[:, 40:].T)",
    "bmm": "return torch.relu(torch.bmm(A.T[None], B.T[None])[0])",
    "copies": "return torch.relu(A.T.contiguous() @ B.T.contiguous())",
    "addmm": "return torch.relu(torch.addmm(torch.zeros(64, 96), A.T, B.T))",
    "by_rows": "return torch.relu(torch.cat([A[:, :32].T @ B.T, A[:, 32:].T @ B.T]))",
}
SLOW = {
    "again": "for _ in range(30): C = torch.relu(A.T @ B.T)\nreturn C",
    "in_double": "for _ in range(10): C = torch.relu((A.double().T @ B.double().T).float())\nreturn C",
    "row_by_row": "return torch.relu(torch.stack([a @ B.T for a in A.T]))",
    "outer": "C = torch.zeros(64, 96)\nfor a, b in zip(A, B.T): C += a[:, None] * b\nreturn torch.relu(C)",
}
WRONG = {
    "zeros": "return torch.zeros(64, 96)",
    "ones": "return torch.ones(64, 96)",
    "no_relu": "return A.T @ B.T",
    "half_of_k": "return torch.relu(A[:40].T @ B[:, :40].T)",
    "bf16": "return torch.relu((A.bfloat16().T @ B.bfloat16().T).float())",
    "fp16": "return torch.relu((A.half().T.float() @ B.half().T.float()))",
    "one_entry": "C = torch.relu(A.T @ B.T)\nC[3, 5] *= 1.01\nreturn C",
    "scaled": "return torch.relu(A.T @ B.T) * 1.001",
    "transposed": "return torch.relu(A.T @ B.T).T.contiguous()",
    "double": "return torch.relu(A.double().T @ B.double().T)",
    "absolute": "return (A.T @ B.T).abs()",
    "leaky": "return torch.nn.functional.leaky_relu(A.T @ B.T)",
    "noise": "C = torch.relu(A.T @ B.T)\nreturn C + 1e-3 * torch.randn_like(C)",
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
CACHED = "kept = {}"


def sources() -> dict[str, tuple[str, set[Verdict]]]:
    """By file name: a candidate's source, and the verdicts that it may get."""
    same = {verdict for verdict in Verdict if verdict.same}
    found = {f"r_{name}.py": (forward(body), same) for name, body in RIGHT.items()}
    found |= {f"s_{name}.py": (forward(body), same) for name, body in SLOW.items()}
    found |= {f"w_{name}.py": (forward(body), {Verdict.DIFFERENT}) for name, body in WRONG.items()}
    by_address = "key = A.data_ptr()\nif key not in kept: kept[key] = torch.relu(A.T @ B.T)\nreturn kept[key]"
    found["w_kept.py"] = (forward(by_address, CACHED), {Verdict.DIFFERENT})
    found |= {f"{name}.py": (source, {verdict}) for name, (source, verdict) in BROKEN.items()}
    return found


def write(folder: Path) -> tuple[Path, Path, dict[str, set[Verdict]]]:
    """The reference and the folder of candidates, and what is to come of each."""
    reference, candidates = folder / "reference.py", folder / "candidates"
    candidates.mkdir()
    reference.write_text(REFERENCE)
    expected = {}
    for name, (source, verdicts) in sources().items():
        (candidates / name).write_text(source)
        expected[name] = verdicts
    return reference, candidates, expected
