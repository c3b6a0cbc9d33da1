"""The tool on a GPU: shared memory of the card, times, TF32 and other streams."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
import torch
from conftest_verify import REFERENCE, Run, forward

from mm32.verify import Verdict

pytestmark = pytest.mark.gpu

LARGE = REFERENCE.replace("M, K, N = 64, 80, 96", "M, K, N = 1024, 4096, 2048")


def test_a_right_candidate_is_the_same_and_not_faster(run: Run) -> None:
    report = run(forward("return torch.relu(A.T @ B.T)"), LARGE)
    assert report.verdict is Verdict.INCONCLUSIVE, report.reason
    assert report.environment["card"]
    assert report.timing is not None
    assert 0.97 < report.timing["speedup"] < 1.03
    assert 0.97 < report.timing["wall_speedup"] < 1.03
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


def test_memory_of_the_card_reaches_another_process() -> None:
    from mm32.verify import memory, wire

    device = torch.device("cuda:0")
    ours, theirs = socket.socketpair()
    region = memory.reserve(1 << 20, device)
    with ours, theirs:
        child = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(theirs.fileno()), str(region.size)], pass_fds=[theirs.fileno()]
        )
        connection = wire.Connection(ours)
        for number in (1, 2):
            descriptor = region.create()
            region.fill(0, region.size, number)
            region.write(8, torch.full((8,), number, dtype=torch.uint8, device=device))
            torch.cuda.synchronize()
            connection.send({}, (), [descriptor])
            connection.receive()
            seen = torch.zeros(region.size, dtype=torch.uint8, device=device)
            region.read(0, seen)
            assert seen.eq(10 * number).all()
            region.release()
        ours.shutdown(socket.SHUT_WR)
        assert child.wait(60) == 0
    region.close()


OTHER = """
import socket, sys, torch
from mm32.verify import memory, wire
connection = wire.Connection(socket.socket(fileno=int(sys.argv[1])), descriptors=True)
region = memory.reserve(int(sys.argv[2]), torch.device("cuda:0"))
while True:
    try:
        header, _ = connection.receive()
    except wire.Closed:
        break
    region.map(header["descriptors"][0], [(0, region.size)])
    region.bytes().mul_(10)
    torch.cuda.synchronize()
    region.release()
    connection.send({})
"""
