"""What scripts may take and return besides tensors, and what is said of values that cannot be handed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm32.verify import verify
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
