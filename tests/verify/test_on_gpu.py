"""The tool on a GPU: shared memory of the card, times, TF32 and other streams; outputs and inputs too large for the host."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from mm32.verify import Verdict
from mm32.verify.exchange import handover, memory, wire
from mm32.verify.judging.rounding import Rounding
from support.verify.fixtures import REFERENCE, Run, forward
from support.verify.handover import Runner, served

pytestmark = pytest.mark.gpu

LARGE = REFERENCE.replace("M, K, N = 64, 80, 96", "M, K, N = 1024, 4096, 2048")


def test_a_right_candidate_is_the_same_and_not_faster(run: Run) -> None:
    report = run(forward("return torch.relu(A.T @ B.T)"), LARGE)
    assert report.verdict is Verdict.INCONCLUSIVE, report.reason
    assert report.environment["card"]
    assert report.timing is not None
    assert 0.97 < report.timing["speedup"] < 1.03
    assert 0.9 < report.timing["wall_speedup"] < 1.1  # on a host with other work they come no nearer to 1
    assert 1e-5 < report.timing["reference"]["median_s"] < 1e-2
    assert {p["status"] for p in report.probes} == {"same"}
    assert all(case["caught"] for case in report.self_test)


@pytest.mark.parametrize("draw", [torch.randn, torch.rand])
def test_perturbations_have_nothing_to_do_with_data_of_their_seed(draw: Callable[..., torch.Tensor]) -> None:
    count, seed = 1 << 20, 12345
    data = draw(count, device="cuda", generator=torch.Generator("cuda").manual_seed(seed)).double()
    with Rounding(2.0**-24, seed, data.device) as mode:
        perturbed = data.exp()
    moved = perturbed / data.exp() - 1
    terms = (data - data.mean()) * moved
    assert mode.u * 0.5 < float(moved.std()) < mode.u * 2
    assert abs(float(terms.sum())) < 5 * float(terms.norm())


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
            region.write([(8, torch.full((8,), number, dtype=torch.uint8, device=device))])
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
from mm32.verify.exchange import memory, wire
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


# ---------------------------------------------------------------------------------------------------------- large tensors

HALF = 512 << 20  # bytes
MODEL = """
import torch
from torch import nn
{head}
class {name}(nn.Module):
    def forward(self, {arguments}):
        {body}
def get_inputs():
    return [{inputs}]
"""
VECTORS = "torch.randn(16384), torch.randn(8192)"  # their outer product has HALF
ROWS = "torch.randn(8192, 16384)"  # they have HALF, and their sums 32 kB
RELU = "torch.randn(16384, 16384)"  # twice HALF


def model(body: str, inputs: str, name: str = "Model", head: str = "") -> str:
    arguments = "x, y" if inputs == VECTORS else "x"
    return MODEL.format(body=body, inputs=inputs, name=name, head=head, arguments=arguments)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of all that is handed over, passage by passage."""
    sizes: list[int] = []
    fill = handover.Passage.fill

    def counted(self: handover.Passage, *arguments: object) -> None:
        sizes.append(self.load.size)
        fill(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(handover.Passage, "fill", counted)
    return sizes


def test_tensors_pass_on_the_card_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "LARGE", 4096)
    runner = Runner()
    runner.device = torch.device("cuda:0")
    with torch.device("cuda:0"):
        value = [torch.rand(60, 40).T, torch.rand(5000) > 0.5, torch.arange(999), torch.rand(4099).to(torch.bfloat16)]
        value += [torch.rand(40, 1).expand(40, 50), torch.full((3 << 20,), float("nan"))]
    with served(runner) as channel:
        for _ in range(3):
            got = channel.ask("echo", value, {}, 64 << 20).value
            for there in (got, runner.seen.pop()):
                for a, b in zip(value, there, strict=True):
                    assert (b.device, b.dtype) == (a.device, a.dtype)
                    assert torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
                assert there[0].stride() == (1, 40)
                assert {t.data_ptr() for t in there}.isdisjoint(t.data_ptr() for t in value)


def test_nothing_old_is_found_in_memory_of_the_card() -> None:
    device = torch.device("cuda:0")
    for number in (1, 2):
        load = handover.Load([[0, {"dtype": "uint8", "shape": [5_000_001], "order": [0]}]])
        passage = handover.Passage(load, device)
        passage.fill([torch.full((5_000_001,), number, dtype=torch.uint8, device=device)])
        seen = torch.zeros(passage.region.size, dtype=torch.uint8, device=device)
        passage.region.read(0, seen)
        assert seen[:5_000_001].eq(number).all()
        assert seen.numel() > 5_000_001
        assert seen[5_000_001:].eq(handover.POISON).all()
        passage.close()


def test_a_large_output_is_judged_on_the_card(run: Run, passed: list[int]) -> None:
    right = model("return torch.relu(torch.outer(x, y))", VECTORS, "ModelNew")
    report = run(right, model("return torch.relu(x[:, None] * y[None, :])", VECTORS), trials=None)
    assert report.verdict.same, report.reason
    assert len(report.trials) == 3
    assert "same" in {p["status"] for p in report.probes}
    assert "different" not in {p["status"] for p in report.probes}
    assert all(case["caught"] for case in report.self_test)
    assert passed.count(HALF) > 10
    assert any("of the batch's 16384 entries" in note for note in report.notes)


def test_one_wrong_entry_of_a_large_output_is_found(run: Run, passed: list[int]) -> None:
    body = "C = torch.relu(torch.outer(x, y)); C[12345, 678] = C[12345, 678] * 1.01 + 0.001; return C"
    reference = model("return torch.relu(x[:, None] * y[None, :])", VECTORS)
    report = run(model(body, VECTORS, "ModelNew"), reference)
    assert report.verdict is Verdict.DIFFERENT
    assert report.wrong["first"]["index"] == [12345, 678]
    assert report.wrong["wrong"] == 1
    assert report.picture is not None
    assert report.picture["outputs"][0]["wrong"] == 1
    assert HALF in passed


def test_large_inputs_stay_on_the_card(run: Run, passed: list[int]) -> None:
    reference = model("return x.sum(1)", ROWS)
    report = run(model("return x.view(8192, 128, 128).sum(2).sum(1)", ROWS, "ModelNew"), reference)
    assert report.verdict.same, report.reason
    assert report.inputs_unmodified is True
    assert passed.count(HALF) > 10
    report = run(model("s = x.sum(1); x[5000, 1] += 1; return s", ROWS, "ModelNew"), reference)
    assert report.verdict is Verdict.DIFFERENT
    assert "modifies its inputs" in report.reason


@pytest.mark.parametrize(
    ("trick", "verdict", "says"),
    [
        ("handover.put = lambda kept, size, descriptor, device: os.close(descriptor)", Verdict.DIFFERENT, "NaN"),
        ("told = [1 << 20, 1 << 20]", Verdict.CRASHED, "sent something that is no answer"),
        ("told = [16384, 16384]", Verdict.DIFFERENT, "has shape (16384, 16384)"),
    ],
    ids=["never copies", "far too large", "another shape"],
)
def test_a_worker_that_lies(run: Run, trick: str, verdict: Verdict, says: str) -> None:
    lie = """
split = handover.split
def lying(tensors, numbers):
    large, others, described = split(tensors, numbers)
    return large, others, [[number, {**meta, "shape": told}] for number, meta in described]
handover.split = lying
"""
    head = f"import os\nfrom mm32.verify.exchange import handover\n{trick}\n{lie if 'told' in trick else ''}"
    reference = model("return torch.relu(x[:, None] * y[None, :])", VECTORS)
    report = run(model("return torch.relu(torch.outer(x, y))", VECTORS, "ModelNew", head), reference)
    assert report.verdict is verdict, report.reason
    assert says in report.reason


def test_a_gigabyte_in_and_out_takes_less_than_twenty_seconds(run: Run, passed: list[int]) -> None:
    right = model("return torch.clamp_min(x, 0)", RELU, "ModelNew")
    report = run(right, model("return torch.relu(x)", RELU), trials=None)
    assert report.verdict.same, report.reason
    assert passed.count(2 * HALF) > 10
    assert report.seconds < 20, f"{report.seconds:.1f} s, {report.left_out}"
    assert not report.left_out
