"""What is chosen: plans as data, the choice, grids, refusals, the page that explains, the list of compiled forms."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import random
import re

import pytest
import torch

from mm32 import gemm
from mm32 import plan as planning
from mm32.activations import names
from mm32.gemm import LAYOUTS, Gemm, from_layout
from mm32.plan import H200, KERNELS, Device, Launch, Plan, Unplannable, plan
from mm32.plan.data import MAX_GRID

A100 = Device("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166912)
SMALL = Device("NVIDIA RTX A2000", (8, 6), 26, 101376)
B200 = Device("NVIDIA B200", (10, 0), 148, 232448)
OLD = Device("Tesla T4", (7, 5), 40, 65536)
DEVICES = [H200, A100, SMALL, B200]


def plans(problem: Gemm, device: Device) -> list[Plan]:
    """With each kernel that takes the problem on the device."""
    made = []
    for kernel in KERNELS:
        with contextlib.suppress(Unplannable):
            made.append(plan(problem, device, kernel))
    return made


def random_gemm(rng: random.Random) -> Gemm:
    """A problem in any storage, planned from meta tensors: nothing is allocated."""

    def matrix(batch: list[int], rows: int, cols: int) -> torch.Tensor:
        kind = rng.randrange(6)
        kept = batch[rng.randrange(len(batch) + 1) :]
        base = torch.empty(*kept, rows, cols, device="meta")
        if kind == 0:
            base = torch.empty(*kept, cols, rows, device="meta").mT
        elif kind == 1:
            base = torch.empty(*kept, rows, cols + rng.randrange(1, 5), device="meta")[..., :cols]
        elif kind == 2:
            base = torch.empty(*kept, cols, rows + rng.randrange(1, 5), device="meta").mT[..., :rows, :]
        elif kind == 3:
            base = torch.empty(*kept, rows * 2, cols * 3, device="meta")[..., ::2, ::3]
        elif kind == 4:
            base = torch.empty(1, 1, device="meta").expand(*kept, rows, cols)
        return base

    def size() -> int:
        return rng.choice((0, 1, 2, 3, 7, 16, 31, 64, 100, 127, 128, 1000, 4096, 20000))

    m, n, k, batch = size(), size(), size(), [rng.randrange(1, 5) for _ in range(rng.randrange(3))]
    a, b = matrix(batch, m, k), matrix(batch, k, n)
    out = torch.empty(gemm.result_shape(a.shape, b.shape), device="meta")
    if rng.randrange(3) == 0:
        out = out.mT.contiguous().mT
    bias = torch.empty(n, device="meta") if rng.randrange(2) else None
    return gemm.describe(a, b, bias, out, rng.choice([None, *names()]), "fp32")


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_plan_is_data(kernel: str) -> None:
    """Equal for equal questions, hashable, and whole after a trip through bytes."""
    problem = from_layout("tt", 2048, 4096, 8192, bias=True, activation="relu")
    one, two = plan(problem, H200, kernel), plan(problem, H200, kernel)
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.kernel = "other"
    assert (one.gemm, one.device, one.kernel, one.reason) == (problem, H200, kernel, "asked for by name")
    assert len(one.launches) >= 1


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_auto_is_the_least_estimate(device: Device) -> None:
    rng = random.Random(1)
    for _ in range(200):
        problem = random_gemm(rng)
        chosen = plan(problem, device)
        estimates = dict(chosen.estimates)
        assert estimates[chosen.kernel] == min(estimates.values())
        assert list(estimates.values()) == sorted(estimates.values())
        left = {"mma"} if device == H200 or problem.k < planning.split.SHORT_K else set()
        left |= {"tensorcore"} if problem.k < planning.split.SHORTEST_K else set()
        assert set(estimates) == {made.kernel for made in plans(problem, device)} - left
        assert set(estimates) | dict(chosen.refused).keys() == set(KERNELS)
        assert all(t > 0 for t in estimates.values())
        assert chosen.launches == plan(problem, device, chosen.kernel).launches


def test_auto_chooses_a_blocked_kernel_for_a_large_product() -> None:
    for layout in LAYOUTS:
        assert plan(from_layout(layout, 2048, 4096, 8192), H200).kernel not in ("naive", "dot", "tiled")
    assert plan(from_layout("nt", 1, 1, 1_000_000, precision="ieee"), H200).kernel == "simt"


def test_ieee_is_fused_multiply_adds() -> None:
    for layout in LAYOUTS:
        problem = from_layout(layout, 2048, 4096, 8192, precision="ieee")
        assert plan(problem, H200).kernel in ("naive", "dot", "tiled", "simt")


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_named_kernel_is_that_kernel(kernel: str) -> None:
    for layout in LAYOUTS:
        made = plan(from_layout(layout, 100, 200, 300, activation="gelu"), H200, kernel)
        assert made.kernel == kernel
        epilogues = {(dict(x.constants).get("BIAS"), dict(x.constants).get("ACTIVATION")) for x in made.launches}
        assert (0, 1 + names().index("gelu")) in epilogues


def test_a_kernel_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="unknown kernel 'cutlass': mm32 has 'auto', 'naive', 'dot'"):
        plan(from_layout("nn", 1, 1, 1), H200, "cutlass")


@pytest.mark.parametrize("kernel", [*KERNELS, "auto"])
def test_a_card_that_is_too_old(kernel: str) -> None:
    with pytest.raises(Unplannable, match=rf"kernel '{kernel}' cannot run here") as error:
        plan(from_layout("nn", 64, 64, 64), OLD, kernel)
    assert isinstance(error.value, ValueError)
    if kernel in ("naive", "dot", "tiled", "simt", "auto"):
        assert "compute capability 8.0 and later; Tesla T4 has 7.5" in str(error.value)


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((12, 0), "sm_120a")],
)
def test_arch(capability: tuple[int, int], arch: str) -> None:
    assert Device("any", capability, 1, 101376).arch == arch


# ---------------------------------------------------------------------------------------------------------------------
# Launches


@pytest.mark.parametrize(
    ("unit", "sizes", "batch", "blocks"),
    [
        ((128,), (3, 5), (), 1),
        ((128,), (8, 16), (), 1),
        ((128,), (8, 16), (2,), 2),
        ((128,), (43, 3), (), 2),
        ((1,), (7, 9), (2, 3), 378),
        ((32, 32), (33, 32), (), 2),
        ((32, 32), (33, 32), (5,), 10),
        ((256, 128), (257, 129), (2, 2), 16),
        ((256, 128), (1, 1), (), 1),
        ((128,), (0, 5), (), 0),
        ((32, 32), (5, 0), (), 0),
        ((32, 32), (5, 5), (0,), 0),
        ((1,), (2**20, 2**20), (), 2**31 - 1),
        ((64, 64), (2**40, 2**20), (), 2**31 - 1),
    ],
)
def test_grid(unit: tuple[int, ...], sizes: tuple[int, int], batch: tuple[int, ...], blocks: int) -> None:
    problem = dataclasses.replace(from_layout("nn", *sizes, 4), batch=batch)
    assert Launch("source.cu", "entry", (), 128, 0, unit).grid(problem) == blocks <= MAX_GRID
    assert Launch("source.cu", "entry", (), 128, 0, blocks=7).grid(problem) == 7


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_launches_fit_the_card(device: Device) -> None:
    rng = random.Random(2)
    for _ in range(200):
        problem = random_gemm(rng)
        for made in plans(problem, device):
            for launch in made.launches:
                assert 32 <= launch.block <= 1024
                assert launch.block % 32 == 0
                assert 0 <= launch.shared <= device.shared
                assert launch.grid(problem) <= MAX_GRID
                assert (launch.grid(problem) == 0) == problem.empty


@pytest.mark.parametrize(
    "tile", [*planning.fp32.SIMT_TILES, planning.fp32.ACCURATE_TILE], ids=lambda t: f"{t.m}x{t.n}x{t.k}"
)
def test_simt_tiles_hold_together(tile: planning.fp32.SimtTile) -> None:
    """What simt.cu asserts when it is compiled, and what it takes for granted when it runs."""
    warps = (tile.m // (8 * tile.thread_m)) * (tile.n // (4 * tile.thread_n))
    assert tile.threads == 32 * warps
    assert tile.threads * tile.thread_m * tile.thread_n == tile.m * tile.n
    assert tile.shared((2, 2)) * tile.blocks <= H200.shared
    assert tile.threads * tile.blocks <= 2048
    assert any(t.shared((2, 2)) <= SMALL.shared and not t.aligned for t in planning.fp32.SIMT_TILES)
    assert all(0 < rate < 1 for rate in tile.rates)


@pytest.mark.parametrize("form", planning.fp32.NARROW_FORMS, ids=lambda f: f"{f.width}-{f.tile}x{f.piece}")
def test_narrow_forms_hold_together(form: planning.fp32.NarrowForm) -> None:
    """What narrow.cu asserts when it is compiled, and what it takes for granted when it runs."""
    assert form.width in (1, 2, 4, 8, 16)
    assert form.rows in (1, 2, 4, 8) if form.along_k else form.rows == 4
    assert 256 % (128 * form.depth) == 0 or form.width == 1 if form.along_k else 256 % (32 * form.depth) == 0
    assert (32 * 1024 if form.along_k else 8 * 1024) % form.piece == 0
    assert 256 * form.blocks <= 2048


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", range(1, 18))
def test_narrow_products(layout: str, width: int) -> None:
    """simt takes the form for them, the wide operand is the one with more rows, and the width is rounded up."""
    for m, n in ((4096, width), (width, 4096)):
        made = plan(from_layout(layout, m, n, 4096, bias=True), H200, "simt")
        assert made.launches[0].entry == ("mm32_narrow" if width <= 16 else "mm32_simt")
        if width > 16:
            continue
        constants = dict(made.launches[0].constants)
        assert constants["SIDE"] == int(n > m)
        assert constants["WIDTH"] // 2 < width <= constants["WIDTH"]
        along_k = layout[0] == "n" if n < m else layout[1] == "t"
        assert constants["LOAD"] == (2 if along_k else 0)
        careful = planning.fp32.simt(made.gemm, H200, accurate=True)[0]
        assert [launch.entry for launch in careful.launches] == ["mm32_simt"]


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_narrow_products_of_few_rows_share_k(device: Device) -> None:
    """Partial sums in a workspace, then the epilogue where they are added up; one launch where there are rows enough."""
    made = plan(from_layout("nn", 8, 64, 1 << 20, bias=True, activation="relu"), device, "simt")
    multiply, reduce = made.launches
    assert (multiply.entry, reduce.entry) == ("mm32_narrow", "mm32_reduce")
    assert (multiply.argument, reduce.argument) == ("split", "split")
    assert made.workspace.splits > 1
    assert made.workspace.bytes == 4 * 8 * 64 * made.workspace.splits
    assert multiply.grid(made.gemm) == made.workspace.splits
    assert [(dict(x.constants)["BIAS"], dict(x.constants)["ACTIVATION"]) for x in made.launches] == [(0, 0), (1, 1)]
    assert (multiply.early, reduce.early) == (False, device.capability >= (9, 0))
    tall = plan(from_layout("nn", 1 << 20, 8, 4096), device, "simt")
    assert tall.workspace is None
    assert [launch.entry for launch in tall.launches] == ["mm32_narrow"]


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_k_is_shared_where_tiles_are_few(device: Device) -> None:
    """Partial sums in a workspace, or, where there is no memory for one, the same kernel without."""
    for sizes in ((100, 100, 100000), (256, 256, 524288), (8, 64, 1 << 20)):
        problem = from_layout("nn", *sizes, bias=True)
        shared, alone = plan(problem, device, "simt"), planning.without_workspace(problem, device)
        assert shared.workspace.splits > 1
        assert [launch.entry for launch in shared.launches][1:] == ["mm32_reduce"]
        assert (alone.kernel, alone.workspace, len(alone.launches)) == ("simt", None, 1)
        assert alone.launches[0].grid(problem) < shared.launches[0].grid(problem)
    assert plan(from_layout("nn", 8192, 8192, 32), device, "simt").workspace is None


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_the_last_wave_is_shared(device: Device) -> None:
    """Stream-K: as many blocks as the card holds, pieces in a workspace, the epilogue in both launches; and where there is no
    memory, whole tiles."""
    problems = (from_layout("tn", s, s, 4095, bias=True, activation="relu") for s in range(501, 6000, 250))
    streamed = (p for p in problems if plan(p, device, "simt").launches[-1].entry == "mm32_fixup")
    problem = next(streamed)
    made, alone = plan(problem, device, "simt"), planning.without_workspace(problem, device)
    multiply, fixup = made.launches
    constants = dict(multiply.constants)
    assert (multiply.entry, fixup.entry, constants["SPLIT"]) == ("mm32_simt", "mm32_fixup", 2)
    assert multiply.constants == fixup.constants
    assert (multiply.argument, fixup.argument) == ("split", "split")
    blocks = multiply.grid(problem)
    held = (device.shared + 1024) // (multiply.shared + 1024)
    assert blocks == made.workspace.splits == device.sms * min(held, constants["BLOCKS"])
    tiles = -(-problem.m // constants["TILE_M"]) * -(-problem.n // constants["TILE_N"])
    assert tiles > blocks
    assert made.workspace.bytes == 4 * (blocks + tiles % blocks) * constants["TILE_M"] * constants["TILE_N"]
    assert (multiply.early, fixup.early) == (False, device.capability >= (9, 0))
    assert [launch.entry for launch in alone.launches] == ["mm32_simt"]


# ---------------------------------------------------------------------------------------------------------------------
# The page


def test_explain() -> None:
    problem = dataclasses.replace(from_layout("tn", 300, 200, 100, bias=True, activation="relu"), batch=(5, 7))
    page = plan(problem, H200, "tiled").explain().splitlines()
    assert page[0] == "gemm       M=300 N=200 K=100, batch 5x7, layout tn, epilogue bias + relu, precision fp32"
    assert page[1] == "device     NVIDIA H200 (sm_90a, 132 multiprocessors)"
    assert page[2] == "kernel     tiled: asked for by name"
    assert page[3] == "launch     mm32_tiled (tiled.cu): 2450 blocks of 1024 threads, 0 bytes of dynamic shared memory"
    assert page[4] == "           BIAS=1, ACTIVATION=1, A_ALONG_K=0, B_ALONG_K=0"
    assert page[5] == "workspace  0 bytes"
    assert re.fullmatch(r"estimates  tiled [\d.]+ (ms|us)", page[6])
    assert len(page) == 7


@pytest.mark.parametrize("kernel", KERNELS)
def test_explain_has_every_launch(kernel: str) -> None:
    made = plan(from_layout("nt", 300, 200, 8000, bias=True), H200, kernel)
    page = made.explain()
    for launch in made.launches:
        assert f"{launch.entry} ({launch.source}): {launch.grid(made.gemm)} blocks of {launch.block} threads" in page
        assert ", ".join(f"{name}={value}" for name, value in launch.constants) in page
    assert f"workspace  {made.workspace.bytes if made.workspace else 0} bytes" in page


def test_explain_of_a_choice() -> None:
    made = plan(from_layout("nn", 1000, 2000, 3000), H200)
    page = made.explain().splitlines()
    assert page[0] == "gemm       M=1000 N=2000 K=3000, layout nn, epilogue none, precision fp32"
    assert page[2].startswith(f"kernel     {made.kernel}: least estimated time of ")
    (estimates,) = (line for line in page if line.startswith("estimates"))
    assert re.findall(r"(\w+) [\d.e+]+ [mu]s", estimates) == [name for name, _ in made.estimates]


def test_explain_says_what_was_not_taken() -> None:
    assert "not taken  tensorcore: it is made of Hopper's wgmma" in plan(from_layout("nn", 9, 9, 9), A100).explain()
    assert "not taken  mma: tensorcore is the same scheme" in plan(from_layout("nn", 999, 999, 999), H200).explain()
    ieee = plan(from_layout("nn", 9, 9, 9, precision="ieee"), H200).explain()
    assert "not taken  tensorcore: precision 'ieee' promises fp32 multiply-adds only" in ieee


@pytest.mark.parametrize(
    ("options", "epilogue"),
    [
        ({}, "none"),
        ({"bias": True}, "bias"),
        ({"activation": "silu"}, "silu"),
        ({"bias": True, "activation": "tanh"}, "bias + tanh"),
    ],
)
def test_explain_names_the_epilogue(options: dict, epilogue: str) -> None:
    assert f"epilogue {epilogue}, " in plan(from_layout("nn", 2, 2, 2, **options), H200).explain()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sizes", [(0, 5, 5), (5, 0, 5), (5, 5, 0)], ids=str)
def test_every_kernel_takes_empty_sizes(kernel: str, sizes: tuple[int, int, int]) -> None:
    made = plan(from_layout("nn", *sizes), H200, kernel)
    assert made.kernel == kernel
    assert all(launch.grid(made.gemm) == 0 for launch in made.launches) == (0 in sizes[:2])
    assert "M={} N={} K={}".format(*sizes) in made.explain()


# ---------------------------------------------------------------------------------------------------------------------
# The list of compiled forms

# The epilogue and the store are covered once each, not with every form; so are the loads of tensorcore.cu, where they are
# numbers, not code. Side and split of narrow.cu take turns, and split forms of simt.cu stand for all loads; fixup.cu
# loads nothing of A and B.
LEFT_OUT = {
    "simt.cu": ("BIAS", "ACTIVATION", "C_VECTOR", "SPLIT", "PRODUCTS"),
    "tensorcore.cu": ("BIAS", "ACTIVATION", "C_VECTOR", "A_UNIT", "B_UNIT"),
    "narrow.cu": ("BIAS", "ACTIVATION", "SIDE", "SPLIT"),
    "fixup.cu": ("BIAS", "ACTIVATION", "C_VECTOR", "A_LOAD", "B_LOAD"),
}


def forms(source: str, constants: planning.Constants, threads: int) -> set[tuple]:
    """What is compared: a form without LEFT_OUT. Of a multiply that splits its own operands the warpgroups that load and those
    that store are apart: a form for each."""
    left_out = LEFT_OUT.get(source, ("BIAS", "ACTIVATION", "C_VECTOR"))
    kinds: list[tuple[str, ...]] = [left_out]
    if dict(constants).get("DIRECT"):
        kinds = [("BIAS", "ACTIVATION", "SPLIT", "C_VECTOR"), ("BIAS", "ACTIVATION", "A_LOAD", "B_LOAD")]
    return {(source, tuple((name, x) for name, x in constants if name not in kind), threads) for kind in kinds}


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_the_split_runs_on_every_card(device: Device) -> None:
    """By wgmma on Hopper, by mma.sync elsewhere; launches overlap only on cards that can."""
    problem = from_layout("tt", 2048, 4096, 8192)
    assert plan(problem, device).kernel == ("tensorcore" if device == H200 else "mma")
    assert plan(problem, device, "mma").kernel == "mma"
    for launch in plan(problem, device, "mma").launches:
        assert launch.early == (device.capability >= (9, 0) and launch.entry not in ("mm32_scale", "mm32_mma"))
    if device != H200:
        with pytest.raises(Unplannable, match=rf"compute capability 9.0; {device.name} .*: kernel 'mma' is the same"):
            plan(problem, device, "tensorcore")
    assert plan(dataclasses.replace(problem, precision="ieee"), device).kernel == "simt"
    with pytest.raises(Unplannable, match="promises fp32 multiply-adds only"):
        plan(dataclasses.replace(problem, precision="ieee"), device, "mma")


def test_half_a_rate_counts_twice() -> None:
    """GeForce cards sum fp16 products in fp32 at half the rate of the same chip's other cards."""
    problem = from_layout("tt", 2048, 4096, 8192)
    full, half = (plan(problem, Device(name, (8, 9), 128, 101376), "mma") for name in ("NVIDIA L40", "NVIDIA GeForce"))
    assert full.launches == half.launches
    assert 1.8 < half.estimates[0][1] / full.estimates[0][1] < 2


def test_variants_list_every_form_that_is_planned() -> None:
    listed = {form for _, *listed in planning.variants() for form in forms(*listed)}
    rng = random.Random(3)
    planned = set()
    for _ in range(1500):
        for made in plans(random_gemm(rng), H200):
            for launch in made.launches:
                planned |= forms(launch.source, launch.constants, launch.block)
    assert planned <= listed
    assert len(planned) >= 0.4 * len(listed), "the random problems reach too few forms to show anything"


def test_variants_have_the_constants_that_plans_have() -> None:
    """The same names in the same order: a cubin compiled from the list is the one that a plan asks for."""
    names: dict[str, set[tuple[str, ...]]] = {}
    for _, source, constants, _ in planning.variants():
        names.setdefault(source, set()).add(tuple(name for name, _ in constants))
    rng = random.Random(4)
    for _ in range(200):
        for made in plans(random_gemm(rng), H200):
            for launch in made.launches:
                assert tuple(name for name, _ in launch.constants) in names[launch.source]


@pytest.mark.parametrize("kernel", KERNELS)
def test_variants_cover_the_epilogues(kernel: str) -> None:
    listed = [dict(constants) for name, _, constants, _ in planning.variants() if name == kernel]
    assert {c["ACTIVATION"] for c in listed if "ACTIVATION" in c} == set(range(1 + len(names())))
    assert {c["BIAS"] for c in listed if "BIAS" in c} == {0, 1}


def test_variants_are_listed_once() -> None:
    listed = [(source, constants) for _, source, constants, _ in planning.variants()]
    assert len(set(listed)) == len(listed)


def test_auto_leaves_short_sums_to_fp32() -> None:
    """Where the split's own error may pass an fp32 matmul's; who names the kernel gets it."""
    for card, kernel, shortest in (
        (H200, "tensorcore", planning.split.SHORTEST_K),
        (A100, "mma", planning.split.SHORT_K),
    ):
        short, enough = (from_layout("nn", 8192, 8192, k) for k in (shortest - 1, shortest))
        assert plan(short, card).kernel == "simt"
        assert dict(plan(short, card).refused)[kernel].startswith(f"below K={shortest}")
        assert plan(short, card, kernel).kernel == kernel
        assert kernel in dict(plan(enough, card).estimates)
    assert plan(from_layout("nn", 8192, 8192, 128), H200).kernel == "tensorcore"


def test_short_sums_are_promoted_more_often() -> None:
    for k in (1, 64, planning.split.SHORT_K - 1, planning.split.SHORT_K, 4096):
        made = plan(from_layout("nn", 512, 512, k), H200, "tensorcore")
        (multiply,) = (launch for launch in made.launches if launch.entry == "mm32_tensorcore")
        assert dict(multiply.constants)["PROMOTE"] == (1 if k < planning.split.SHORT_K else 4)
