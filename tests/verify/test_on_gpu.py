"""The tool on a GPU: events, the cold cache, TF32 and other streams."""

from __future__ import annotations

import pytest
from conftest_verify import REFERENCE, Run, forward

from mm32.verify import Verdict

pytestmark = pytest.mark.gpu

LARGE = REFERENCE.replace("M, K, N = 64, 80, 96", "M, K, N = 1024, 4096, 2048")


def test_a_right_candidate_is_the_same_and_timed_by_both_clocks(run: Run) -> None:
    report = run(forward("return torch.relu(A.T @ B.T)"), LARGE)
    assert report.verdict is Verdict.INCONCLUSIVE, report.reason
    assert report.environment["card"]
    assert report.timing is not None
    assert 0.97 < report.timing["speedup"] < 1.03
    # The host's clock sees what else the host does: 1.10 beside 22 test processes. A patched clock would be off by a factor.
    assert 0.8 < report.timing["wall_speedup"] < 1.25
    assert report.timing["rounds"] == 30
    assert 1e-5 < report.timing["reference"]["median_s"] < 1e-2
    assert {p["status"] for p in report.probes} == {"same"}
    assert all(case["caught"] for case in report.self_test)


def test_torchs_tf32_is_different(run: Run) -> None:
    report = run(forward("return torch.relu(A.T @ B.T)", "torch.backends.cuda.matmul.allow_tf32 = True"), LARGE)
    assert report.verdict is Verdict.DIFFERENT
    assert 1e-5 < report.trials[0]["candidate"]["normwise"] < 1e-3


def test_work_left_on_another_stream_is_different(run: Run) -> None:
    body = """
    C = torch.zeros(1024, 2048, device=A.device)
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        torch.cuda._sleep(50_000_000)
        C.copy_(torch.relu(A.T @ B.T))
    return C
    """
    assert run(forward(body, "SIDE = torch.cuda.Stream()"), LARGE).verdict is Verdict.DIFFERENT


def test_an_output_on_the_host_is_different(run: Run) -> None:
    report = run(forward("return torch.relu(A.T @ B.T).cpu()"), LARGE)
    assert report.verdict is Verdict.DIFFERENT
    assert "the output is on ['cpu'], the reference's on cuda" in report.reason


def test_a_slow_kernel_of_the_library_is_the_same_and_slower(run: Run) -> None:
    report = run(None, LARGE, kernel="naive", trials=1)
    assert report.verdict is Verdict.SLOWER, report.reason


def test_events_patched_before_the_fact_are_suspect(run: Run) -> None:
    before = "import mm32.verify.worker.clock as clock\nreal = clock._elapsed\nclock._elapsed = lambda a, b: real(a, b) / 100"
    body = "for _ in range(20): C = torch.relu(A.T @ B.T)\nreturn C"
    assert run(forward(body, before), LARGE, trials=1).verdict is Verdict.SUSPECT
