"""Several cards, threads, streams, processes, CUDA graphs of whole steps, and deterministic mode."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import mm32
from mm32 import dropin
from mm32 import plan as planning
from mm32.activations import names
from mm32.plan import KERNELS
from support.gpu import assert_close, reference
from support.ops import DEVICES, make

gpu = pytest.mark.gpu
EACH_KERNEL = pytest.mark.parametrize("kernel", ["auto", *KERNELS])


def randn(*shape: int, device: str = "cuda") -> torch.Tensor:
    return make(shape, device)


# ---------------------------------------------------------------------------------------------------------------------
# Two cards


@pytest.fixture
def two_cards() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 CUDA devices, there are {torch.cuda.device_count()}")


@gpu
@EACH_KERNEL
def test_tensors_of_a_card_that_is_not_current(kernel: str, two_cards: None, seed: int) -> None:
    """Results, gradients and out= are right on cuda:1 while cuda:0 is current, and cuda:0 stays current."""
    a, b, bias = (randn(*s, device="cuda:1") for s in ((130, 300), (300, 65), (65,)))
    for _ in range(2):  # first planned and loaded, then found by the look-up
        with torch.cuda.device(0):
            result = mm32.matmul(a, b, bias=bias, activation="relu", kernel=kernel)
            out = mm32.matmul(a, b, kernel=kernel, out=torch.empty(130, 65, device="cuda:1"))
            x = a.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(mm32.matmul(x, b, kernel=kernel), x, out)
            assert torch.cuda.current_device() == 0
        assert {result.device.index, out.device.index, gradient.device.index} == {1}
        assert_close(result, *reference(a, b, bias, "relu"))
        assert_close(out, *reference(a, b))
        assert_close(gradient, *reference(out, b.T))


@gpu
def test_both_cards_in_turn(two_cards: None, seed: int) -> None:
    """The same form on two cards has two plans and two loaded kernels, which are not mixed up."""
    for _ in range(3):
        for device in ("cuda:0", "cuda:1"):
            a, b = randn(130, 300, device=device), randn(300, 65, device=device)
            assert_close(mm32.matmul(a, b), *reference(a, b))


@gpu
def test_the_stream_is_that_of_the_tensors_card(two_cards: None, seed: int) -> None:
    """A product that is started while cuda:0 is current waits for what is queued on cuda:1's current stream."""
    a, b, late = (
        torch.zeros(130, 300, device="cuda:1"),
        *(randn(*s, device="cuda:1") for s in ((300, 65), (130, 300))),
    )
    mm32.matmul(a, b)
    torch.cuda.synchronize(1)
    stream = torch.cuda.Stream(device="cuda:1")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        a.copy_(late)
        with torch.cuda.device(0):  # leaves cuda:1's current stream as it is
            result = mm32.matmul(a, b)
    stream.synchronize()
    assert_close(result, *reference(late, b))


@gpu
def test_operands_on_two_cards_are_refused(two_cards: None) -> None:
    a, b = randn(3, 3, device="cuda:0"), randn(3, 3, device="cuda:1")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"same device, but a is on cuda:0 and b is on cuda:1"):
            mm32.matmul(a, b)
        with pytest.raises(RuntimeError, match=r"same device, but a is on cuda:0 and bias is on cuda:1"):
            mm32.matmul(a, a, bias=b[0])
        with pytest.raises(RuntimeError, match=r"out must be a dense torch.float32 tensor on cuda:0.*on cuda:1"):
            mm32.matmul(a, a, out=b)


@gpu
def test_torchs_products_of_a_card_that_is_not_current(
    two_cards: None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drop-in computes results, out=, a sum with factors, and gradients on cuda:1 while cuda:0 is current."""
    monkeypatch.setattr(planning.cost.Model, "torch", lambda *args: 1e9)  # seconds
    made = dropin.DropIn("CUDA", dropin.prepare)
    a, b, addend = (randn(*s, device="cuda:1") for s in ((130, 300), (300, 65), (130, 65)))
    exact, slope = a.double() @ b.double(), addend.double() @ b.double().T
    made.request("test", None)
    try:
        for _ in range(2):
            with torch.cuda.device(0):
                result = a @ b
                out = torch.mm(a, b, out=torch.empty(130, 65, device="cuda:1"))
                total = torch.addmm(addend, a, b, beta=0.5, alpha=-2)
                x = a.clone().requires_grad_()
                (gradient,) = torch.autograd.grad(x @ b, x, addend)
                assert torch.cuda.current_device() == 0
            for found, wanted in (
                (result, exact),
                (out, exact),
                (total, 0.5 * addend.double() - 2 * exact),
                (gradient, slope),
            ):
                assert found.device.index == 1
                torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
    finally:
        made.withdraw_all()
    assert (made.stats().taken, made.stats().left) == (2 * 5, 0)


@gpu
def test_packed_operands_and_layers_of_a_card_that_is_not_current(two_cards: None, seed: int) -> None:
    layer, x = mm32.nn.Linear(300, 65, device="cuda:1", activation="gelu").eval(), randn(33, 300, device="cuda:1")
    with torch.cuda.device(0), torch.no_grad():
        for _ in range(2):
            assert_close(layer(x), *reference(x, layer.weight.T, layer.bias, "gelu"))
            layer.weight.mul_(2)
        packed = mm32.pack(layer.weight.T)
        assert packed.reason is None
        assert packed.memory.device == packed.source.device == x.device
        assert_close(mm32.matmul(x, packed), *reference(x, layer.weight.T, kernel="tensorcore"))
        assert torch.cuda.current_device() == 0


# ---------------------------------------------------------------------------------------------------------------------
# Threads and streams


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run work(0), work(1), … at once. Raises what any of them raised."""
    gate, errors = threading.Barrier(count), []

    def run(i: int) -> None:
        try:
            gate.wait(60)
            work(i)
        except BaseException as error:
            errors.append(error)
            gate.abort()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("device", DEVICES)
def test_threads_that_train(device: str, seed: int) -> None:
    """Eight threads run at once, half of them forward and backward, half forward only, each in a grad mode of its own."""
    inputs = [(make((33 + i, 65), device), make((65, 17 + i), device)) for i in range(8)]
    results: dict[int, list[torch.Tensor]] = {}

    def work(i: int) -> None:
        a, b = inputs[i]
        results[i] = []
        for _ in range(20):
            if i % 2:
                x = a.clone().requires_grad_()
                results[i] += torch.autograd.grad(mm32.matmul(x, b, activation="tanh").sum(), x)
            else:
                with torch.no_grad():
                    results[i].append(mm32.matmul(a, b, activation="tanh"))
        if device == "cuda":
            torch.cuda.current_stream().synchronize()

    in_threads(work, 8)
    for i, (a, b) in enumerate(inputs):
        c = torch.tanh(a.double() @ b.double())
        wanted = ((1 - c * c) @ b.double().T if i % 2 else c).float()
        assert len(results[i]) == 20
        for result in results[i]:
            torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)


@gpu
@pytest.mark.parametrize("kernel", ["auto", "simt", "tensorcore"])
def test_two_streams_at_once(kernel: str, seed: int) -> None:
    """Products of the same form on two streams share neither their workspace nor their order."""
    b = randn(1024, 512)
    operands = [randn(512, 1024) for _ in range(2)]
    mm32.matmul(operands[0], b, kernel=kernel)
    torch.cuda.synchronize()
    streams, results = [torch.cuda.Stream() for _ in range(2)], [[], []]
    for _ in range(50):
        for stream, a, kept in zip(streams, operands, results, strict=True):
            with torch.cuda.stream(stream):
                kept.append(mm32.matmul(a, b, kernel=kernel))
    torch.cuda.synchronize()
    for a, kept in zip(operands, results, strict=True):
        assert_close(kept[0], *reference(a, b))
        for other in kept[1:]:
            assert torch.equal(other, kept[0])


# ---------------------------------------------------------------------------------------------------------------------
# Processes


def reported(work: Callable[..., Any], answers: Any, *args: Any) -> None:
    """Run `work` in a child process, and report its answer or the text of its error."""
    try:
        answers.put(("answer", work(*args)))
    except BaseException:
        answers.put(("error", traceback.format_exc()))


def in_process(method: str, work: Callable[..., Any], *args: Any) -> tuple[str, Any]:
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=reported, args=(work, answers, *args), daemon=True)
    child.start()
    try:
        return answers.get(timeout=240)
    finally:
        child.join(10)
        if child.is_alive():
            child.kill()


def largest_error(device: str) -> float:
    """Return the largest error of one product and its gradient, relative to the product's largest element."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    a, b = make((130, 300), device, requires_grad=True), make((300, 65), device)
    c = mm32.matmul(a, b)
    (gradient,) = torch.autograd.grad(c.sum(), a)
    wanted, slope = a.detach().double() @ b.double(), b.double().sum(1).expand(130, 300)
    error = max(float((c - wanted).abs().max()), float((gradient - slope).abs().max()))
    return error / float(wanted.abs().max())


@pytest.mark.parametrize("device", DEVICES)
def test_a_spawned_process(device: str) -> None:
    kind, answer = in_process("spawn", largest_error, device)
    assert kind == "answer", answer
    assert answer <= 1e-5


def product_of_ones(size: int) -> float:
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    return float(mm32.matmul(torch.ones(size, size), torch.ones(size, size), activation="relu").sum())


def test_a_forked_process_on_the_cpu() -> None:
    assert in_process("fork", product_of_ones, 8) == ("answer", 512.0)


def error_of_torchs_product(device: str) -> float:
    """Return the error of `a @ b` with mm32 enabled; on the card, the size is one that mm32 takes over."""
    torch.set_num_threads(1)
    size = 2048 if device == "cuda" else 64
    a, b = make((size, size), device), make((size, size), device)
    with mm32.enabled():
        c = a @ b
    taken = mm32.stats().taken
    if taken != (device == "cuda"):
        raise AssertionError(f"mm32 ran {taken} products: {mm32.stats()}")
    return float((c - a.double() @ b.double()).norm() / c.norm())


@pytest.mark.parametrize("device", DEVICES)
def test_enabled_in_a_spawned_process(device: str) -> None:
    kind, answer = in_process("spawn", error_of_torchs_product, device)
    assert kind == "answer", answer
    assert answer <= 2e-6


def test_enabled_in_a_forked_process_on_the_cpu() -> None:
    """If mm32 is turned on in the parent, it is on in the child, and can be turned off there."""
    mm32.enable()
    try:
        assert in_process("fork", product_by_torch, 8) == ("answer", 512.0)
    finally:
        mm32.disable()


def product_by_torch(size: int) -> float:
    torch.set_num_threads(1)
    once = float((torch.ones(size, size) @ torch.ones(size, size)).sum())
    mm32.disable()
    again = float((torch.ones(size, size) @ torch.ones(size, size)).sum())
    return once if once == again else float("nan")


INHERITED: dict[str, torch.Tensor] = {}


def product_of_inherited(form: str) -> float:
    return float(mm32.matmul(INHERITED[form], INHERITED[form]).sum())


@pytest.fixture
def inherited() -> Iterator[None]:
    """Operands that a forked child inherits: of one form that the parent has used, and one that it has not."""
    INHERITED.update(used=randn(64, 64), unused=randn(65, 65))
    mm32.matmul(INHERITED["used"], INHERITED["used"])
    torch.cuda.synchronize()
    yield
    INHERITED.clear()


@gpu
@pytest.mark.parametrize("form", ["used", "unused"])
def test_a_forked_process_cannot_use_the_card(form: str, inherited: None) -> None:
    """CUDA does not survive a fork. The error says so, in torch's words or the driver's; nothing hangs, no number comes back."""
    kind, answer = in_process("fork", product_of_inherited, form)
    assert kind == "error", answer
    assert "Cannot re-initialize CUDA in forked subprocess" in answer or "initialization error" in answer


# ---------------------------------------------------------------------------------------------------------------------
# CUDA graphs


@gpu
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_a_training_step_in_a_graph(activation: str | None, seed: int) -> None:
    """Forward and backward are captured once, and replayed with other data."""
    a, b, bias = randn(130, 300).requires_grad_(), randn(300, 65).requires_grad_(), randn(65).requires_grad_()
    weight = randn(130, 65)

    def step() -> tuple[torch.Tensor, ...]:
        c = mm32.matmul(a, b, bias=bias, activation=activation)
        return (c.detach(), *torch.autograd.grad(c, (a, b, bias), weight))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(3):
        with torch.no_grad():
            for t in (a, b, bias, weight):
                t.copy_(torch.randn_like(t))
            for t in captured:
                t.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for got, wanted in zip(captured, step(), strict=True):
            assert torch.equal(got, wanted)
        assert_close(captured[0], *reference(a.detach(), b.detach(), bias.detach(), activation))


# ---------------------------------------------------------------------------------------------------------------------
# Deterministic mode


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Deterministic mode. There torch also fills new tensors with NaN, so nothing may depend on what fresh memory holds."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", [None, *names()])
def test_the_same_bits_in_deterministic_mode(
    activation: str | None, device: str, deterministic: None, seed: int
) -> None:
    """The result and the gradients of a layer have the same bits in every run."""
    x, weight, bias = (make(s, device, requires_grad=True) for s in ((3, 130, 300), (65, 300), (65,)))
    runs = []
    for _ in range(5):
        c = mm32.linear(x, weight, bias, activation=activation)
        runs.append((c.detach(), *torch.autograd.grad(c.square().sum(), (x, weight, bias))))
    assert not any(t.isnan().any() for t in runs[0])
    for other in runs[1:]:
        for one, two in zip(other, runs[0], strict=True):
            assert torch.equal(one, two)


@gpu
@EACH_KERNEL
@pytest.mark.parametrize("sizes", [(130, 300, 65), (64, 20000, 64), (1, 4096, 1), (513, 129, 257)])
def test_the_same_bits_by_every_kernel(
    sizes: tuple[int, int, int], kernel: str, deterministic: None, seed: int
) -> None:
    m, k, n = sizes
    a, b = randn(m, k), randn(n, k).T
    first = mm32.matmul(a, b, kernel=kernel)
    assert_close(first, *(t.cuda() for t in reference(a.cpu(), b.cpu())))  # on the CPU: cuBLAS would refuse this mode
    for _ in range(20):
        assert torch.equal(mm32.matmul(a, b, kernel=kernel), first)
