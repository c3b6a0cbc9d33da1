"""What scripts may take and return besides tensors, and what is said of values that cannot be handed over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from mm32.verify import Verdict, verify
from mm32.verify.processes.channel import Failure
from mm32.verify.reference import ReferenceRunner
from support.verify import in_process

HEAD = "import torch\nfrom torch import nn\nfrom typing import NamedTuple\nfrom collections import namedtuple\n\n\n"


def written(folder: Path, reference: str, candidate: str = "") -> tuple[Path, Path]:
    """Write two scripts, and return their paths. The candidate is the reference with another class name unless it is given."""
    candidate = candidate or reference.replace("class Model(", "class ModelNew(")
    paths = folder / "reference.py", folder / "candidate.py"
    for path, text in zip(paths, (reference, candidate), strict=True):
        path.write_text(HEAD + text)
    return paths


STATE = """
class State(NamedTuple):
    h: torch.Tensor
    c: torch.Tensor

    @property
    def both(self):
        return torch.cat([self.h, self.c], 1)
"""
CELL = """
class Model(nn.Module):
    def forward(self, x, states):
        assert type(states[0]) is State
        return State(x @ states[0].both.T, states[0].c * 2)

def get_inputs():
    return [torch.randn(4, 8), [State(torch.randn(4, 5), torch.randn(4, 3))]]
"""
NO_CLASS = """
class ModelNew(nn.Module):
    def forward(self, x, states):
        state = states[0]
        return x @ torch.cat([state.h, state.c], 1).T, state.c{} * 2
"""


@pytest.mark.parametrize("candidate", ["", NO_CLASS.format("")], ids=["its own class", "no class"])
def test_named_tuples_are_handed_over_with_their_fields(candidate: str, tmp_path: Path) -> None:
    paths = written(tmp_path, STATE + CELL, candidate)
    assert in_process.compare(*paths)[:2] == ("SAME", "")


def test_a_wrong_field_is_different(tmp_path: Path) -> None:
    verdict, reason, _ = in_process.compare(*written(tmp_path, STATE + CELL, NO_CLASS.format(".abs()")))
    assert verdict == "DIFFERENT"
    assert "output[1]" in reason


def test_named_tuples_in_timed_calls_too(tmp_path: Path) -> None:
    report = verify(*written(tmp_path, STATE + CELL, NO_CLASS.format("")), trials=1)
    assert report.verdict.same, report.reason
    assert report.timing is not None


def test_a_packed_sequence_is_an_input(tmp_path: Path) -> None:
    reference = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 3)

    def forward(self, packed):
        out, last = self.gru(packed)
        return out.data, last

def get_inputs():
    return [nn.utils.rnn.pack_sequence([torch.randn(n, 4) for n in (5, 3, 2)])]
"""
    assert in_process.compare(*written(tmp_path, reference))[:2] == ("SAME", "")


YIELDED = """
class Model(nn.Module):
    def forward(self, x, y):
        return x * y

def get_inputs():
    for shape in {}:
        yield torch.rand(shape)
"""


def test_inputs_may_be_yielded(tmp_path: Path) -> None:
    """They are drawn after the trial's seed, like a list's."""
    paths = written(tmp_path, YIELDED.format("[(4, 8), (4, 1)]"))
    assert in_process.compare(*paths)[:2] == ("SAME", "")
    runner = ReferenceRunner()
    runner.load({"path": str(paths[0]), "class_name": "Model"})
    first, again, other = (runner.script_inputs(seed) for seed in (3, 3, 4))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])


def test_inputs_that_are_yielded_for_ever_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"get_inputs\(\) returned a generator, not a list.*more than 1000"):
        in_process.compare(*written(tmp_path, YIELDED.format("iter(int, 1)")))


# ---------------------------------------------------------------------------------------------------------- what cannot be


MODEL = """
import dataclasses
import numpy as np

@dataclasses.dataclass
class Batch:
    x: torch.Tensor

class Model(nn.Module):
    def __init__(self, *args, **named):
        super().__init__()
        {state}

    def forward(self, *inputs, **named):
        return {output}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return {init}
"""
FINE = {"state": "pass", "output": "torch.ones(3)", "inputs": "[torch.rand(3)]", "init": "[]"}
ONE, SPARSE, NESTED = (
    "np.zeros(3)",
    "torch.eye(3).to_sparse()",
    "torch.nested.nested_tensor([torch.rand(2), torch.rand(3)])",
)
CASES = {
    "numpy in": ({"inputs": f"[torch.rand(3), {ONE}]"}, r"input\[1\] is a numpy\.ndarray.*give torch\.from_numpy\(x\) in get_i"),
    "numpy out": ({"output": f"{{'a': [{ONE}]}}"}, r"output\['a'\]\[0\] is a numpy\.ndarray.*: return a tensor"),
    "number out": ({"output": "np.float32(1)"}, r"output is a numpy\.float32.*: give a number, x\.item\(\)"),
    "sparse in": ({"inputs": f"[{SPARSE}]"}, r"input\[0\] is a sparse tensor of layout torch\.sparse_coo.*: give its indices"),
    "sparse out": ({"output": f"{SPARSE}.to_sparse_csr()"}, r"output is a sparse tensor.*sparse_csr.*: return x\.to_dense\(\)"),
    "named input": ({"inputs": f"dict(x=torch.rand(3), y=[{SPARSE}])"}, r"input\['y'\]\[0\] is a sparse tensor"),
    "nested in": ({"inputs": f"[{NESTED}]"}, r"input\[0\] is a nested tensor.*: give a list of tensors, or padded values"),
    "nested out": ({"output": NESTED}, r"output is a nested tensor.*: return a list of tensors"),
    "dataclass in": ({"inputs": "[Batch(torch.rand(3))]"}, r"input\[0\] is a dataclass \(Batch\).*: give a dict or a named"),
    "float8 in": ({"inputs": "[torch.zeros(3).to(torch.float8_e5m2)]"}, r"is a tensor of torch\.float8_e5m2.*: give another"),
    "quantised out": (
        {"output": "torch.quantize_per_tensor(inputs[0], 0.1, 0, torch.quint8)"},
        r"output is a quantised tensor \(torch\.quint8\).*: return x\.int_repr\(\)",
    ),
    "other out": (
        {"output": "torch.distributions.Normal(inputs[0], 1.0)"},
        r"output is a torch\.distributions\.normal\.Normal.*: outputs are tensors, numbers, texts, lists",
    ),
    "a function in": ({"inputs": "[torch.rand(3), torch.relu]"}, r"input\[1\] is a function \(.*relu\).*: make it in __init__"),
    "a module in": ({"inputs": "[nn.GELU()]"}, r"input\[0\] is a module \(GELU\).*: make it in __init__"),
    "a class for the constructor": (
        {"init": "[3, nn.LayerNorm]"},
        r"get_init_inputs\(\)\[1\] is a class \(LayerNorm\).*: give its name as a text, and look it up in __init__",
    ),
    "a set for the constructor": ({"init": "dict(a={1})"}, r"get_init_inputs\(\)\['a'\] is a set.*: constructors' arguments are"),
    "a sparse buffer": ({"state": f"self.register_buffer('b', {SPARSE})"}, r"state_dict\(\)\['b'\] is a sparse tensor"),
    "odd keys": ({"output": "{(1, 2): inputs[0]}"}, r"output: a dict with keys that are neither str nor int"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("name", CASES)
def test_a_value_that_cannot_be_handed_over_is_named_with_its_place_and_what_to_give(name: str, tmp_path: Path) -> None:
    change, expected = CASES[name]
    paths = written(tmp_path, MODEL.format_map(FINE | change))
    with pytest.raises(Failure) as caught:
        in_process.compare(*paths)
    said = caught.value.details
    assert said["type"] == "Unsupported", said
    assert said["built"] == 0
    assert re.search(expected, said["message"]), said["message"]
    assert "Unsupported" not in said["message"]
    assert "mm32_verify" not in said["message"]


def test_a_candidates_array_is_named_too(tmp_path: Path) -> None:
    reference = MODEL.format_map(FINE | {"output": "inputs[0] * 2"})
    candidate = reference.replace("class Model(", "class ModelNew(").replace("inputs[0] * 2", "(inputs[0] * 2).numpy()")
    report = verify(*written(tmp_path, reference, candidate), trials=1)
    assert report.verdict is Verdict.CRASHED
    assert "output is a numpy.ndarray, which cannot be handed over" in report.reason
    assert "Unsupported" not in report.reason
