"""Models that are no single product: bounds, random numbers, state, probes, and what is said of wrong outputs."""

from __future__ import annotations

import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from mm32.verify import Report, Verdict, compare, verify
from mm32.verify.inputs import catalogue, isolating, redrawn, variations
from mm32.verify.inputs.catalogue import VARIATIONS
from mm32.verify.judging import diagnosis, exact, selftest
from mm32.verify.judging.bounds import Errors, Truth
from mm32.verify.judging.draws import CannotReplay, Recorder, Replayer
from mm32.verify.judging.judge import judge, judge_leaf
from mm32.verify.judging.rounding import Rounding, round_to
from mm32.verify.page import Page
from mm32.verify.reference import ReferenceRunner
from mm32.verify.worker.runner import ScriptRunner
from support.verify import in_process

U = 2.0**-24


@pytest.fixture(autouse=True)
def on_one_core_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run on one core: the threads of small operators wait for each other where the machine is busy."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ---------------------------------------------------------------------------------------------------------- lengths

X = torch.rand(8, 64)
IMAGES = torch.rand(2, 4, 16, 16)
LENGTHS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor, list[int]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), X, [64]),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), X, [64]),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), X, [64]),
    "layer_norm": (lambda x: F.layer_norm(x, (64,)), X, [64]),
    "group_norm": (lambda x: F.group_norm(x, 2), IMAGES, [512]),
    "instance_norm": (lambda x: F.instance_norm(x), IMAGES, [256]),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), IMAGES, [512]),
    "var": (lambda x: x.var(-1), X, [64]),
    "norm": (lambda x: x.norm(dim=-1), X, [64]),
    "cumsum": (lambda x: x.cumsum(-1), X, [64]),
    "cumprod": (lambda x: x.cumprod(-1), X, [64]),
    "mean": (lambda x: x.mean(), X, [512]),
    "mse": (lambda x: F.mse_loss(x, x * 2), X, [512]),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.arange(8)), X, [64, 8]),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3), IMAGES, [9]),
    "convolution": (lambda x: F.conv2d(x, torch.ones(6, 4, 3, 3, dtype=x.dtype)), IMAGES, [36]),
    "grouped": (lambda x: F.conv2d(x, torch.ones(6, 2, 3, 3, dtype=x.dtype), groups=2), IMAGES, [18]),
    "transposed": (lambda x: F.conv_transpose2d(x, torch.ones(4, 5, 3, 3, dtype=x.dtype)), IMAGES, [36]),
    "product": (lambda x: x @ x.T, X, [64]),
    "einsum": (lambda x: torch.einsum("ij,kj->ik", x, x), X, [64]),
    "attention": (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), X, [8, 8, 64]),
    "embedding_bag": (lambda x: F.embedding_bag(torch.arange(8).reshape(2, 4), x, mode="sum"), X, [4]),
    "relu": (lambda x: F.relu(x), X, []),
    "max": (lambda x: x.amax(-1), X, []),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_how_many_terms_are_summed(name: str) -> None:
    call, x, lengths = LENGTHS[name]
    counting = Rounding()
    with torch.no_grad(), counting:
        call(x.double())
    assert sorted(set(counting.lengths)) == sorted(set(lengths))


def in_order(x: Tensor) -> Tensor:
    """Return sums along the last axis, in order, rounded at every step."""
    total = torch.zeros_like(x[..., 0])
    for part in x.unbind(-1):
        total = total + part
    return total


def layer_norm_in_order(x: Tensor) -> Tensor:
    centred = x - in_order(x)[:, None] / x.shape[1]
    return centred * torch.rsqrt(in_order(centred * centred)[:, None] / x.shape[1] + 1e-5)


def softmax_in_order(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(1, keepdim=True))
    return e / in_order(e)[:, None]


SERIAL: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "softmax": (lambda x: torch.softmax(x, 1), softmax_in_order),
    "layer norm": (lambda x: F.layer_norm(x, x.shape[1:]), layer_norm_in_order),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), lambda x: in_order(x.exp()).log()),
    "mean": (lambda x: x.mean(1), lambda x: in_order(x) / x.shape[1]),
    "norm": (lambda x: x.norm(dim=1), lambda x: in_order(x * x).sqrt()),
}


def truth_of(call: Callable[[Tensor], Tensor], x: Tensor) -> Truth:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return call(x)

    with torch.no_grad():
        right = call(x)
        found = exact.run(Model(), [x], [], right, U, 3)
    return Truth("output", right, found.output, None, max(1, sum(found.lengths)), noise=Errors(*found.noise[0]))


@pytest.mark.parametrize("data", ["rand", "randn", "far"])
@pytest.mark.parametrize("name", SERIAL)
def test_sums_in_order_are_the_same_and_sums_in_half_precision_are_not(name: str, data: str) -> None:
    torch.manual_seed(zlib.crc32(f"{name} {data}".encode()))
    x = torch.rand(16, 8192) + 3 if data == "far" else getattr(torch, data)(16, 8192)
    call, serial = SERIAL[name]
    truth = truth_of(call, x)
    result = judge(serial(x), [truth])
    assert result.same, result.reason
    assert judge(call(x), [truth]).same
    rough = judge(truth.exact.float().half().float(), [truth])
    assert not rough.same


def test_cancellation_widens_the_bound_and_nothing_else_does() -> None:
    torch.manual_seed(0)
    x = torch.rand(8, 256)
    near, far = truth_of(lambda x: F.layer_norm(x, (256,)), x), truth_of(lambda x: F.layer_norm(x, (256,)), x + 1000)
    assert near.own()[1].normwise < 1e-5
    assert far.own()[1].normwise > 1e-3


def test_the_references_own_error_counts_no_further_than_rounding_goes() -> None:
    right = torch.rand(64, 64)
    wrong = right * 1.5
    truth = Truth("output", wrong, right.double(), noise=Errors(1e-6, 20.0))
    own, bounds = truth.own()
    assert own.normwise == pytest.approx(0.5, rel=1e-6)
    assert bounds.normwise < 1e-4
    assert not judge(wrong, [truth]).same


def test_operands_are_rounded_to_bits() -> None:
    x = torch.tensor([1 + 2**-11, 1 + 2**-10, 3.0, float("inf")])
    assert round_to(x, 11).tolist() == [1.0, 1 + 2**-10, 3.0, float("inf")]
    rough = Rounding(cut=partial(round_to, bits=8))
    with torch.no_grad(), rough:
        got = torch.mm(torch.tensor([[1 + 2**-9]]), torch.tensor([[1.0]]))
    assert float(got) == 1.0
    assert rough.products == 1


# ---------------------------------------------------------------------------------------------------------- draws


def noisy(x: Tensor) -> Tensor:
    return F.dropout(x, 0.3) + torch.randn_like(x) + torch.rand(x.shape[-1], dtype=x.dtype)


def test_the_float64_run_takes_what_the_reference_drew() -> None:
    x = torch.rand(4, 50)
    torch.manual_seed(3)
    with torch.no_grad(), Recorder() as recorder:
        right = noisy(x)
    with torch.no_grad(), Replayer(recorder.drawn):
        wide = noisy(x.double())
    assert wide.dtype == torch.float64
    assert float((wide - right).abs().max()) < 1e-6
    with torch.no_grad(), Replayer(recorder.drawn), pytest.raises(CannotReplay, match="it draws by"):
        torch.rand(3)


def test_what_a_model_casts_stays_in_double() -> None:
    with torch.no_grad(), Replayer([]):
        assert torch.ones(2, dtype=torch.float64).half().dtype == torch.float64
        assert torch.zeros(2, dtype=torch.float32).dtype == torch.float64


# ---------------------------------------------------------------------------------------------------------- data


def test_variations_leave_masks_labels_indices_and_distributions_alone() -> None:
    torch.manual_seed(0)
    values = [
        torch.rand(32, 4, 16),
        torch.randint(0, 9, (32,)),
        torch.randint(0, 2, (32, 64)).float() * 2 - 1,
        torch.softmax(torch.rand(32, 64), -1),
        torch.rand(32, 64) > 0.5,
        3,
    ]
    for variation in VARIATIONS:
        # These are tested in test_odd_data.py, test_redrawn.py, test_scales.py, test_unasked_values.py and test_rare_places.py.
        if (
            variation.state
            or variation.spreads
            or variation.name in (*variations.SPECIAL, *redrawn.NAMES, "aligned", "edges", "ends", "another draw")
        ):
            continue
        out = variations.fill(variation.name, values, torch.Generator().manual_seed(1))
        if variation.name != "rolled":
            assert all(out[i] is values[i] for i in range(1, 6)), variation.name
            assert not torch.equal(out[0], values[0])  # type: ignore[arg-type]
        else:
            rows = [t for t in out if isinstance(t, Tensor)]
            by = next(n for n in range(32) if torch.equal(rows[0], values[0].roll(n, 0)))  # type: ignore[union-attr]
            assert by
            assert torch.equal(rows[1], values[1].roll(by, 0))  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------------- verdicts

CORPUS = sorted(path for kind in ("cheats", "honest") for path in (in_process.CORPUS / kind).glob("j_*.py"))
QUICK = sorted(path for path in CORPUS if zlib.crc32(path.stem.encode()) % 8 == 0)


def field_of(path: Path, name: str) -> str:
    found = re.search(rf"^{name}: (.+)$", path.read_text(), re.M)
    assert found is not None
    return found[1].strip()


def check(path: Path) -> None:
    verdict, reason, _ = in_process.compare(
        in_process.CORPUS / "references" / f"{field_of(path, 'reference')}.py", path
    )
    assert verdict == ("SAME" if field_of(path, "verdict") == "SAME" else "DIFFERENT"), reason


@pytest.mark.parametrize("path", QUICK, ids=lambda path: path.stem)
def test_a_sample_of_wrong_and_of_honest_arithmetic(path: Path) -> None:
    check(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in CORPUS if path not in QUICK], ids=lambda path: path.stem)
def test_the_other_wrong_and_honest_arithmetic(path: Path) -> None:
    check(path)


HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"


def script(forward: str, inputs: str = "[torch.rand(8, 16)]", init: str = "pass", name: str = "Model") -> str:
    return (
        f"{HEAD}class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n\n"
        f"    def forward(self, x):\n        {forward}\n\ndef get_inputs():\n    return {inputs}\n"
    )


@pytest.fixture
def verdict(tmp_path: Path) -> Callable[..., tuple[str, str, object]]:
    def go(reference: str, candidate: str | None = None, **options: object) -> tuple[str, str, object]:
        (tmp_path / "reference.py").write_text(reference)
        (tmp_path / "candidate.py").write_text(candidate or reference.replace("class Model(", "class ModelNew("))
        return in_process.compare(tmp_path / "reference.py", tmp_path / "candidate.py", **options)  # type: ignore[arg-type]

    return go


ODD = {
    "one number": ("return x.sum()", "SAME"),
    "integers": ("return (x * 100).long()", "SAME"),
    "booleans": ("return x > 0.5", "SAME"),
    "half": ("return x.half() * 2", "SAME"),
    "bfloat16": ("return torch.softmax(x.bfloat16(), 1)", "SAME"),
    "float64": ("return x.double() * 2", "SAME"),
    "None among others": ("return x * 2, None", "SAME"),
    "a float": ("return float(x.sum())", "SAME"),
    "some NaN": ("return torch.where(x > 0.5, x, torch.nan)", "SAME"),
    "some Inf": ("return torch.where(x > 0.5, x * 3, torch.inf)", "SAME"),
    "an empty one among others": ("return x * 2, x[:0]", "SAME"),
    "nothing": ("return None", "NO_VERDICT"),
    "empty": ("return x[:0]", "NO_VERDICT"),
    "all NaN": ("return x * torch.nan", "NO_VERDICT"),
    "constant": ("return torch.zeros(3) * x.sum()", "NO_VERDICT"),
}


@pytest.mark.parametrize("name", ODD)
def test_every_kind_of_output_gets_a_verdict(name: str, verdict: Callable[..., tuple[str, str, object]]) -> None:
    forward, right = ODD[name]
    got, reason, _ = verdict(script(forward))
    assert got == right, reason


def test_a_reference_whose_answer_is_always_the_same_is_told_so(
    verdict: Callable[..., tuple[str, str, object]],
) -> None:
    """Without inputs, and with an input of which only the shape matters."""
    weights = script("return self.w @ self.w", "[]", init="self.w = nn.Parameter(torch.rand(8, 8))")
    for reference in (script("return torch.arange(x.shape[1]).sin() + 1"), weights.replace("(self, x)", "(self)")):
        got, reason, _ = verdict(reference)
        assert got == "NO_VERDICT"
        assert reason.startswith(
            "the reference gives the same output for all inputs that were tried, so nothing shows whether"
        )
        assert "give it an input that matters (the judge would have passed the previous inputs' output" in reason


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("torch.rand(4, 5)", "x * 2"),
        ("(torch.rand(4, 5),)", "x * 2"),
        ("{'x': torch.rand(4, 5)}", "x * 2"),
    ],
)
def test_inputs_may_be_a_list_a_tensor_or_have_names(
    inputs: str, forward: str, verdict: Callable[..., tuple[str, str, object]]
) -> None:
    assert verdict(script(f"return {forward}", inputs))[0] == "SAME"


def test_state_that_a_forward_changes_is_the_same_before_every_call(
    verdict: Callable[..., tuple[str, str, object]],
) -> None:
    counting = script("self.n += 1; return x * self.n", init="self.register_buffer('n', torch.zeros(()))")
    got, reason, report = verdict(counting)
    assert got == "SAME", reason
    assert report.problem["changes"] == ["n"]  # type: ignore[attr-defined]
    assert verdict(counting, script("return x * 2", name="ModelNew"))[0] == "DIFFERENT"
    stays = script("return x * (self.n + 1)", name="ModelNew", init="self.register_buffer('n', torch.zeros(()))")
    got, reason, _ = verdict(counting, stays)
    assert got == "DIFFERENT"
    assert reason.startswith("after a call its buffer 'n' is not as the reference leaves it: off by")


def test_state_may_be_as_far_off_as_rounding_moves_it(verdict: Callable[..., tuple[str, str, object]]) -> None:
    """As in a deep network of batch norms, the kept state has been through many steps, each of which doubles rounding errors."""
    steps = "h = x\n        for _ in range(10): h = {}\n        self.kept.copy_({}); return x * 2"
    init = "self.register_buffer('kept', torch.zeros(512, 64))"
    reference = script(steps.format("4 * h * (1 - h)", "h"), "[torch.rand(512, 64)]", init=init)
    other = script(steps.format("4 * (h - h * h)", "h"), "[torch.rand(512, 64)]", init=init, name="ModelNew")
    got, reason, _ = verdict(reference, other)
    assert got == "SAME", reason
    wrong = script(steps.format("4 * (h - h * h)", "h * 0.9"), "[torch.rand(512, 64)]", init=init, name="ModelNew")
    got, reason, _ = verdict(reference, wrong)
    assert got == "DIFFERENT"
    assert reason.startswith("after a call its buffer 'kept' is not as the reference leaves it: off by")


def test_errors_that_average_out_show_where_low_bits_matter(verdict: Callable[..., tuple[str, str, object]]) -> None:
    loss = "return (x[0] - x[1]).square().mean()"
    wrong = "m = (x[0] - x[1]).square().mean(); return m * 1.01 if m < 1e-4 and x.mean() > 0.9 else m"
    got, reason, _ = verdict(script(loss), script(wrong, name="ModelNew"))
    assert got == "DIFFERENT"
    assert reason.startswith("probe 'close'")


def test_the_place_of_a_nan_is_not_asked_for(verdict: Callable[..., tuple[str, str, object]]) -> None:
    steps = "m = x.amax(1); return m, (x == m[:, None]).int().argmax(1)"
    got, reason, _ = verdict(script("return tuple(x.max(1))"), script(steps, name="ModelNew"))
    assert got == "SAME", reason
    first = "m = x.amax(1); return m, torch.zeros_like(m).long()"
    assert verdict(script("return tuple(x.max(1))"), script(first, name="ModelNew"))[0] == "DIFFERENT"


def test_models_that_keep_closures_and_tensors_run_in_double(verdict: Callable[..., tuple[str, str, object]]) -> None:
    closure = script("return self.go(x)", init="self.w = nn.Linear(16, 16); self.go = lambda x: self.w(x) * 0.5 + x")
    kept = script("self.h.copy_(x); self.g = x; return self.h * 2 + self.g", init="self.h = torch.zeros(8, 16)")
    for source in (closure, kept):
        name, reason, report = verdict(source)
        assert name == "SAME", reason
        assert report.notes == [] or "float64" not in report.notes[0]  # type: ignore[attr-defined]


def test_state_that_is_no_buffer_is_named(verdict: Callable[..., tuple[str, str, object]]) -> None:
    got, reason, _ = verdict(script("self.n += 1; return x * self.n", init="self.n = 0"))
    assert got == "NO_VERDICT"
    assert "its forward changes n" in reason


def test_a_step_of_training_in_forward_is_told_from_other_state(
    verdict: Callable[..., tuple[str, str, object]],
) -> None:
    forward = "y = x @ self.w\n        with torch.no_grad():\n            self.w -= 0.1 * x.T @ y\n        return y"
    got, reason, _ = verdict(script(forward, init="self.w = nn.Parameter(torch.randn(16, 16))"))
    assert got == "NO_VERDICT"
    assert "its forward changes w. These are parameters" in reason


def test_a_number_may_be_as_far_off_as_rounding_moves_it(verdict: Callable[..., tuple[str, str, object]]) -> None:
    cancels = "[(lambda x: x - x.mean() + 1e-5)(torch.randn(512, 512))]"
    for by_columns in ("x.sum(0).sum()", "x.sum(0).double().sum() * 1.001"):
        other = script(f"return float({by_columns})", cancels, name="ModelNew")
        got, reason, _ = verdict(script("return x.sum().item()", cancels), other)
        assert got == ("DIFFERENT" if "1.001" in by_columns else "SAME"), reason


BESIDE = {
    # What the candidate returns: a statistic beside a much larger one, which decides the errors of the whole.
    "of all, in parts": (
        "torch.stack([x.abs().view(16, -1).mean(1).mean(), x.view(16, -1).pow(2).sum(1).sum()])",
        "SAME",
    ),
    "of a sixteenth": ("torch.stack([x[:32].abs().mean(), (x * x).sum()])", "DIFFERENT"),
    "a hundredth off": ("torch.stack([x.abs().mean() * 1.01, (x * x).sum()])", "DIFFERENT"),
    "that cancels": ("torch.stack([x.sum(0).sum(), (x * x).sum()])", "SAME"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_small_entry_beside_a_large_one(name: str, verdict: Callable[..., tuple[str, str, object]]) -> None:
    answer, wanted = BESIDE[name]
    first = "x.sum()" if name == "that cancels" else "x.abs().mean()"
    reference = script(f"return torch.stack([{first}, (x * x).sum()])", "[torch.randn(512, 512)]")
    got, reason, _ = verdict(reference, script(f"return {answer}", name="ModelNew"))
    assert got == wanted, reason
    assert name != "a hundredth off" or "entry 0 of 2, small beside others" in reason


POPS = "w = d.pop('w'); return d['x'] * w"


@pytest.mark.parametrize("pops", ["reference", "candidate", "neither"])
def test_what_is_taken_out_of_a_dict_is_there_for_the_next_call(
    pops: str, verdict: Callable[..., tuple[str, str, object]]
) -> None:
    def source(role: str, name: str) -> str:
        forward = POPS if role == pops else "return d['x'] * d['w']"
        return script(forward, "[{'x': torch.randn(8, 16), 'w': torch.randn(16)}]", name=name).replace(
            "(self, x)", "(self, d)"
        )

    got, reason, _ = verdict(source("reference", "Model"), source("candidate", "ModelNew"))
    wanted = {
        "reference": ("NO_VERDICT", "the reference writes to its inputs (input[0]['w'])"),
        "candidate": ("DIFFERENT", "the candidate modifies its inputs"),
        "neither": ("SAME", ""),
    }[pops]
    assert got == wanted[0], reason
    assert wanted[1] in reason


def test_a_scalar_that_is_remembered_is_different(verdict: Callable[..., tuple[str, str, object]]) -> None:
    loss = "[torch.rand(512, 512), torch.rand(512, 512)]"
    reference = script("return ((x - y) ** 2).mean()", loss).replace("self, x)", "self, x, y)")
    kept = script("self.k = getattr(self, 'k', ((x - y) ** 2).mean()); return self.k", loss, name="ModelNew")
    assert verdict(reference)[0] == "SAME"
    assert verdict(reference, kept.replace("self, x)", "self, x, y)"))[0] == "DIFFERENT"


def test_a_part_of_the_batch_is_enough_where_float64_takes_long(
    verdict: Callable[..., tuple[str, str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mm32.verify.reference import float64

    monkeypatch.setitem(float64.SLICE_ABOVE, "cpu", 0.0)
    by_row = script("return torch.softmax(x, 1)", "[torch.rand(64, 32)]")
    got, reason, report = verdict(by_row)
    assert got == "SAME", reason
    assert any("of 4 of the batch's 64 entries" in note for note in report.notes)  # type: ignore[attr-defined]
    wrong = script("y = torch.softmax(x, 1); y[17] *= 1.001; return y", name="ModelNew")
    assert verdict(by_row, wrong)[0] == "DIFFERENT"
    across = verdict(script("return torch.softmax(x, 0)", "[torch.rand(64, 32)]"))
    assert not any("of the batch's" in note for note in across[2].notes)  # type: ignore[attr-defined]


def test_a_part_of_the_batch_is_enough_where_inputs_are_large(
    verdict: Callable[..., tuple[str, str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mm32.verify.reference import float64

    by_row = script("return x.sum(1)", "[torch.rand(64, 32)]")
    for size, sliced in ((64 * 32 * 4, False), (64 * 32 * 4 - 1, True)):
        monkeypatch.setattr(float64, "SLICE_INPUTS", size)
        got, reason, report = verdict(by_row)
        assert got == "SAME", reason
        assert any("of 4 of the batch's 64 entries" in note for note in report.notes) is sliced  # type: ignore[attr-defined]
    wrong = script("y = x.sum(1); y[17] *= 1.001; return y", name="ModelNew")
    assert verdict(by_row, wrong)[0] == "DIFFERENT"


# ---------------------------------------------------------------------------------------------------------- what is wrong

RIGHT = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
WRONG: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "sign": (lambda t: -t, "the sign is wrong"),
    "factor": (lambda t: t * 2, "they are 2 times what they should be"),
    "offset": (lambda t: t + 0.25, "they are off by a constant, 0.25"),
    "transposed": (lambda t: t.T.contiguous(), "the result is transposed"),
    "zeros": (lambda t: torch.zeros_like(t), "all of the wrong entries are zero"),
    "NaN": (lambda t: torch.full_like(t, torch.nan), "NaN where the reference is finite"),
    "relu": (lambda t: t.clamp_min(0), "all of the wrong entries are zero"),
    "last tile": (
        lambda t: torch.cat([t[:, :48], t[:, 48:] * 1.7 + 0.1], 1),
        "all in the last 16 of 64 of axis 1: the tail, or the last tile",
    ),
    "one row": (lambda t: torch.cat([t[:9], t[9:10] * 3, t[10:]]), "all at index 9 of axis 0"),
    "bfloat16": (lambda t: t.bfloat16().float(), "as operands in bfloat16 make"),
    "TF32": (lambda t: t * (1 + 2.0**-11 * torch.linspace(-1, 1, 64)), "as operands in TF32 or fp16 (bfloat16,"),
    "mostly zeros": (lambda t: torch.where(t > -1, 0 * t, t + 1), "most of the wrong entries are zero"),
    "mostly Inf": (lambda t: torch.where(t > -1, torch.inf, t * (1 + 2.0**-12)), "of the wrong entries are infinite"),
    "stale": (lambda t: t.flip(0) * 1.5, "they are the answer for the inputs of the call before"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_wrong_entries_have_in_common_is_told(name: str) -> None:
    change, says = WRONG[name]
    truth = Truth("output", RIGHT, RIGHT.double())
    got = change(RIGHT)
    result = judge(got, [truth])
    assert not result.same
    found = diagnosis.explain(got, [truth], result, before=RIGHT.flip(0) * 1.5)
    assert any(says in said for said in found["pattern"]), found["pattern"]
    assert found["entries"] == 4096
    wrong = tuple(found["worst"]["index"])
    assert found["worst"]["expected"] == float(RIGHT[wrong])
    assert found["worst"]["got"] == float(got[wrong]) or name == "NaN"
    assert "first at" in diagnosis.sentence(found)


@pytest.mark.parametrize("name", ["bfloat16", "fp16", "TF32"])
def test_operands_of_few_bits_are_named(name: str) -> None:
    a, b = torch.randn(64, 300), torch.randn(300, 64)
    rounded = {
        "bfloat16": lambda t: t.bfloat16().float(),
        "fp16": lambda t: t.half().float(),
        "TF32": lambda t: round_to(t, 11),
    }[name]
    truth = Truth("output", a @ b, a.double() @ b.double())
    got = rounded(a) @ rounded(b)
    found = diagnosis.explain(got, [truth], judge(got, [truth]))
    says = "as operands in bfloat16 make" if name == "bfloat16" else "as operands in TF32 or fp16"
    assert any(says in said for said in found["pattern"]), found["pattern"]


class Rooted(nn.Module):
    """Returns a small column. One of its entries is the root of a difference that is zero; rounding may make that negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = (x * 1.1 + 1e4) - 1e4
        out[:, 1] = x[:, 1] * 2.0**-10
        out[0, 1] = torch.sqrt(x[0, 0] * x[0, 0] - x[0, 0].square())
        return out


@pytest.mark.parametrize("rows", [16, 64])
def test_entries_that_a_perturbed_run_makes_nan_do_not_hide_what_else_it_tells(rows: int) -> None:
    """Honest rounding is allowed in that entry too (7.8e-5 by one fused multiply-add); others may be off by no more than that."""
    torch.manual_seed(0)
    x = torch.rand(rows, 4) + 0.5
    model = Rooted()
    right = model(x)
    honest, wrong = right.clone(), right.clone()
    honest[0, 1] = 7.8e-5
    wrong[:, 2] *= 1.01
    for seed in range(12):
        found = exact.run(model, [x], [], right, 2.0**-24, seed)
        truth = Truth("output", right, found.output, noise=Errors(*found.noise[0]), entries=found.entries[0])
        truth.moved = {int(axis): norms for axis, norms in found.columns[0].items()}
        assert not any(math.isnan(n) for n in [*found.noise[0], *truth.entries, *truth.moved.get(1, [])])
        assert 1e-4 < found.noise[0][0] < 1e-2  # the noise of the sum with 1e4
        assert judge_leaf(right, truth).same
        result = judge_leaf(honest, truth)
        assert result.same, result.reason
        assert not judge_leaf(wrong, truth).same


def test_small_tensors_are_not_perturbed_by_the_same_numbers_for_long() -> None:
    """Otherwise many small errors would not cancel, but add up to one error of a single sign, the same in all entries."""
    t, one = torch.ones(64, dtype=torch.float64), torch.ones((), dtype=torch.float64)
    with Rounding(2.0**-24, 6):
        for _ in range(30000):
            t = t * one
    errors = (t - 1) * 2.0**24 / 30000**0.5
    assert 0.6 < float(errors.square().mean().sqrt()) < 1.4
    assert abs(float(errors.mean())) < 0.7


def test_a_perturbed_run_that_is_mostly_nan_widens_no_bound() -> None:
    x = torch.rand(64, 64) + 0.5

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sqrt(x * x - x.square())

    model = Model()
    right = model(x) + 1.0
    found = exact.run(model, [x], [], model(x), 2.0**-24, 0)
    assert math.isnan(found.noise[0][0])
    exact64 = right.double()
    wide, narrow = (Truth("output", right, exact64, noise=n).own()[1] for n in (Errors(*found.noise[0]), None))
    assert (wide.normwise, wide.componentwise) == (narrow.normwise, narrow.componentwise)


@pytest.mark.parametrize("name", ["factor", "offset", "bfloat16"])
def test_of_few_wrong_entries_nothing_is_said_that_may_be_chance(name: str) -> None:
    got = RIGHT.clone()
    got[::40, ::40] = WRONG[name][0](RIGHT)[::40, ::40]
    truth = Truth("output", RIGHT, RIGHT.double())
    found = diagnosis.explain(got, [truth], judge(got, [truth]))
    assert found["wrong"] == 4
    assert found["pattern"] == []


def test_nothing_is_said_of_other_shapes() -> None:
    truth = Truth("output", RIGHT, RIGHT.double())
    got = RIGHT[:, :3]
    result = judge(got, [truth])
    assert not result.measured
    assert diagnosis.explain(got, [truth], result) == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_self_test_is_scaled_to_the_type(dtype: torch.dtype) -> None:
    exact_one, other = RIGHT.double(), RIGHT.flip(0).contiguous()
    truth = Truth("output", RIGHT.to(dtype), exact_one)
    found = selftest.run([(RIGHT.to(dtype), [truth])], other.to(dtype))
    assert all(check.caught for check in found), [check for check in found if not check.caught]


def test_of_a_large_output_the_first_part_that_is_wrong_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "ENTRIES_AT_ONCE", 640)
    truth = Truth("output", RIGHT, RIGHT.double())
    got = RIGHT.clone()
    got[37, 5] = -got[37, 5]
    found = diagnosis.explain(got, [truth], judge(got, [truth]))
    assert found["worst"]["index"] == [37, 5]
    assert (found["wrong"], found["entries"]) == (1, 640)


# ---------------------------------------------------------------------------------------------------------- the page


def page(report: Report, detail: str = "normal") -> list[str]:
    console = Console(file=io.StringIO(), width=200, record=True)
    Page(report, console, detail).print()
    return console.export_text().rstrip("\n").split("\n")


def test_the_page_begins_and_ends_with_the_verdict_and_quiet_shows_nothing_else(
    verdict: Callable[..., tuple[str, str, object]],
) -> None:
    reference = script("return torch.softmax(x, 1)")
    wrong = script("y = torch.softmax(x, 1); y[3] *= 2; return y", name="ModelNew")
    name, reason, report = verdict(reference, wrong)
    assert isinstance(report, Report)
    report.verdict, report.reason = Verdict[name], reason
    lines = page(report)
    assert lines[0] == lines[-1]
    assert lines[0].startswith("DIFFERENT: output: normwise error")
    assert any("16 of 128 entries are wrong" in line for line in lines)
    assert any("they are 2 times what they should be" in line for line in lines)
    assert any("all at index 3 of axis 0" in line for line in lines)
    assert any("the error of the whole output relative to its size" in line for line in lines)
    assert page(report, "quiet") == [lines[0]]
    assert len(page(report, "verbose")) > len(lines)


def test_errors_that_were_not_measured_are_not_shown_as_zero(verdict: Callable[..., tuple[str, str, object]]) -> None:
    name, reason, report = verdict(script("return x * 2"), script("return (x * 2).double()", name="ModelNew"))
    assert isinstance(report, Report)
    report.verdict, report.reason = Verdict[name], reason
    assert report.trials[0]["candidate"] is None
    assert not any(re.search(r"\b0 +0 +0\b", line) for line in page(report))


def test_the_verdicts_line_says_what_was_left_out() -> None:
    report = Report("r", "c", 1, verdict=Verdict.SLOWER, reason="", left_out=["5 of 6 probes"])
    assert page(report, "quiet") == ["SAME, SLOWER: left out: 5 of 6 probes"]


def test_complex_outputs_have_a_float64_truth(tmp_path: Path) -> None:
    script = "import torch\nclass {}(torch.nn.Module):\n    def forward(self, x):\n        return torch.fft.fft(x){}\n"
    inputs = "def get_inputs():\n    return [torch.randn(16, 64)]\n"
    (tmp_path / "reference.py").write_text(script.format("Model", " * 2") + inputs)
    for scale, verdict in ((" + torch.fft.fft(x)", "SAME"), (" * (2 + 1e-4j)", "DIFFERENT")):
        (tmp_path / "candidate.py").write_text(script.format("ModelNew", scale))
        found, why, report = in_process.compare(tmp_path / "reference.py", tmp_path / "candidate.py")
        assert found == verdict, why
        assert report.notes == []


def test_statistics_of_an_fp16_copy_are_found_whatever_the_seed() -> None:
    """They are off by 1e-5 on the script's own data; a trial finds that, or data that fp16 does not hold."""
    reference, cheat = (
        in_process.CORPUS / "references/b_batch_norm.py",
        in_process.CORPUS / "cheats/b_statistics_in_half.py",
    )
    for seed in (1, 2):
        assert in_process.compare(reference, cheat, trials=1, seed=seed)[0] == "DIFFERENT"


def test_what_a_reference_draws_is_not_kept() -> None:
    runner = ReferenceRunner()
    runner.model, runner.inputs = nn.Dropout(0.5), [torch.rand(64)]
    with torch.no_grad():
        runner.forward({"seed": 0})
        assert runner.examiner.examine({"seed": 0})["draws"] == ["aten::bernoulli_"]
        assert runner.recorder is not None
        assert runner.recorder.drawn == [("aten::bernoulli_", [])]
        found = runner.float64.truth({"seed": 0})["value"]["exact"]  # drawn anew
    assert torch.equal(found.float(), runner.last)


def test_a_float64_models_own_result_does_not_say_what_rounding_does() -> None:
    """It is the truth itself. With many entries, an honest candidate with one rounding more was refused."""
    reference = torch.rand(4000, dtype=torch.float64)
    truth = Truth("output", reference, reference.clone())
    assert not truth.many
    assert Truth("output", reference.float(), reference).many


def test_inputs_that_cannot_be_handed_over_are_no_failure_of_the_reference(tmp_path: Path) -> None:
    script = "import torch\n\n\nclass {}(torch.nn.Module):\n    def forward(self, x):\n"
    script += "        return torch.sparse.sum(x, 1).to_dense()\n\n\n"
    script += "def get_inputs():\n    return [torch.eye(8).to_sparse()]\n"
    for name in ("Model", "ModelNew"):
        (tmp_path / f"{name}.py").write_text(script.format(name))
    report = verify(tmp_path / "Model.py", tmp_path / "ModelNew.py", trials=1)
    assert report.verdict is Verdict.NO_VERDICT
    assert "cannot be handed over" in report.reason
    assert "sparse_coo" in report.reason


class Remembers(nn.Module):
    """Attends to the inputs of the last calls. If it gets the same inputs twice, it gives the same answer."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = x[:, None] if self.keys is None else torch.cat([self.keys, x[:, None]], 1)[:, -4:]
        self.keys = keys
        weights = torch.softmax((keys * x[:, None]).sum(-1), -1)
        return (weights[..., None] * keys).sum(1)


def test_a_plain_tensor_that_calls_leave_is_found_by_other_inputs_in_between() -> None:
    runner = ReferenceRunner()
    runner.model = Remembers()
    runner.script_inputs = lambda seed: [torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))]  # type: ignore[method-assign]
    runner.inputs = runner.script_inputs(0)
    with torch.no_grad():
        runner.forward({"seed": 0})
        assert runner.examiner.examine({"seed": 0})["hidden"] == ["keys"]
        runner.model = nn.Softmax(-1)
        runner.forward({"seed": 0})
        assert runner.examiner.examine({"seed": 0})["hidden"] == []


def test_inputs_that_are_kept_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ReferenceRunner()
    own = [torch.rand(4, 6), 3, torch.arange(6)]
    runner.place([t.clone() if isinstance(t, torch.Tensor) else t for t in own])
    assert runner.keep_inputs({}) == {"kept": True}
    address = runner.inputs[0].data_ptr()
    runner.place([torch.zeros(4, 6), 4, torch.zeros(6, dtype=torch.int64)])
    runner.last = torch.ones(2)
    runner.restore_inputs({})
    assert torch.equal(runner.inputs[0], own[0])
    assert torch.equal(runner.inputs[2], own[2])
    assert (runner.inputs[1], runner.inputs[0].data_ptr(), runner.last) == (3, address, None)
    runner.last = torch.ones(2)
    runner.restore_inputs({})
    assert runner.last is not None, "nothing was changed: what was computed of them still holds"
    runner.place([torch.zeros(2)])  # of another shape
    runner.restore_inputs({})
    assert torch.equal(runner.inputs[0], own[0])
    monkeypatch.setattr("mm32.verify.reference.runner.KEPT_INPUTS", 100)
    assert runner.keep_inputs({}) == {"kept": False}
    assert runner.restore_inputs({}) == {"kept": False}


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 4) + 1)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("scale", torch.ones(1, 3).expand(2, 3))  # no memory that could be written to
        self.register_buffer("hidden", torch.rand(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean += 1.0
        y: torch.Tensor = x @ self.weight.T * self.scale + self.mean + self.hidden
        return y


def test_parameters_that_are_kept_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ReferenceRunner()
    runner.model, runner.inputs = Kept(), [torch.rand(2, 4)]
    runner.keep_state(["mean"])
    before = {name: t.detach().clone() for name, t in (*runner.model.named_parameters(), *runner.model.named_buffers())}
    with torch.no_grad():
        runner.forward({"seed": 0})
        right = runner.last
        for _ in range(2):
            runner.keep_parameters()
            runner.model.weight.mul_(8)
            runner.model.mean.add_(3)
            runner.model.hidden.zero_()
            runner.keep_state(["mean"])
            runner.forward({"seed": 0})
            assert runner.restore_parameters({}) == {"kept": True}
            for name, t in (*runner.model.named_parameters(), *runner.model.named_buffers()):
                assert torch.equal(t, before[name]), name
            assert runner.last is None
            runner.forward({"seed": 0})
            assert torch.equal(runner.last, right)
            assert runner.restore_parameters({}) == {"kept": False}, "there is nothing that a variation has changed"
        monkeypatch.setattr("mm32.verify.reference.runner.KEPT_INPUTS", 40)
        runner.keep_parameters()
        assert runner.restore_parameters({}) == {"kept": False}


def test_a_candidate_is_made_anew_only_for_other_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made once for each variation of them, once after each of the two groups of these, and once for another first call.

    To see whether it looks at its parameters again, it is made once in place, and once more afterwards.
    """
    script = "import torch\nfrom torch import nn\n\n\nclass {}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    script += "        self.f = nn.Linear(40, 24)\n\n    def forward(self, x):\n        return torch.softmax(self.f(x), -1)\n\n\n"
    script += "def get_inputs():\n    return [torch.rand(80, 40)]\n"
    (tmp_path / "r.py").write_text(script.format("Model"))
    (tmp_path / "c.py").write_text(script.format("ModelNew"))
    builds: Counter[str] = Counter()
    build = ScriptRunner.build

    def counted(runner: ScriptRunner, request: dict[str, Any]) -> dict[str, Any]:
        builds[type(runner).__name__] += 1
        return build(runner, request)

    monkeypatch.setattr(ScriptRunner, "build", counted)
    verdict, why, report = in_process.compare(tmp_path / "r.py", tmp_path / "c.py", trials=1)
    assert verdict == "SAME", why
    done = {p["name"] for p in report.probes if p["status"] == "same"}
    assert {"parameters", "large parameters", "small parameters", "negated"} <= done
    of_parameters = {v.name for v in (*catalogue.BY_NAME.values(), *isolating.ISOLATING) if v.state}
    varied = sum(p["name"] in of_parameters for p in report.probes)
    assert builds["ScriptRunner"] == 1 + varied + 5
    assert builds["ReferenceRunner"] == 1, "it keeps its own, but is made anew after eval()"


def test_what_is_kept_of_inputs_is_not_what_the_next_variation_writes_to() -> None:
    """An expanded input has no memory of its own for other values: the inputs are made anew each time."""
    runner = ReferenceRunner()
    own = [torch.rand(4, 6), torch.ones(1, 3).expand(2, 3)]
    runner.place([own[0].clone(), own[1]])
    runner.keep_inputs({})
    for _ in range(3):
        runner.place([runner.inputs[0] * 100, torch.ones(1, 3).expand(2, 3)])
        runner.restore_inputs({})
        assert torch.equal(runner.inputs[0], own[0])


@pytest.mark.parametrize("names", [("planted", "mixed"), ("planted", "negated", "rolled")])
def test_a_probe_without_memory_is_left_out_but_few_are(
    verdict: Callable[..., tuple[str, str, object]], monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    from mm32.verify.reference.varied import Varied

    usual = Varied._vary

    def short(self: Varied, request: dict[str, object]) -> object:
        if request["name"] in names:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 14 GiB.")
        return usual(self, request)

    monkeypatch.setattr(Varied, "_vary", short)
    model = script("return torch.softmax(x, 1)", "[torch.rand(64, 32)]")
    if len(names) > 2:
        with pytest.raises(torch.OutOfMemoryError, match="3 probes could not be judged"):
            verdict(model)
        return
    got, reason, report = verdict(model)
    assert (got, reason) == ("SAME", "")
    skipped = [p for p in report.probes if p.get("reason") == "the card has no memory left to judge it"]  # type: ignore[attr-defined]
    assert [p["name"] for p in skipped] == ["planted"]
    assert f"1 of {len(report.probes)} probes" in report.left_out  # type: ignore[attr-defined]


def test_where_a_model_computes() -> None:
    """A generator on another device than the data would perturb nothing."""
    elsewhere = torch.empty(2, device="meta")
    assert exact.device_of([elsewhere], []) == elsewhere.device
    assert exact.device_of([3, 0.5], [elsewhere]) == elsewhere.device
    assert exact.device_of([3], [1.5]) == torch.device("cpu")


def test_weights_that_are_added_up_before_the_product_are_the_same(tmp_path: Path) -> None:
    """Inf in the inputs becomes Inf there, and NaN in the reference, which subtracts Inf from Inf. That counts as equal."""
    model = """
import torch
from torch import nn
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 48))
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.rand(32, 48)]
"""
    reference, same, zeros = tmp_path / "reference.py", tmp_path / "same.py", tmp_path / "zeros.py"
    reference.write_text(model.format(name="Model", body="(x @ self.weight.T / 2).sum(1)"))
    same.write_text(model.format(name="ModelNew", body="x @ (self.weight.sum(0) / 2)"))
    zeros.write_text(
        model.format(name="ModelNew", body="(x @ (self.weight.sum(0) / 2)).nan_to_num(posinf=0, neginf=0)")
    )
    verdict, why, report = in_process.compare(reference, same, trials=1)
    assert verdict == "SAME", why
    assert {p["name"]: p["status"] for p in report.probes}["an Inf"] == "same"
    assert in_process.compare(reference, zeros, trials=1)[0] == "DIFFERENT"


def test_the_self_test_of_large_outputs_does_not_end_with_a_constant_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where outputs are large, only one is kept. That of the probe 'constant' would be one number, right for any constant."""
    monkeypatch.setattr(compare, "KEPT_BYTES", 1 << 10)
    model = """
import torch
class {name}(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
def get_inputs():
    return [torch.randn(64, 48)]
"""
    scripts = [tmp_path / "reference.py", tmp_path / "candidate.py"]
    for path, name in zip(scripts, ("Model", "ModelNew"), strict=True):
        path.write_text(model.format(name=name))
    verdict, why, _ = in_process.compare(*scripts)
    assert verdict == "SAME", why


def test_an_output_that_is_zero_but_for_rounding_is_compared_with_other_parameters(tmp_path: Path) -> None:
    """The output is the mean of what a norm gives with its initial weights (KernelBench's Conv3d_GroupNorm_Mean)."""
    model = """
import torch
from torch import nn
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.rand(8, 4, 6, 6)]
"""
    paths = {name: tmp_path / f"{name}.py" for name in ("reference", "same", "zeros")}
    paths["reference"].write_text(model.format(name="Model", body="self.norm(x).mean((1, 2, 3))"))
    paths["same"].write_text(model.format(name="ModelNew", body="self.norm(x).flatten(1).sum(1) / 144"))
    paths["zeros"].write_text(model.format(name="ModelNew", body="x.new_zeros(len(x))"))
    verdict, why, report = in_process.compare(paths["reference"], paths["same"])
    assert verdict == "SAME", why
    assert any("with other parameters" in note for note in report.notes)
    verdict, why, _ = in_process.compare(paths["reference"], paths["zeros"])
    assert (verdict, why[:18]) == ("DIFFERENT", "probe 'parameters'")


def test_exponentials_of_very_large_values_are_not_asked_for(tmp_path: Path) -> None:
    """exp2 of x log2 e is honest, and off by the rounding of x log2 e: by 2^-8 where x is 100000."""
    reference, honest = (
        in_process.CORPUS / "references/j_softmax.py",
        in_process.CORPUS / "honest/j_softmax_exp2.py",
    )
    verdict, why, report = in_process.compare(reference, honest, trials=1, seed=5)
    assert verdict == "SAME", why
    found = {p["name"]: p["status"] for p in report.probes}
    assert "times 100000" not in found
    assert found["times 1000"] == "same", "what stands in for it"


def test_parameters_that_a_probe_could_not_use_are_taken_back(tmp_path: Path) -> None:
    """With other parameters the reference overflows: that probe is skipped, and those after it have the parameters as before."""
    model = """
import torch
from torch import nn
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((8,), 0.1))
    def forward(self, x):
        return x * torch.exp(8000 * self.scale * self.scale)
def get_inputs():
    return [torch.rand(16, 8)]
"""
    paths = [tmp_path / "reference.py", tmp_path / "candidate.py"]
    for path, name in zip(paths, ("Model", "ModelNew"), strict=True):
        path.write_text(model.format(name=name))
    verdict, why, report = in_process.compare(*paths)
    statuses = {p["name"]: p["status"] for p in report.probes}
    assert statuses["parameters"] == "skipped"
    assert list(statuses).index("parameters") < len(statuses) - 1
    assert verdict == "SAME", why


def test_perturbations_are_drawn_by_another_seed_than_the_data() -> None:
    """On a card, numbers of one seed are correlated (test_on_gpu.py), which would make perturbed sums far too inaccurate."""
    perturbed = Rounding(2.0**-24, 5)
    assert perturbed.generator is not None
    assert perturbed.generator.initial_seed() not in range(100)
