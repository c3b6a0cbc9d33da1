"""The planner: plans as data, the choice, grids, refusals, the page that explains a plan."""

from __future__ import annotations

import dataclasses
import pickle
import random
import re
import time

import pytest

from mm32 import activations
from mm32 import plan as planning
from mm32.gemm import LAYOUTS, from_layout
from mm32.plan import H200, KERNELS, Card, Launch, Plan, Unplannable, plan
from mm32.plan.card import A100, B200, MAX_GRID
from mm32.plan.card import RTX_A2000 as SMALL
from support.plan import SOME, plans, random_gemm

OLD = Card("Tesla T4", (7, 5), 40, 65536)


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_plan_is_data(kernel: str) -> None:
    """Plans of equal questions are equal, hashable, and unchanged by pickling."""
    problem = from_layout("tt", 2048, 4096, 8192, bias=True, activation="relu")
    one, two = plan(problem, H200, kernel), plan(problem, H200, kernel)
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.kernel = "other"
    assert (one.gemm, one.card, one.kernel, one.reason) == (problem, H200, kernel, "asked for by name")
    assert len(one.launches) >= 1


@pytest.mark.parametrize("card", SOME, ids=lambda c: c.name)
def test_auto_is_the_least_estimate(card: Card) -> None:
    rng = random.Random(1)
    for _ in range(200):
        problem = random_gemm(rng)
        chosen = plan(problem, card)
        estimates = dict(chosen.estimates)
        assert estimates[chosen.kernel] == min(estimates.values())
        assert list(estimates.values()) == sorted(estimates.values())
        left = {"mma"} if card == H200 or problem.k < planning.emulated.SHORT_K else set()
        left |= {"tensorcore"} if problem.k < planning.emulated.SHORTEST_K else set()
        left |= {"naive", "dot", "tiled"} if problem.flops > planning.fma.TRIVIAL or not card.fitted else set()
        assert set(estimates) == {made.kernel for made in plans(problem, card)} - left
        assert set(estimates) | dict(chosen.refused).keys() == set(KERNELS)
        assert all(t > 0 for t in estimates.values())
        assert chosen.launches == plan(problem, card, chosen.kernel).launches


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
        assert (0, 1 + activations.names().index("gelu")) in epilogues


def test_a_kernel_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="unknown kernel 'cutlass': mm32 has 'auto', 'naive', 'dot'"):
        plan(from_layout("nn", 1, 1, 1), H200, "cutlass")


@pytest.mark.parametrize("card", [A100, SMALL, B200])
@pytest.mark.parametrize("torch_too", [None, "fp32"])
def test_no_other_product_stands_in_for_bf16x6(card: Card, torch_too: str | None) -> None:
    """Not even torch's product does, since its bits differ."""
    for drop_in in (False, True):
        with pytest.raises(Unplannable, match=f"^precision 'bf16x6' cannot run here: .*; {card.name} has .*'ieee'"):
            plan(from_layout("nn", 512, 512, 512, precision="bf16x6"), card, torch=torch_too, drop_in=drop_in)
    with pytest.raises(Unplannable, match="kernel 'simt' cannot run here: kernels 'tensorcore' and 'direct' alone"):
        plan(from_layout("nn", 512, 512, 512, precision="bf16x6"), card, "simt")


@pytest.mark.parametrize("size", [16, 128, 2048])
@pytest.mark.parametrize("drop_in", [False, True])
def test_torchs_product_is_not_among_those_of_bf16x6(size: int, drop_in: bool) -> None:
    made = plan(from_layout("nn", size, size, size, precision="bf16x6"), H200, torch="fp32", drop_in=drop_in)
    assert made.kernel in ("direct", "tensorcore")
    assert "torch" not in dict(made.estimates)


@pytest.mark.parametrize("kernel", [*KERNELS, "auto"])
def test_a_card_that_is_too_old(kernel: str) -> None:
    with pytest.raises(Unplannable, match=rf"kernel '{kernel}' cannot run here") as error:
        plan(from_layout("nn", 64, 64, 64), OLD, kernel)
    assert isinstance(error.value, ValueError)
    if kernel in ("naive", "dot", "tiled", "simt", "auto"):
        assert "compute capability 8.0 and later; Tesla T4 has 7.5" in str(error.value)


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


@pytest.mark.parametrize("card", SOME, ids=lambda c: c.name)
def test_launches_fit_the_card(card: Card) -> None:
    rng = random.Random(2)
    for _ in range(200):
        problem = random_gemm(rng)
        for made in plans(problem, card):
            for launch in made.launches:
                assert 32 <= launch.block <= 1024
                assert launch.block % 32 == 0
                assert 0 <= launch.shared <= card.shared_memory
                assert launch.grid(problem) <= MAX_GRID
                assert (launch.grid(problem) == 0) == problem.empty


@pytest.mark.parametrize(
    "tile", [*planning.fma.SIMT_TILES, planning.fma.ACCURATE_TILE], ids=lambda t: f"{t.m}x{t.n}x{t.k}"
)
def test_simt_tiles_hold_together(tile: planning.fma.SimtTile) -> None:
    """Each tile meets what simt.cu asserts when it is compiled, and what it assumes when it runs."""
    warps = (tile.m // (8 * tile.thread_m)) * (tile.n // (4 * tile.thread_n))
    assert tile.threads == 32 * warps
    assert tile.threads * tile.thread_m * tile.thread_n == tile.m * tile.n
    assert tile.shared((2, 2)) * tile.blocks <= H200.shared_memory
    assert tile.threads * tile.blocks <= 2048
    assert any(t.shared((2, 2)) <= SMALL.shared_memory and not t.aligned for t in planning.fma.SIMT_TILES)
    shares = [planning.cost.SHARES[f"{tile.label}.{i}"] for i in range(1, tile.blocks + 1)]
    assert shares == sorted(shares)
    assert 0 < shares[0] <= shares[-1] < 1


@pytest.mark.parametrize("form", planning.fma.NARROW_FORMS, ids=lambda f: f"{f.width}-{f.tile}x{f.piece}")
def test_narrow_forms_hold_together(form: planning.fma.NarrowForm) -> None:
    """Each form meets what narrow.cu asserts when it is compiled, and what it assumes when it runs."""
    assert form.width in (1, 2, 4, 8, 16)
    assert form.rows in (1, 2, 4, 8) if form.along_k else form.rows == 4
    assert form.lanes in (8, 16, 32)
    step = 128 if form.along_k else 8 * (32 // form.lanes)  # of K, that a block loads at once
    assert 256 % (step * form.depth) == 0 or (form.along_k and form.width == 1)
    assert (32 * 1024 if form.along_k else 8 * 1024) % form.piece == 0
    assert 256 * form.blocks <= 2048


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", range(1, 18))
def test_narrow_products(layout: str, width: int) -> None:
    """simt uses the narrow form for them: the wide operand is the one with more rows, and the width is rounded up."""
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
        assert planning.fma.fallback_tiles(made.gemm).entry == "mm32_simt"


@pytest.mark.parametrize("card", SOME, ids=lambda c: c.name)
def test_narrow_products_of_few_rows_share_k(card: Card) -> None:
    """Partial sums are in a workspace, and the launch that adds them applies the epilogue; with enough rows there is one launch
    only."""
    made = plan(from_layout("nn", 8, 64, 1 << 20, bias=True, activation="relu"), card, "simt")
    multiply, reduce = made.launches
    assert (multiply.entry, reduce.entry) == ("mm32_narrow", "mm32_reduce")
    assert (multiply.takes_workspace, reduce.takes_workspace) == (True, True)
    assert made.workspace.parts > 1
    assert made.workspace.bytes == 4 * 8 * 64 * made.workspace.parts
    assert multiply.grid(made.gemm) == made.workspace.parts
    assert [(dict(x.constants)["BIAS"], dict(x.constants)["ACTIVATION"]) for x in made.launches] == [(0, 0), (1, 1)]
    assert (multiply.dependent, reduce.dependent) == (False, card.capability >= (9, 0))
    tall = plan(from_layout("nn", 1 << 20, 8, 4096), card, "simt")
    assert tall.workspace is None
    assert [launch.entry for launch in tall.launches] == ["mm32_narrow"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_narrow_products_share_k_in_one_launch(layout: str) -> None:
    """On cards with clusters, the blocks of a cluster add up their sums and apply the epilogue; other cards have none."""
    problem = from_layout(layout, 4, 1024, 4096, bias=True, activation="relu")
    made = plan(problem, H200, "simt")
    (multiply,) = made.launches
    constants = dict(multiply.constants)
    assert (made.workspace, multiply.takes_workspace) == (None, False)
    assert (constants["SPLIT_K"], constants["BIAS"], constants["ACTIVATION"]) == (2, 1, 1)
    assert multiply.cluster in planning.fma.NARROW_CLUSTERS
    assert multiply.grid(problem) % multiply.cluster == 0
    assert all(launch.cluster == 1 for launch in plan(problem, A100, "simt").launches)


@pytest.mark.parametrize("card", SOME, ids=lambda c: c.name)
def test_k_is_shared_where_tiles_are_few(card: Card) -> None:
    """Partial sums are in a workspace. If there is no memory for it, the same kernel runs without one."""
    for sizes in ((100, 100, 100000), (256, 256, 524288), (8, 64, 1 << 20)):
        problem = from_layout("nn", *sizes, bias=True)
        shared, alone = plan(problem, card, "simt"), planning.without_workspace(problem, card, "simt")
        assert shared.workspace.parts > 1
        assert [launch.entry for launch in shared.launches][1:] == ["mm32_reduce"]
        assert (alone.kernel, alone.workspace, len(alone.launches)) == ("simt", None, 1)
        assert alone.launches[0].grid(problem) < shared.launches[0].grid(problem)
    assert plan(from_layout("nn", 8192, 8192, 32), card, "simt").workspace is None


def test_without_a_workspace_the_tensor_cores_are_still_used() -> None:
    large = from_layout("nn", 4096, 4096, 8192)
    alone = planning.without_workspace(large, H200)
    assert (alone.kernel, alone.workspace) == ("direct", None)
    assert planning.without_workspace(large, H200, "simt").kernel == "simt"
    assert planning.without_workspace(from_layout("nn", 4096, 4096, 8192, precision="ieee"), H200).kernel == "simt"
    assert planning.without_workspace(from_layout("nn", 64, 64, 0), H200).kernel == "simt"


@pytest.mark.parametrize("card", SOME, ids=lambda c: c.name)
def test_the_last_wave_is_shared(card: Card) -> None:
    """Stream-K has as many blocks as the card holds, pieces in a workspace, and the epilogue in both launches. If there is no
    memory, tiles are computed whole."""
    problems = (from_layout("tn", s, s, 4095, bias=True, activation="relu") for s in range(501, 6000, 250))
    streamed = (p for p in problems if plan(p, card, "simt").launches[-1].entry == "mm32_fixup")
    problem = next(streamed)
    made, alone = plan(problem, card, "simt"), planning.without_workspace(problem, card, "simt")
    multiply, fixup = made.launches
    constants = dict(multiply.constants)
    assert (multiply.entry, fixup.entry, constants["STREAM_K"]) == ("mm32_simt", "mm32_fixup", 1)
    assert multiply.constants == fixup.constants
    assert (multiply.takes_workspace, fixup.takes_workspace) == (True, True)
    blocks = multiply.grid(problem)
    held = (card.shared_memory + 1024) // (multiply.shared + 1024)
    assert blocks == made.workspace.parts == card.sms * min(held, constants["BLOCKS_PER_SM"])
    tiles = -(-problem.m // constants["TILE_M"]) * -(-problem.n // constants["TILE_N"])
    assert tiles > blocks
    assert made.workspace.bytes == 4 * (blocks + tiles % blocks) * constants["TILE_M"] * constants["TILE_N"]
    assert (multiply.dependent, fixup.dependent) == (False, card.capability >= (9, 0))
    assert [launch.entry for launch in alone.launches] == ["mm32_simt"]


# ---------------------------------------------------------------------------------------------------------------------
# The page


def test_explain() -> None:
    problem = dataclasses.replace(from_layout("tn", 300, 200, 100, bias=True, activation="relu"), batch=(5, 7))
    page = plan(problem, H200, "tiled").explain().splitlines()
    assert page[0] == "gemm       M=300 N=200 K=100, batch 5x7, layout tn, epilogue bias + relu, precision fp32"
    assert page[1] == "card       NVIDIA H200 (sm_90a, 132 multiprocessors)"
    assert page[2] == "kernel     tiled: asked for by name"
    assert (
        page[3] == "launch     mm32_tiled (fma/tiled.cu): 2450 blocks of 1024 threads, 0 bytes of dynamic shared memory"
    )
    assert page[4] == "           BIAS=1, ACTIVATION=1, A_ALONG_K=0, B_ALONG_K=0"
    assert page[5] == "workspace  0 bytes"
    assert re.fullmatch(r"estimates  tiled [\d.]+ (ms|µs)", page[6])
    assert len(page) == 7


@pytest.mark.parametrize("kernel", KERNELS)
def test_explain_has_every_launch(kernel: str) -> None:
    made = plan(from_layout("nt", 300, 200, 8000, bias=True), H200, kernel)
    page = made.explain()
    for launch in made.launches:
        assert f"{launch.entry} ({launch.source}): {launch.grid(made.gemm)} blocks of {launch.block} threads" in page
        assert ", ".join(f"{name}={value}" for name, value in launch.constants) in page
    assert f"workspace  {made.workspace.bytes if made.workspace else 0} bytes" in page


def test_explain_of_nothing_to_multiply() -> None:
    """With K = 0 only the epilogue is left, which simt computes; with an empty result nothing is."""
    page = plan(from_layout("nt", 64, 32, 0), H200, "tensorcore").explain()
    assert "kernel     tensorcore: asked for by name; K is 0, and simt computes what is left" in page
    assert "layout n" in page
    assert "launch     mm32_simt" in page
    for sizes in ((0, 32, 64), (64, 0, 0)):
        for kernel in ("auto", "tiled", "tensorcore"):
            page = plan(from_layout("nt", *sizes), H200, kernel).explain()
            assert page.endswith("kernel     none: the result has no elements, so nothing is computed or launched")


def test_explain_says_what_was_never_measured() -> None:
    problem = from_layout("nn", 300, 200, 100)
    assert plan(problem, H200).explain().splitlines()[1] == "card       NVIDIA H200 (sm_90a, 132 multiprocessors)"
    assert plan(problem, A100).explain().splitlines()[1].endswith("; estimates were not fitted on this card")


@pytest.mark.parametrize(("precision", "scheme"), [("fp32", "fp16x3"), ("tf32", "fp16")])
def test_explain_names_the_scheme(precision: str, scheme: str) -> None:
    made = plan(from_layout("nn", 4096, 4096, 4096, precision=precision), H200)
    assert f"kernel     tensorcore ({scheme}): least estimated" in made.explain()


def test_explain_of_a_choice() -> None:
    made = plan(from_layout("nn", 1000, 2000, 3000), H200)
    page = made.explain().splitlines()
    assert page[0] == "gemm       M=1000 N=2000 K=3000, layout nn, epilogue none, precision fp32"
    assert page[2].startswith(f"kernel     {made.kernel} (fp16x3): least estimated time of ")
    (estimates,) = (line for line in page if line.startswith("estimates"))
    assert re.findall(r"(\w+) [\d.e+]+ [mµ]s", estimates) == [name for name, _ in made.estimates]


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


@pytest.mark.parametrize("card", SOME, ids=lambda c: c.name)
def test_the_emulation_runs_on_every_card(card: Card) -> None:
    """It runs by wgmma on Hopper and by mma.sync elsewhere, and is chosen where the card has 16 times as many fp16 products as
    fp32 products. Launches overlap only on cards that support it."""
    problem = from_layout("tt", 2048, 4096, 8192)
    assert plan(problem, card).kernel == ("tensorcore" if card == H200 else "simt" if card == SMALL else "mma")
    made = plan(problem, card, "mma")
    assert (made.kernel, made.scheme) == ("mma", "fp16x3")
    for launch in made.launches:
        assert launch.dependent == (card.capability >= (9, 0) and launch.entry not in ("mm32_scale", "mm32_mma"))
    if card != H200:
        with pytest.raises(Unplannable, match=rf"compute capability 9.0; {card.name} .*: kernel 'mma' is the same"):
            plan(problem, card, "tensorcore")
    assert plan(dataclasses.replace(problem, precision="ieee"), card).kernel == "simt"
    with pytest.raises(Unplannable, match="promises fp32 multiply-adds only"):
        plan(dataclasses.replace(problem, precision="ieee"), card, "mma")


def test_clusters_share_k_of_rows_that_are_recomputed() -> None:
    """They do so if K is long, and only on cards that have clusters."""
    for k, cluster in ((512, 1), (1000, 1), (1024, 2), (8192, 2)):
        last = plan(from_layout("nn", 1000, 1000, k), H200, "tensorcore").launches[-1]
        assert (last.entry, last.cluster) == ("mm32_fallback", cluster)
        assert last.blocks is not None
        assert last.blocks % cluster == 0
        assert plan(from_layout("nn", 1000, 1000, k), A100, "mma").launches[-1].cluster == 1


def test_few_long_rows_are_read_whole_by_clusters() -> None:
    """If there are fewer groups of rows than multiprocessors, several blocks share a group; otherwise each block is alone."""
    for (m, k, n), expected in (
        ((256, 36864, 256), (512, 8)),
        ((1024, 16384, 1024), (512, 2)),
        ((2048, 4096, 2048), (512, 1)),
        ((2048, 8192, 4096), (256, 1)),
    ):
        problem = from_layout("tn", m, n, k)
        scale = plan(problem, H200, "tensorcore").launches[0]
        assert (scale.entry, scale.block, scale.cluster) == ("mm32_scale", *expected)
        assert scale.blocks is not None
        assert scale.blocks % scale.cluster == 0
        assert scale.blocks <= 2 * H200.sms
        assert plan(problem, A100, "mma").launches[0].cluster == 1
    assert (
        "blocks of 512 threads, 0 bytes of dynamic shared memory, in clusters of 8"
        in plan(from_layout("tn", 256, 256, 36864), H200, "tensorcore").explain()
    )


@pytest.mark.parametrize("prepacked", [(False, False), (True, False), (False, True)])
def test_what_may_be_left_to_the_lower_tier_early(prepacked: tuple[bool, bool]) -> None:
    """Calls may be that have a lower tier, pack both operands themselves, and promote every 64 of K."""
    for (m, k, n), early in (
        ((2048, 4096, 2048), 1),
        ((256, 36864, 256), 1),
        ((8192, 128, 8192), 0),
        ((600, 600, 600), 0),
    ):
        space = plan(from_layout("nn", m, n, k), H200, "tensorcore", prepacked).workspace
        assert space is not None
        assert space.early == (early if prepacked == (False, False) else 0)
        assert space.lower is None or space.lower.early == space.early


def test_auto_leaves_short_sums_to_fp32() -> None:
    """It does so where the split's own error may exceed an fp32 matmul's. A kernel that is named explicitly still runs."""
    for card, kernel, shortest in (
        (H200, "tensorcore", planning.emulated.SHORTEST_K),
        (A100, "mma", planning.emulated.SHORT_K),
    ):
        short, enough = (from_layout("nn", 8192, 8192, k) for k in (shortest - 1, shortest))
        assert plan(short, card).kernel in ("simt", "direct")  # direct keeps all 24 bits
        assert dict(plan(short, card).refused)[kernel].startswith(f"below K={shortest}")
        assert plan(short, card, kernel).kernel == kernel
        assert kernel in dict(plan(enough, card).estimates)
    assert plan(from_layout("nn", 8192, 8192, 128), H200).kernel == "tensorcore"


def test_short_sums_are_promoted_more_often() -> None:
    for k in (1, 64, planning.emulated.SHORT_K - 1, planning.emulated.SHORT_K, 4096):
        made = plan(from_layout("nn", 512, 512, k), H200, "tensorcore")
        (multiply,) = (launch for launch in made.launches if launch.entry == "mm32_tensorcore")
        assert dict(multiply.constants)["PROMOTE"] == (1 if k < planning.emulated.SHORT_K else 4)


# ---------------------------------------------------------------------------------------------------------------------
# torch's own product, prepacked operands


def test_torchs_product_is_a_choice_only_where_it_is_allowed() -> None:
    small, large = from_layout("nn", 1, 4096, 4096), from_layout("nn", 4096, 4096, 4096)
    made = plan(small, H200, torch="fp32")
    assert (made.kernel, made.launches, made.workspace) == ("torch", (), None)
    assert made.estimates[0][0] == "torch"
    assert plan(small, H200).kernel != "torch"
    assert plan(large, H200, torch="fp32").kernel == "tensorcore"
    assert plan(large, H200, torch="tf32").kernel == "torch"
    for kernel in KERNELS:
        assert plan(small, H200, kernel, torch="fp32").kernel == kernel
    with pytest.raises(ValueError, match="'fp32' or 'tf32', got 'ieee'"):
        plan(small, H200, torch="ieee")


def test_a_drop_in_asks_about_a_call_that_was_made() -> None:
    """That call may have any strides, and torch's product fuses its own bias. Passes that torch would not need count for mm32."""
    problem = from_layout("nn", 512, 512, 512, bias=True)
    strided = dataclasses.replace(problem, a=dataclasses.replace(problem.a, col=3, row=3 * 512))

    def torchs(made: Plan) -> float | None:
        return dict(made.estimates).get("torch")

    fused, passes = plan(problem, H200, torch="fp32", drop_in=True), plan(problem, H200, torch="fp32")
    assert torchs(passes) - torchs(fused) == pytest.approx(H200.launch, rel=0.5)
    assert torchs(plan(strided, H200, torch="fp32")) is None
    assert torchs(plan(strided, H200, torch="fp32", drop_in=True)) == torchs(fused)
    less, more = (dict(plan(problem, H200, torch="fp32", drop_in=True, passes=n).estimates) for n in (0, 2))
    assert more["torch"] == less["torch"]
    for kernel in less.keys() - {"torch"}:
        moved = 2 * 3 * 4 * 512 * 512
        assert 2 * H200.launch < more[kernel] - less[kernel] < 2 * H200.launch + moved / 1e12


def test_a_card_without_kernels_has_torchs_product_where_that_is_allowed() -> None:
    made = plan(from_layout("nn", 64, 64, 64), OLD, torch="fp32")
    assert (made.kernel, made.launches) == ("torch", ())
    assert "compute capability 8.0 and later; Tesla T4 has 7.5" in made.reason
    with pytest.raises(Unplannable):
        plan(from_layout("nn", 64, 64, 64), OLD, "simt", torch="fp32")


def test_prepacked_operands_take_an_emulated_kernel() -> None:
    problem = from_layout("nt", 300, 200, 8000)
    plain, made = plan(problem, H200, "tensorcore"), plan(problem, H200, prepacked=(False, True), torch="fp32")
    assert (made.kernel, made.reason) == ("tensorcore", "B packed beforehand")
    assert dict(made.launches[0].constants)["B_LOAD"] == planning.packing.PREPACKED
    assert made.workspace.prepacked == (False, True)
    assert made.workspace.bytes + planning.packed_bytes(problem, 1) >= plain.workspace.bytes
    assert planning.pack(problem, H200, 1).workspace.bytes == planning.packed_bytes(problem, 1)


def test_a_plan_is_made_in_half_a_millisecond() -> None:
    """This is the median of many plans, each made for the first time. Ten times that is allowed, since another program may use
    the processor."""
    rng = random.Random(5)
    problems = [random_gemm(rng) for _ in range(200)] + [from_layout("nn", 2048, 4096, 8192)]
    taken = []
    for problem in problems:
        start = time.perf_counter()
        plan(problem, H200, torch="fp32")
        taken.append(time.perf_counter() - start)
    assert sorted(taken)[len(taken) // 2] < 10 * 0.5e-3
