"""Exported files on a card: their results agree with mm32's to the bit, and with float64's within a kernel's accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch

import mm32
from mm32 import gemm
from mm32 import plan as planning
from mm32.activations import names
from mm32.export import export
from support.export import here, inputs, loader, matrices
from support.gpu import assert_close, beyond_the_first_tier, reference

pytestmark = pytest.mark.gpu

ANY_SIZE = ("naive", "dot", "tiled", "simt")  # kernels whose files take any sizes; others' files take only their own


@pytest.fixture
def load(tmp_path, tmp_path_factory, monkeypatch) -> Callable[[str], ModuleType]:
    """A function that loads a file. Builds are kept for the session, since a file's text determines its build's name."""
    return loader(tmp_path, tmp_path_factory.getbasetemp() / "builds", monkeypatch)


def skip_unless_supported(kernel: str) -> None:
    why = planning.unsupported(kernel, here())
    if why is not None:
        pytest.skip(why)


@pytest.fixture
def hopper() -> None:
    skip_unless_supported("tensorcore")


def check(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **options) -> None:
    assert_close(result, *reference(a, b, **options))


@pytest.mark.parametrize("kernel", ANY_SIZE)
@pytest.mark.parametrize("layout", gemm.LAYOUTS)
def test_computes_what_mm32_computes(load, seed, kernel, layout):
    """A file computes the size it was exported for, others, and views. For simt, one file is also exported for sizes that no
    16-byte access fits."""
    files = [((96, 80, 64), [(96, 80, 64), (300, 132, 260), (4, 4, 4), (8, 12, 0), (0, 4, 4)])]
    odd = [(97, 81, 63), (1, 1, 1), (129, 65, 33), (5, 3, 0)]
    if kernel == "simt":
        files.append(((97, 81, 63), odd))
    else:
        files[0][1].extend(odd)
    for exported_for, sizes in files:
        m, n, k = exported_for
        text = export(layout, m=m, n=n, k=k, bias=True, activation="relu", kernel=kernel, device=here())
        model = load(text).ModelNew()
        for m, n, k in sizes:
            A, B, bias = inputs(layout, m, n, k, bias=True, device="cuda")
            a, b = matrices(layout, A, B)
            result = model(A, B, bias)
            check(result, a, b, bias=bias, activation="relu")
            # For another size mm32 may plan simt differently, with K shared among blocks.
            if kernel != "simt" or (m, n, k) == exported_for:
                assert torch.equal(result, mm32.matmul(a, b, bias=bias, activation="relu", kernel=kernel)), (m, n, k)
        # A slice of wider tensors that begins 16 bytes into each row.
        m, n, k = exported_for
        A, B = (torch.randn(t.shape[0], t.shape[1] + 8, device="cuda")[:, 4:-4] for t in inputs(layout, m, n, k))
        bias = torch.randn(2 * n, device="cuda")[::2]
        a, b = matrices(layout, A, B)
        result = model(A, B, bias)
        assert torch.equal(result, mm32.matmul(a, b, bias=bias, activation="relu", kernel=kernel))


@pytest.mark.parametrize("layout", gemm.LAYOUTS)
@pytest.mark.parametrize(
    ("exported_for", "others"),
    [
        ((4096, 4, 1024), [(64, 4, 512), (128, 36, 64), (8, 8, 0)]),  # one launch, so it takes other sizes too
        ((8, 4096, 1024), [(8, 64, 512), (36, 132, 64), (4, 4, 4)]),
        ((1, 1000, 3001), []),
        ((8, 64, 65536), []),  # split-K
        ((129, 3, 20001), []),
    ],
    ids=str,
)
def test_narrow_products(load, seed, layout, exported_for, others):
    made = planning.plan(gemm.from_layout(layout, *exported_for, bias=True, activation="relu"), here(), "simt")
    assert made.launches[0].entry == "mm32_narrow"
    m, n, k = exported_for
    text = export(layout, m=m, n=n, k=k, bias=True, activation="relu", kernel="simt", device=here())
    model = load(text).ModelNew()
    for m, n, k in [exported_for, *(others if made.workspace is None else [])]:
        A, B, bias = inputs(layout, m, n, k, bias=True, device="cuda")
        a, b = matrices(layout, A, B)
        result = model(A, B, bias)
        check(result, a, b, bias=bias, activation="relu")
        if (m, n, k) == exported_for:
            assert torch.equal(result, mm32.matmul(a, b, bias=bias, activation="relu", kernel="simt"))


# ---------------------------------------------------------------------------------------------------------------------
# tensorcore and mma: scale, pack, multiply, perhaps reduce, and the fallback.

SIZES = [
    (512, 384, 1024),
    (2048, 2048, 4096),  # packed while it multiplies
    (256, 256, 16384),  # split-K
    (130, 200, 321),  # nothing is a multiple of anything
    (1, 300, 777),
    (1000, 1, 64),
]


@dataclass(frozen=True)
class Case:
    """A request for a file with a kernel that splits its operands; every second one has an epilogue."""

    kernel: str
    layout: str
    sizes: tuple[int, int, int]

    @property
    def epilogue(self) -> bool:
        return (gemm.LAYOUTS.index(self.layout) + SIZES.index(self.sizes)) % 2 == 1

    @property
    def text(self) -> str:
        options = {"bias": True, "activation": "relu"} if self.epilogue else {}
        return export(self.layout, *self.sizes, kernel=self.kernel, device=here(), **options)

    def inputs(self) -> list[torch.Tensor]:
        return inputs(self.layout, *self.sizes, bias=self.epilogue, device="cuda")

    def arguments(self, A: torch.Tensor, B: torch.Tensor, *bias: torch.Tensor) -> tuple[tuple, dict]:
        """Return the arguments of mm32.matmul that correspond to the file's `A, B, *bias`."""
        return matrices(self.layout, A, B), ({"bias": bias[0], "activation": "relu"} if bias else {})

    def same(self, model: torch.nn.Module, *tensors: torch.Tensor, what: object = "") -> torch.Tensor:
        """Return the file's result, which must be mm32's to the bit."""
        operands, options = self.arguments(*tensors)
        result, expected = model(*tensors), mm32.matmul(*operands, kernel=self.kernel, **options)
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{what}: {m}")
        return result

    def right(self, model: torch.nn.Module, *tensors: torch.Tensor, what: object = "") -> None:
        operands, options = self.arguments(*tensors)
        check(self.same(model, *tensors, what=what), *operands, **options)


def cases(*sizes: tuple[int, int, int]) -> pytest.MarkDecorator:
    """Parametrize with all layouts for tensorcore and, for mma, which shares its packing, one layout for each size."""
    asked = [Case("tensorcore", layout, s) for s in sizes for layout in gemm.LAYOUTS]
    asked += [Case("mma", gemm.LAYOUTS[SIZES.index(s) % 4], s) for s in sizes]
    return pytest.mark.parametrize("case", asked, ids=str)


@pytest.fixture
def supported(case: Case) -> None:
    skip_unless_supported(case.kernel)


@cases(*SIZES)
def test_split_kernels_compute_what_mm32_computes(load, supported, seed, case):
    model = load(case.text).ModelNew()
    for call in range(2):  # the second call finds in its workspace what the first one left there
        case.right(model, *case.inputs(), what=call)


@pytest.mark.parametrize(
    ("kernel", "layout", "sizes"),
    [("tensorcore", *x) for x in zip(gemm.LAYOUTS, SIZES[:4], strict=True)] + [("mma", "tt", SIZES[3])],
    ids=str,
)
def test_with_the_accuracy_of_tf32(load, seed, kernel, layout, sizes):
    skip_unless_supported(kernel)
    m, n, k = sizes
    text = export(layout, m=m, n=n, k=k, kernel=kernel, precision="tf32", device=here())
    A, B = inputs(layout, *sizes, device="cuda")
    a, b = matrices(layout, A, B)
    result = load(text).ModelNew()(A, B)
    assert torch.equal(result, mm32.matmul(a, b, kernel=kernel, precision="tf32"))
    assert_close(result, a.double() @ b.double(), 2.0**-9 * (a.double().abs() @ b.double().abs()))


@cases(SIZES[0], SIZES[2], SIZES[3])
def test_split_kernels_take_views(load, supported, seed, case):
    """Slices with and without 16-byte alignment, transposed views and expanded ones are read as they are stored, or copied, but
    never misread."""
    model = load(case.text).ModelNew()
    A, B, *bias = case.inputs()

    def right(*tensors: torch.Tensor) -> None:
        # The bits may differ from mm32's, which may plan such operands differently, with K in other parts.
        operands, options = case.arguments(*tensors)
        check(model(*tensors), *operands, **options)

    for start, end in ((4, 4), (1, 2), (3, 1)):
        wide = (torch.randn(x.shape[0], x.shape[1] + start + end, device="cuda") for x in (A, B))
        right(*(x[:, start:-end] for x in wide), *bias)
    right(A.T.contiguous().T, B.T.contiguous().T, *bias)
    right(A[:1].expand(A.shape), B, *(x[:1].expand(x.shape) for x in bias))


def misfits(case: Case) -> dict[str, list[torch.Tensor]]:
    """Return operands that cannot be split into two fp16 parts."""
    found = {}
    A, B, *bias = case.inputs()
    A[3, 5] = torch.inf
    found["infinite"] = [A, B, *bias]
    A, B, *bias = case.inputs()
    B[7, 11] = torch.nan
    found["not a number"] = [A, B, *bias]
    # Rows mix 1 and 2^-40; each column of B has a single 1, which chooses one of them as the result.
    m, n, k = case.sizes
    a = torch.where(torch.rand(m, k, device="cuda") < 0.5, 1.0, 2.0**-40) * (1 + torch.rand(m, k, device="cuda"))
    b = torch.zeros(k, n, device="cuda")
    b[torch.randint(k, (n,), device="cuda"), torch.arange(n, device="cuda")] = 1
    stored = [x if letter == "n" else x.T.contiguous() for x, letter in zip((a, b), case.layout, strict=True)]
    found["wide rows"] = [*stored, *(0 * x for x in bias)]  # a bias of 1 would hide a lost 2^-40
    return found


@cases(SIZES[0], SIZES[2], SIZES[3])
def test_fallback(load, supported, seed, case):
    model = load(case.text).ModelNew()
    for name, tensors in misfits(case).items():
        before = beyond_the_first_tier()
        result = case.same(model, *tensors, what=name)
        assert beyond_the_first_tier() > before, name
        (a, b), options = case.arguments(*tensors)
        assert torch.equal(result.isnan(), (a.double() @ b.double()).isnan()), name
        if name == "wide rows":
            check(result, a, b, **options)
    case.right(model, *case.inputs(), what="the accept test is each call's own")


def test_what_auto_picks(load, seed):
    module = load(export("tt", m=1024, n=1024, k=2048, device=here()))
    A, B = (x.cuda() for x in module.get_inputs())
    assert torch.equal(module.ModelNew()(A, B), mm32.matmul(A.T, B.T))
    check(module.ModelNew()(A, B), A.T, B.T)


def test_workspace_is_given_back(load, hopper):
    plan = planning.plan(gemm.from_layout("tt", 512, 384, 1024), here(), "tensorcore")
    assert plan.workspace is not None
    model = load(export("tt", m=512, n=384, k=1024, kernel="tensorcore", device=here())).ModelNew()
    A, B = inputs("tt", 512, 384, 1024, device="cuda")
    model(A, B)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    C = model(A, B)
    assert torch.cuda.memory_allocated() - before == C.numel() * 4
    assert torch.cuda.max_memory_allocated() - before <= C.numel() * 4 + plan.workspace.bytes + 2**20


# ---------------------------------------------------------------------------------------------------------------------
# Streams, graphs, torch.compile, and what goes wrong.


def test_large_shared_memory_and_default_sizes(load):
    module = load(export("tt", m=512, n=1024, k=256, kernel="simt", device=here()))
    A, B = (t.cuda() for t in module.get_inputs())
    result = module.ModelNew()(A, B)
    assert torch.equal(result, mm32.matmul(A.T, B.T, kernel="simt"))


@pytest.mark.parametrize("activation", names())
def test_activations(load, seed, activation):
    module = load(export("nt", m=96, n=80, k=64, bias=True, activation=activation, kernel="tiled", device=here()))
    A, B, bias = inputs("nt", 96, 80, 64, bias=True, device="cuda")
    check(module.ModelNew()(A, B, bias), A, B.T, bias=bias, activation=activation)


def test_cpu_tensors_come_back_to_the_cpu(load):
    module = load(export("tt", m=96, n=80, k=64, kernel="naive", device=here()))
    A, B = module.get_inputs()
    result = module.ModelNew()(A, B)
    assert result.device.type == "cpu"
    check(result, A.T, B.T)


@pytest.mark.parametrize("kernel", ["simt", "mma", "tensorcore"])
def test_current_stream_and_graph_capture(load, kernel):
    """A graph decides anew at each replay: it is replayed with operands that suit the split, and with some that do not."""
    skip_unless_supported(kernel)
    model = load(export("tt", m=256, n=256, k=4096, kernel=kernel, device=here())).ModelNew()
    A, B = inputs("tt", 256, 256, 4096, device="cuda")
    model(A, B)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # a launch on any other stream would be an error here, or missing from the graph
        C = model(A, B)
    for disturbed in (False, True, False):
        A.normal_()
        if disturbed:
            A[3, 5] = torch.inf
        C.zero_()
        graph.replay()
        torch.cuda.synchronize()
        expected = mm32.matmul(A.T, B.T, kernel=kernel)
        torch.testing.assert_close(C, expected, rtol=0, atol=0, equal_nan=True)
        assert disturbed == (not C.isfinite().all())


def test_a_stream_of_ones_own(load, seed):
    kernel = "tensorcore" if planning.unsupported("tensorcore", here()) is None else "simt"
    model = load(export("tt", m=1024, n=1024, k=1024, kernel=kernel, device=here())).ModelNew()
    A, B = inputs("tt", 1024, 1024, 1024, device="cuda")
    expected = mm32.matmul(A.T, B.T, kernel=kernel)
    torch.cuda.synchronize()
    results = []
    for _ in range(3):  # the streams run at the same time, each call with a workspace of its own
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            results += [model(A, B) for _ in range(3)]
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("kernel", ["simt", "tensorcore"])
def test_compiles_as_one_graph_beside_another_file(load, kernel):
    skip_unless_supported(kernel)
    first = load(export("tt", m=96, n=80, k=64, activation="relu", kernel=kernel, device=here())).ModelNew()
    second = load(export("nn", m=96, n=40, k=80, kernel="tiled", device=here())).ModelNew()
    A, B = inputs("tt", 96, 80, 64, device="cuda")
    D = torch.randn(80, 40, device="cuda")

    def both(A, B, D):
        return second(first(A, B) + 1, D) * 2

    expected = mm32.matmul(mm32.matmul(A.T, B.T, activation="relu", kernel=kernel) + 1, D, kernel="tiled") * 2
    assert torch.equal(both(A, B, D), expected)
    compiled = torch.compile(both, fullgraph=True)
    assert torch.equal(compiled(A, B, D), expected)


def test_wrong_shapes_on_a_card(load, monkeypatch):
    monkeypatch.setattr(
        "torch.utils.cpp_extension.load_inline", lambda **_: pytest.fail("nothing should be built here")
    )
    model = load(export("tt", m=96, n=80, k=64, kernel="simt", device=here())).ModelNew()
    with pytest.raises(RuntimeError, match="must have the same K"):
        model(torch.zeros(64, 96, device="cuda"), torch.zeros(80, 65, device="cuda"))
    with pytest.raises(RuntimeError, match="N in multiples of 4"):
        model(torch.zeros(64, 96, device="cuda"), torch.zeros(81, 64, device="cuda"))
    with pytest.raises(RuntimeError, match="on one device"):
        model(torch.zeros(64, 96, device="cuda"), torch.zeros(80, 64))


def test_build_failure_shows_the_compilers_message(load):
    text = export("tt", m=96, n=80, k=64, kernel="naive", device=here()).replace("Problem p{};", "Problem p{} oops;")
    with pytest.raises(RuntimeError, match=r"error: expected a .;"):
        load(text).ModelNew()(*inputs("tt", 96, 80, 64, device="cuda"))


def test_failed_launch_is_told_once(load):
    """A launch asks for more shared memory than there is: the error has CUDA's words, and torch's next call does not report it
    again."""
    text = export("tt", m=96, n=80, k=64, kernel="simt", device=here())
    shared = planning.plan(gemm.from_layout("tt", 96, 80, 64), here(), "simt").launches[0].shared
    module = load(
        text.replace(f"KERNEL(simt::mm32_simt), {shared}, DEFAULT", "KERNEL(simt::mm32_simt), 9999999, DEFAULT")
    )
    with pytest.raises(RuntimeError, match="preparing simt::mm32_simt: invalid"):
        module.ModelNew()(*inputs("tt", 96, 80, 64, device="cuda"))
    assert (torch.ones(4, device="cuda") + 1).sum().item() == 8
