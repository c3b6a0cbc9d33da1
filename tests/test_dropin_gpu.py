"""mm32 in place of torch's products on a card: torch's own samples of the operators, models, compiled code, graphs, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves

import mm32
from mm32 import dispatch
from mm32 import dropin as module
from mm32 import plan as planning
from mm32.cuda import launch
from mm32.dropin import OPERATORS, DropIn
from support.dropin import APART, MISFITS, outcome

pytestmark = pytest.mark.gpu

NAMES = ("mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear", "einsum")


@pytest.fixture(autouse=True)
def off_before_and_after() -> Iterator[None]:
    mm32.stats(reset=True)
    yield
    mm32.disable()
    mm32.stats(reset=True)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[DropIn]:
    """A drop-in that takes every product that it can compute, small ones too."""
    monkeypatch.setattr(planning.cost.Model, "torch", lambda *args: 1e9)  # seconds
    made = DropIn("CUDA", module.prepare)
    yield made
    made.withdraw_all()


@pytest.fixture(scope="module")
def samples() -> ModuleType:
    return pytest.importorskip(
        "torch.testing._internal.common_methods_invocations",
        reason="torch's samples of operators need the package expecttest",
        exc_type=ImportError,
    )


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())


# ---------------------------------------------------------------------------------------------------------------------
# torch's samples


def info(samples: ModuleType, name: str) -> object:
    (found,) = [op for op in samples.op_db if op.name == name and not op.variant_test_name]
    return found


def leaves(sample: object) -> list[torch.Tensor]:
    everything = tree_leaves((sample.input, sample.args, sample.kwargs))
    return [t for t in everything if isinstance(t, torch.Tensor) and t.requires_grad]


def evaluate(op: Callable, sample: object) -> list[torch.Tensor | None]:
    result = op(sample.input, *sample.args, **sample.kwargs)
    if not leaves(sample):
        return [result.detach()]
    gradients = torch.autograd.grad(result, leaves(sample), torch.ones_like(result), allow_unused=True)
    return [result.detach(), *gradients]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str, requires_grad: bool, always: DropIn, samples: ModuleType, seed: int) -> None:
    op = info(samples, name)
    for sample in op.sample_inputs("cuda", torch.float32, requires_grad=requires_grad):
        # Values are up to 9 and sums have up to 20 products: 1e-3, which torch allows between a card and the CPU, is ten units in
        # the last place of such a sum.
        exact = sample.transform(
            lambda t: t.detach().double().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t
        )
        wanted = evaluate(op, exact)
        always.request("test", None)
        found = evaluate(op, sample)
        always.withdraw("test")
        for one, two in zip(found, wanted, strict=True):
            assert (one is None) == (two is None)
            if one is not None:
                assert one.dtype == torch.float32
                torch.testing.assert_close(one.double(), two, rtol=1e-5, atol=1e-3)
    assert always.stats().taken > 0


@pytest.mark.parametrize("misfit", MISFITS)
def test_errors_are_torchs(misfit: str, always: DropIn) -> None:
    """Where torch's CUDA kernels accept what its CPU kernels refuse, the value is torch's."""

    def call() -> object:
        return MISFITS[misfit]("cuda")

    before = outcome(call)
    always.request("test", None)
    assert outcome(call) == before
    # torch refuses an inference tensor only after the product.
    assert "inference" in misfit or not always.stats().kernels


@pytest.mark.parametrize("case", APART)
@pytest.mark.parametrize("other", ["cpu", "cuda:1"])
def test_devices_that_differ_are_torchs_error(other: str, case: str, always: DropIn) -> None:
    if other == "cuda:1" and torch.cuda.device_count() < 2:
        pytest.skip("needs 2 CUDA devices, there is 1")

    def call() -> object:
        return APART[case]("cuda:0", other)

    before = outcome(call)
    assert before[0] != "value"
    always.request("test", None)
    assert outcome(call) == before
    assert not always.stats().kernels


# ---------------------------------------------------------------------------------------------------------------------
# Sums, outputs


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 1), (1, 0.5), (0, 2), (-0.5, 1), (0.25, -3)])
@pytest.mark.parametrize("sizes", [(3, 5, 4), (200, 300, 1000)])
def test_sums(sizes: tuple[int, int, int], beta: float, alpha: float, always: DropIn, seed: int) -> None:
    m, n, k = sizes
    for batch in ((), (3,)):
        function = torch.baddbmm if batch else torch.addmm
        a, b = torch.randn(*batch, m, k, device="cuda"), torch.randn(*batch, n, k, device="cuda").mT
        for shape in ((n,), (m, 1), (*batch, m, n)):
            addend = torch.randn(shape, device="cuda")
            wanted = function(addend.double(), a.double(), b.double(), beta=beta, alpha=alpha)
            if beta == 0:
                addend = torch.full(shape, torch.nan, device="cuda")
            for out in (None, torch.empty(*batch, n, m, device="cuda").mT):
                always.request("test", None)
                result = function(addend, a, b, beta=beta, alpha=alpha, **({} if out is None else {"out": out}))
                always.withdraw("test")
                assert out is None or result is out
                assert relative(result, wanted) <= 1e-6
    assert not always.stats().reasons


def in_place(how: str, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **scales: float) -> torch.Tensor:
    """Call the method, or the function with the addend as `out`."""
    if how == "method":
        return (c.addmm_ if a.dim() == 2 else c.baddbmm_)(a, b, **scales)
    return (torch.addmm if a.dim() == 2 else torch.baddbmm)(c, a, b, **scales, out=c)


HOWS = ["method", "out"]


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (1, -1), (0, 1), (0, 2), (-0.5, 1), (0.95, 0.05)])
@pytest.mark.parametrize("sizes", [(3, 5, 4), (1, 300, 1000), (200, 300, 1000)])
@pytest.mark.parametrize("how", HOWS)
def test_sums_in_place(
    how: str, sizes: tuple[int, int, int], beta: float, alpha: float, always: DropIn, seed: int
) -> None:
    """Sums are right in a tensor of its own, and in a part of a larger tensor that is stored by rows or by columns; the rest of
    that stays as it was."""
    m, n, k = sizes
    for batch in ((), (3,)):
        a, b = torch.randn(*batch, m, k, device="cuda"), torch.randn(*batch, n, k, device="cuda").mT
        whole = torch.randn(*batch, m, n, device="cuda")
        rows, columns = (torch.randn(*batch, *s, device="cuda") for s in ((m + 7, n + 9), (n + 9, m + 7)))
        for memory, c in (
            (whole, whole),
            (rows, rows[..., 4 : m + 4, 5 : n + 5]),
            (columns, columns.mT[..., 4 : m + 4, 5 : n + 5]),
        ):
            wanted = beta * c.double() + alpha * (a.double() @ b.double())
            around = memory.clone()
            around.as_strided(c.shape, c.stride(), c.storage_offset()).zero_()
            if beta == 0:
                c.fill_(torch.nan)
            always.request("test", None)
            result = in_place(how, c, a, b, beta=beta, alpha=alpha)
            always.withdraw("test")
            assert result is c
            assert relative(c, wanted) <= 1e-6
            c.zero_()
            assert torch.equal(memory, around)
    assert (always.stats().taken, always.stats().left) == (6, 0)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("beta", "alpha"), [(1, -1), (0.95, 0.05)])
def test_sums_in_place_are_as_accurate_as_torchs(
    how: str, beta: float, alpha: float, always: DropIn, seed: int
) -> None:
    g, h = torch.randn(1024, 4096, device="cuda"), torch.randn(4096, 768, device="cuda")
    c = torch.randn(1024, 768, device="cuda")
    exact = beta * c.double() + alpha * (g.double() @ h.double())
    torchs = in_place(how, c.clone(), g, h, beta=beta, alpha=alpha)
    always.request("test", "fp32")
    first, second = (in_place(how, c.clone(), g, h, beta=beta, alpha=alpha) for _ in range(2))
    assert always.stats().taken == 2
    assert torch.equal(first, second)
    assert relative(first, exact) <= relative(torchs, exact)


def test_a_blocked_factorisation(always: DropIn, seed: int) -> None:
    """Blocks of columns of one buffer are updated by products of blocks beside them."""
    n, block = 1024, 256
    x = torch.randn(n, n, device="cuda")
    covariance = x @ x.T / n + torch.eye(n, device="cuda")

    def factor(a: torch.Tensor) -> torch.Tensor:
        for start in range(0, n, block):
            stop = start + block
            diagonal = a[start:stop, start:stop] = torch.linalg.cholesky(a[start:stop, start:stop])
            panel = torch.linalg.solve_triangular(diagonal.mT, a[stop:, start:stop], upper=True, left=False)
            a[stop:, start:stop] = panel
            for left in range(stop, n, block):
                p, q = a[left:, start:stop], a[left : left + block, start:stop]
                torch.addmm(a[left:, left : left + block], p, q.T, alpha=-1, out=a[left:, left : left + block])
        return a.tril()

    exact = torch.linalg.cholesky(covariance.double())
    torchs = factor(covariance.clone())
    always.request("test", "fp32")
    ours = factor(covariance.clone())
    always.withdraw("test")
    assert always.stats().taken >= 6
    assert "out shares memory with an input" not in always.stats().reasons
    assert relative(ours, exact) <= 1.5 * relative(torchs, exact)


def test_gradients_and_versions_in_place(always: DropIn, seed: int) -> None:
    c, a, b = (torch.randn(s, device="cuda") for s in ((200, 100), (200, 300), (300, 100)))

    def run(dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [t.to(dtype, copy=True).requires_grad_() for t in (c, a, b)]
        x = leaves[0] * 1
        assert x.addmm_(*leaves[1:], beta=0.95, alpha=0.05) is x
        assert x._version == 1
        torch.addmm(x.detach(), a.to(dtype), b.to(dtype), out=x.detach())  # out is the addend's memory
        assert x._version == 2
        return [x.detach(), *torch.autograd.grad(x, leaves, torch.ones_like(x))]

    wanted = run(torch.float64)
    always.request("test", None)
    found = run(torch.float32)
    assert (always.stats().taken, always.stats().left) == (4, 0)  # two forward, and two gradients
    for one, two in zip(found, wanted, strict=True):
        assert relative(one, two) <= 1e-6


def test_in_place_on_an_operand_is_torchs(always: DropIn, seed: int) -> None:
    memory, b = torch.randn(300, 200, device="cuda"), torch.randn(200, 200, device="cuda")
    always.request("test", None)
    memory[:200].addmm_(memory[100:], b)
    memory[:200].addmm_(b, memory[:200])
    assert (always.stats().kernels, always.stats().reasons) == ({}, {"out shares memory with an input": 2})


def test_graph_capture_in_place(always: DropIn, seed: int) -> None:
    """Each replay changes the tensor once."""
    g, stat = torch.randn(512, 1024, device="cuda"), torch.zeros(512, 512, device="cuda")
    always.request("test", None)
    stat.addmm_(g, g.T, beta=0.95, alpha=0.05)  # loads the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stat.addmm_(g, g.T, beta=0.95, alpha=0.05)
    assert (always.stats().taken, always.stats().left) == (2, 0)
    stat.zero_()
    exact = stat.double()
    for _ in range(4):
        g.normal_()
        graph.replay()
        exact = 0.95 * exact + 0.05 * (g.double() @ g.double().T)
        assert relative(stat, exact) <= 1e-6


@pytest.mark.parametrize("how", HOWS)
def test_without_memory_for_the_product_torch_adds_in_place(
    how: str, always: DropIn, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = (torch.randn(s, device="cuda") for s in ((500, 300), (300, 400), (500, 400)))
    wanted = in_place(how, c.clone(), a, b, alpha=-1)
    always.request("test", None)
    in_place(how, c.clone(), a, b, alpha=-1)  # here it is decided that mm32 takes this form

    def short(*args: object, **options: object) -> None:
        raise torch.OutOfMemoryError("out of memory, as this test has it")

    monkeypatch.setattr(dispatch, "empty", short)
    assert torch.equal(in_place(how, c, a, b, alpha=-1), wanted)
    assert always.stats().reasons == {"no memory for a product that is added in place": 1}


def test_named_tensors_are_refused_with_a_way_out(always: DropIn) -> None:
    if not hasattr(torch.Tensor, "has_names"):
        pytest.skip("this torch has no named tensors")
    a = torch.ones(2, 3, device="cuda", names=("rows", "inner"))
    b = torch.ones(3, 4, device="cuda", names=("inner", "columns"))
    always.request("test", None)
    with pytest.raises(
        RuntimeError, match=r"Named tensors.*drop names via `tensor = tensor.rename\(None\)`"
    ):  # torch's own error
        torch.mm(a, b)
    always.withdraw_all()
    assert torch.mm(a, b).names == ("rows", "columns")


# ---------------------------------------------------------------------------------------------------------------------
# Models


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 2048)).cuda()


def step(net: Callable, x: torch.Tensor, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    y = net(x)
    return [y.detach(), *torch.autograd.grad(y.square().mean(), parameters)]


def test_a_model_is_as_accurate_as_with_torch(seed: int) -> None:
    net, x = network(), torch.randn(4096, 4096, device="cuda")
    torchs = step(net, x, list(net.parameters()))
    with mm32.enabled():
        ours = step(net, x, list(net.parameters()))
        again = step(net, x, list(net.parameters()))
    off = step(net, x, list(net.parameters()))
    exact_net = network().double()
    exact_net.load_state_dict({name: value.double() for name, value in net.state_dict().items()})
    exact = step(exact_net, x.double(), list(exact_net.parameters()))
    for mine, second, theirs, after, truth in zip(ours, again, torchs, off, exact, strict=True):
        # 1e-6 is slack for tensors of which torch's own error happens to be far smaller than that.
        assert relative(mine, truth) <= 1.5 * relative(theirs, truth) + 1e-6
        assert torch.equal(mine, second), "a second run has other bits"
        assert torch.equal(after, theirs), "torch's results changed after mm32 was off"
    stats = mm32.stats()
    if torch.cuda.get_device_capability() == (9, 0):
        # Two forward, two gradients of weights, one of the hidden layer; all of it twice.
        assert (stats.kernels, stats.reasons) == ({"tensorcore": 10}, {})
        assert stats.estimated_seconds_saved > 0


def test_small_products_stay_with_torch(seed: int) -> None:
    """This holds for products that are not looked up, and for those that take a card less time than the host."""
    for size in (64, 200):
        a, b = torch.randn(size, size, device="cuda"), torch.randn(size, size, device="cuda")
        wanted = a @ b
        with mm32.enabled():
            assert torch.equal(a @ b, wanted)
    stats = mm32.stats()
    assert (stats.taken, stats.left) == (0, 2)
    # For size 200 the reason may be that torch's kernel is expected to be faster.
    assert stats.reasons[module.TOO_SMALL] >= 1


def test_a_compiled_model_arrives(always: DropIn, seed: int) -> None:
    torch._dynamo.reset()
    net, x = network(), torch.randn(1024, 4096, device="cuda")
    parameters = list(net.parameters())
    wanted = step(net, x, parameters)
    compiled = torch.compile(net, fullgraph=True)
    always.request("test", None)
    step(compiled, x, parameters)
    always.stats(reset=True)
    found = step(compiled, x, parameters)
    stats = always.stats()
    assert stats.taken == 5, stats
    for one, two in zip(found, wanted, strict=True):
        assert relative(one, two.double()) <= 5e-6
    always.withdraw_all()
    step(compiled, x, parameters)
    assert always.stats().taken == 5
    torch._dynamo.reset()


def test_compiled_with_cuda_graphs(always: DropIn, seed: int) -> None:
    torch._dynamo.reset()
    w = torch.randn(4096, 4096, device="cuda")
    compiled = torch.compile(lambda x: (x @ w).relu(), mode="reduce-overhead", fullgraph=True)
    always.request("test", None)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(1024, 4096, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            assert relative(compiled(x), (x.double() @ w.double()).relu()) <= 1e-6
    assert always.stats().taken > 0
    torch._dynamo.reset()


def test_precision_follows_torch(seed: int) -> None:
    a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")
    truth = a.double() @ b.double()
    made, before = DropIn("CUDA", module.prepare), torch.backends.cuda.matmul.fp32_precision
    errors = {}
    try:
        for value in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = value
            made.request("test", None)
            errors[value] = relative(a @ b, truth)
            made.withdraw("test")
            assert torch.backends.cuda.matmul.fp32_precision == value
    finally:
        made.withdraw_all()
        torch.backends.cuda.matmul.fp32_precision = before
    assert errors["ieee"] <= 2e-6
    assert 1e-5 <= errors["tf32"] <= 1e-3


# ---------------------------------------------------------------------------------------------------------------------
# Under torch's modes and transforms


def test_autocast_still_lowers(always: DropIn, seed: int) -> None:
    a, b = torch.randn(200, 300, device="cuda"), torch.randn(300, 100, device="cuda")
    always.request("test", None)
    with torch.autocast("cuda", torch.bfloat16):
        assert (a @ b).dtype == torch.bfloat16
        assert mm32.matmul(a, b).dtype == torch.float32  # an explicit call
    assert always.stats().reasons == {"not float32": 1}


def test_deterministic_mode_has_nothing_to_change(always: DropIn, seed: int) -> None:
    """mm32 is deterministic anyway, and cuBLAS's own check of CUBLAS_WORKSPACE_CONFIG does not refuse what mm32 runs."""
    a, b = torch.randn(200, 3000, device="cuda"), torch.randn(3000, 100, device="cuda")
    addend, wanted = torch.randn(200, 100, device="cuda"), a.double() @ b.double()
    always.request("test", None)
    torch.use_deterministic_algorithms(True)  # this also fills new memory with NaN
    try:
        products = [a @ b for _ in range(5)]
        sums = [torch.addmm(addend, a, b, beta=0.5, alpha=2) for _ in range(5)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(other, products[0]) for other in products)
    assert all(torch.equal(other, sums[0]) for other in sums)
    assert relative(products[0], wanted) <= 3e-6
    assert relative(sums[0], 0.5 * addend.double() + 2 * wanted) <= 3e-6
    assert (always.stats().taken, always.stats().left) == (10, 0)


def test_fake_and_meta_tensors_do_not_arrive(always: DropIn) -> None:
    a, b = torch.ones(20, 30, device="cuda"), torch.ones(30, 10, device="cuda")
    always.request("test", None)
    with FakeTensorMode() as mode:
        assert (mode.from_tensor(a) @ mode.from_tensor(b)).shape == (20, 10)
    assert (a.to("meta") @ b.to("meta")).device.type == "meta"
    assert (always.stats().taken, always.stats().left) == (0, 0)


@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "jacrev", "hessian", "gradients_of_samples"])
def test_transforms(transform: str, always: DropIn, seed: int) -> None:
    a, b = torch.randn(6, 5, 4, device="cuda"), torch.randn(4, 3, device="cuda")

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ b).tanh().square().sum()

    run: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
        "vmap": torch.vmap(torch.mm, (0, None)),
        "grad": torch.func.grad(loss, (0, 1)),
        "jvp": lambda a, b: torch.func.jvp(loss, (a, b), (torch.ones_like(a), torch.ones_like(b))),
        "jacrev": torch.func.jacrev(lambda a, b: (a @ b).tanh().sum(0), 1),
        "hessian": torch.func.hessian(loss, 1),
        "gradients_of_samples": torch.vmap(torch.func.grad(loss, 1), (0, None)),
    }
    wanted = run[transform](a.double(), b.double())
    always.request("test", None)
    found = run[transform](a, b)
    assert always.stats().taken > 0
    for one, two in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        torch.testing.assert_close(one.double(), two, rtol=1e-4, atol=1e-4)


class Marked(torch.Tensor):
    pass


def test_subclasses_and_inference_mode(always: DropIn, seed: int) -> None:
    a, b = torch.randn(20, 30, device="cuda"), torch.randn(30, 10, device="cuda")
    always.request("test", None)
    result = a.as_subclass(Marked) @ b
    with torch.inference_mode():
        inside = a @ b
    assert type(result) is Marked
    assert inside.is_inference()
    assert torch.equal(result.as_subclass(torch.Tensor), inside)
    assert relative(inside, a.double() @ b.double()) <= 1e-6
    assert always.stats().taken == 2


def test_compiled_for_any_size(always: DropIn, seed: int) -> None:
    torch._dynamo.reset()
    w = torch.randn(300, 100, device="cuda")
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(lambda x: (x @ w).relu(), fullgraph=True, dynamic=True, backend=counter)
    always.request("test", None)
    for rows in (200, 333, 64):
        x = torch.randn(rows, 300, device="cuda")
        assert relative(compiled(x), (x.double() @ w.double()).relu()) <= 1e-6
    assert counter.frame_count == 1
    assert always.stats().taken >= 3
    torch._dynamo.reset()


@pytest.mark.parametrize("size", [32, 1024])
def test_explicit_calls_are_not_counted(size: int, always: DropIn, seed: int) -> None:
    """Neither mm32.matmul's own kernels nor torch's, which it uses at small sizes, are calls of the drop-in."""
    a, b = torch.randn(size, size, device="cuda"), torch.randn(size, size, device="cuda")
    wanted = mm32.matmul(a, b)
    always.request("test", None)
    assert torch.equal(mm32.matmul(a, b), wanted)
    assert (always.stats().taken, always.stats().left) == (0, 0)


def test_a_reset_loses_no_count_of_another_thread(always: DropIn) -> None:
    a, each, counted = torch.eye(4, device="cuda"), 500, 0
    always.request("test", None)
    threads = [threading.Thread(target=lambda: [torch.mm(a, a) for _ in range(each)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        counted += always.stats(reset=True).taken
    assert counted + always.stats(reset=True).taken == 3 * each


# ---------------------------------------------------------------------------------------------------------------------
# Graphs, threads, on and off


def test_graph_capture(always: DropIn, seed: int) -> None:
    x, w = torch.randn(512, 1024, device="cuda"), torch.randn(1024, 768, device="cuda")
    always.request("test", None)
    x @ w  # loads the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x @ w
    assert always.stats(reset=True).taken == 2
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert relative(y, x.double() @ w.double()) <= 1e-6
    assert always.stats().taken == 0


def test_a_form_first_seen_in_a_capture_is_torchs(always: DropIn, seed: int) -> None:
    x, w = torch.randn(509, 1021, device="cuda"), torch.randn(1021, 769, device="cuda")
    x @ w  # makes torch allocate its own workspace before the capture
    always.request("test", None)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x @ w
    ((reason, count),) = always.stats().reasons.items()
    assert "while a CUDA graph was captured" in reason
    assert count == 1
    x.normal_()
    graph.replay()
    assert relative(y, x.double() @ w.double()) <= 5e-6
    x @ w
    assert always.stats().taken == 1


def test_threads(always: DropIn, seed: int) -> None:
    forms = [(torch.randn(m, 512, device="cuda"), torch.randn(512, 384, device="cuda")) for m in (100, 300, 500)]
    wanted = [a.double() @ b.double() for a, b in forms]
    failures: list[BaseException] = []
    torch.cuda.synchronize()

    def work() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(30):
                    for (a, b), expected in zip(forms, wanted, strict=True):
                        assert relative(a @ b, expected) <= 1e-6
        except BaseException as error:
            failures.append(error)

    always.request("test", None)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (always.stats().taken, always.stats().left) == (2 * 30 * 3, 0)


def test_off_is_as_before() -> None:
    def table() -> list[str]:
        return [f(f"aten::{op}") for op in OPERATORS for f in (torch._C._dispatch_dump, torch._C._dispatch_dump_table)]

    before = table()
    mm32.enable("ieee")
    with mm32.enabled():
        assert table() != before
    assert table() != before
    mm32.disable()
    assert table() == before


def test_where_memory_is_short_torch_runs_the_product(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")
    wanted = a @ b

    def short(self: launch.Executable, *args: object) -> None:
        raise torch.OutOfMemoryError("out of memory, as this test has it")

    monkeypatch.setattr(launch.Executable, "__call__", short)
    with mm32.enabled():
        assert torch.equal(a @ b, wanted)
    assert mm32.stats().reasons == {"no memory for mm32's workspace": 1}
