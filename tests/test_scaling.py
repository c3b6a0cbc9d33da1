"""benchmarks/scaling.py and parallel_steps.py in two processes on the CPU, at small sizes: they run to their end, their records
are whole, their errors are those of fp32, and their tables can be made."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory

import mm32
from mm32.bench import record
from support import example_scripts
from support.ranks import Ranks

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
LIMIT = 2e-6  # the largest error that is allowed; those of fp32 at these sizes are some 1e-7


def torchrun(script: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(BENCHMARKS / script), "--device", "cpu", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return example_scripts.load(BENCHMARKS / "tables.py")


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("scaling") / "scaling-2.json"
    torchrun("scaling.py", "-o", str(path))
    return record.read(path)


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("parallel") / "parallel-2.json"
    said = torchrun("parallel_steps.py", "--small", "-o", str(path))
    return path, said, record.read(path)


def assert_timed(result: dict[str, Any]) -> None:
    assert 0 < result["low"] <= result["seconds"] <= result["high"]


def test_the_record_of_products_is_whole(scaled: dict[str, Any]) -> None:
    assert scaled["name"] == "scaling"
    assert scaled["environment"]["cards"] == 2
    assert "multicast off" in scaled["method"]
    scaling = example_scripts.load(BENCHMARKS / "scaling.py")
    cases = [(row["case"]["sharded"], row["case"]["growth"]) for row in scaled["rows"]]
    assert cases == list(scaling.CASES)
    for row in scaled["rows"]:
        case = row["case"]
        m, k, n = scaling.SMALL[0]
        assert (case["m"], case["k"], case["n"]) == (m * (2 if case["growth"] == "weak" else 1), k, n)
        assert row["rounds"] >= scaling.LEAST
        assert ("whole" in row) == ((case["sharded"], case["growth"]) == ("rows", "strong"))
        assert ("mm32-packed" in row["results"]) == (case["sharded"] == "rows")
        assert ("torch" in row["results"]) == (case["sharded"] != "rows, B overlapped")
        for rates in (row["alone"], row.get("whole", [1.0, 1.0])):
            assert len(rates) == 2
            assert min(rates) > 0
        for result in row["results"].values():
            assert_timed(result)
            assert result["normwise"] <= LIMIT


def test_a_table_and_a_picture_of_products(scaled: dict[str, Any], tables: ModuleType) -> None:
    made = json.loads(json.dumps(scaled))
    made["environment"]["driver"] = "1.2"
    row = made["rows"][0]
    row["results"]["mm32"]["seconds"], row["alone"], row["whole"] = 0.002, [0.001, 0.001], [0.003, 0.003]
    del made["rows"][1]["results"]["torch"]
    lines = tables.TABLES["two-cards"](lambda name: made, lambda *names: "").splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0][-2:] == ["0.500", "0.750"]
    assert cells[1][2] == cells[1][4] == cells[1][5] == cells[1][-1] == "–"
    assert len(cells) == len(made["rows"])
    picture = sys.modules["rendering.pictures"]
    large = picture.SIDES[0]
    row["case"] |= {"m": large, "k": large, "n": large}
    for more in ({}, {"four": {**made, "made": "2027-01-02 03:04 UTC"}}):
        with pytest.MonkeyPatch.context() as patch:  # no bandwidth can be found from these times
            patch.setattr(picture.estimated, "measured", lambda made: picture.estimated.Parts(1e14, 1e11))
            text = picture.scaling({**made, **more}, tables.THEMES[0])
        assert "marks: measured" in text
        assert ("2027-01-02" in text) == bool(more)


def test_the_record_of_steps_is_whole(stepped: tuple[Path, str, dict[str, Any]]) -> None:
    _, said, made = stepped
    assert "errors against float64" in said
    assert made["name"] == "parallel"
    assert (made["environment"]["cards"], made["environment"]["multicast"]) == (2, "off")
    assert "NCCL_NVLS_ENABLE=0" in made["method"]
    rows = {row["case"]["program"]: row for row in made["rows"]}
    assert list(rows) == ["mlp", "blocks", "async", "fsdp"]
    for name, row in rows.items():
        assert row["case"]["cards"] == 2
        assert row["rounds"] >= 5
        assert set(row["results"]) == {"torch", "mm32"} | ({"mm32.nn"} if name != "async" else set())
        for result in row["results"].values():
            assert_timed(result)
            assert 0 < result["speedup_low"] <= result["speedup"] <= result["speedup_high"]
            assert set(result["errors"]) == {"output", "gradient", "worst parameter"}
            assert all(0 < error <= LIMIT for error in result["errors"].values()), (name, result["errors"])
            assert result["normwise"] == result["errors"]["gradient"]
        for beside in row["beside"].values():
            assert_timed(beside)
            assert "errors" not in beside
    waiting = {"torch async", "mm32 async", "mm32 async, packed once", "torch, in a graph", "mm32, in a graph"}
    assert rows["async"]["unavailable"].keys() == waiting
    assert "symmetric memory" in rows["async"]["unavailable"]["mm32 async"]
    assert set(rows["async"]["beside"]) == {"torch nothing sent", "mm32 nothing sent"}
    assert rows["async"]["exposed"].keys() == {"torch", "mm32"}
    # Each of two blocks has four layers, with one product forward and two backward, and attention, with two and four.
    products = rows["fsdp"]["products"]
    assert products["calls"] == 2 * (4 * 3 + 2 * 3)
    saved = rows["fsdp"]["saved"]
    assert math.isclose(saved["products"], products["seconds"]["torch"] - products["seconds"]["mm32"])
    assert set(rows["fsdp"]["beside"]) == {"torch alone", "mm32 alone"}


@pytest.mark.slow
def test_a_run_that_ended_is_resumed(stepped: tuple[Path, str, dict[str, Any]], tmp_path: Path) -> None:
    """What the record has is left as it is, and is not run again."""
    made = json.loads(json.dumps(stepped[2]))
    del made["rows"][0]
    path = tmp_path / "parallel-2.json"
    record.write(path, made)
    said = torchrun("parallel_steps.py", "--small", "--resume", "-o", str(path))
    assert "mlp on 2 cards" in said
    assert "fsdp" not in said
    again = record.read(path)
    assert [row["case"]["program"] for row in again["rows"]] == ["mlp", "blocks", "async", "fsdp"]
    assert again["rows"][1:] == made["rows"]


def test_a_table_of_steps(stepped: tuple[Path, str, dict[str, Any]], tables: ModuleType) -> None:
    """The table has every arm with its errors or the reason why it is missing, what async hides if the record has that, and what
    FSDP2 saves."""
    made = json.loads(json.dumps(stepped[2]))
    text = tables.TABLES["parallel-2"](lambda name: made, lambda *names: "")
    assert "not measured: rank 0: torch's symmetric memory is for CUDA devices" in text
    assert "not measured (NCCL is for CUDA devices)" in text
    row = next(row for row in made["rows"] if row["case"]["program"] == "async")
    row["results"]["mm32 async"] = row["results"]["mm32"] | {"seconds": 0.25}
    row |= {"unavailable": {}, "exposed": {"torch": 0.1, "mm32": 0.5}, "hidden": {"mm32 async": 0.75}}
    del made["rows"][0]
    text = tables.TABLES["parallel-2"](lambda name: made, lambda *names: "")
    assert "| async: 250.000 ms, **0.75** |" in text
    assert "Not measured: mlp." in text


def test_started_without_torchrun_they_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, str(BENCHMARKS / "parallel_steps.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "is started by torchrun" in done.stderr
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert example_scripts.load(BENCHMARKS / "scaling.py").main([]) == 2
    assert "is started by torchrun" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------------
# Async tensor parallel: torch's symmetric memory is for CUDA, so plain collectives replace its two pipelines here


def on_ranks_packed_once() -> tuple[dict[str, int], int]:
    """Both fused products, by torch's own functions, are right, and each weight is packed once for the chunks of all ranks."""
    symmetric, group = torch.distributed._symmetric_memory, dist.group.WORLD

    def gathered(shard: Any, consume: Any, out: Any, name: str, needed: bool = True) -> None:
        dist.all_gather(list(out.chunk(2)), shard)
        for rank, chunk in enumerate(out.chunk(2)):
            consume(chunk, rank)

    def exchanged(produce: Any, out: Any, name: str, out_chunk_dim: int = 0) -> None:
        parts = torch.empty_like(out)
        for rank, chunk in enumerate(parts.chunk(2)):
            produce(rank, chunk)
        dist.all_to_all_single(out, parts)

    symmetric._pipelined_all_gather_and_consume, symmetric._pipelined_produce_and_all2all = gathered, exchanged
    packed, pack = [], mm32.pack

    def counted(weight: torch.Tensor) -> Any:
        packed.append(pack(weight))
        type(packed[-1]).reason = None  # as on a card; in fact nothing is packed here, and mm32.matmul reads the weight
        return packed[-1]

    mm32.pack = counted
    mine = torch.randn(4, 6, generator=torch.Generator().manual_seed(dist.get_rank()))
    every = torch.cat([torch.randn(4, 6, generator=torch.Generator().manual_seed(rank)) for rank in range(2)])
    weights = [torch.randn(6, n) for n in (5, 3)]
    example_scripts.load(BENCHMARKS / "parallel_steps.py")  # puts benchmarks/ on the path
    fused = importlib.import_module("parallel.asynchronous").Fused()
    mm, name = torch.ops.aten.mm.out, group.group_name
    with torch.no_grad(), fused.around(packing=True):
        a, products = symmetric._fused_all_gather_matmul_impl(
            mm, mine, weights, None, [{}, {}], [torch.float32] * 2, 0, name, True
        )
        summed = symmetric._fused_matmul_reduce_scatter_impl(
            mm_out_op=mm, A=every, B=weights[0], kwargs={}, out_dtype=torch.float32, reduce_op="sum", scatter_dim=0,
            group_name=name,
        )  # fmt: skip
    torch.testing.assert_close(a, every)
    for product, weight in zip(products, weights, strict=True):
        torch.testing.assert_close(product, every @ weight)
    torch.testing.assert_close(summed, 2 * (every @ weights[0]).chunk(2)[dist.get_rank()])
    assert symmetric._fused_all_gather_matmul_impl.__module__ == symmetric.__name__, "torch's own again"
    return dict(fused.calls), len(packed)


def test_a_weight_is_packed_once_for_all_chunks(ranks: Ranks) -> None:
    assert ranks.run(on_ranks_packed_once) == [({"all_gather_matmul": 1, "matmul_reduce_scatter": 1}, 3)] * 2
