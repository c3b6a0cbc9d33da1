"""Two workers on a Ray cluster on this machine. Skipped where ray, which is no part of mm32[dev], is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm32.verify.batch.jobs import Options, in_folder, make
from mm32.verify.batch.on_ray import work_on_ray
from mm32.verify.batch.store import Store
from support.verify.fixtures import HEAD, REFERENCE, RIGHT, Leftovers, forward


@pytest.mark.slow
def test_two_workers_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    folder = tmp_path / "candidates"
    folder.mkdir()
    (tmp_path / "reference.py").write_text(REFERENCE)
    for number in range(4):
        (folder / f"zeros_{number}.py").write_text(forward(f"return torch.zeros(64, 96) + {number}"))
    (folder / "right.py").write_text(RIGHT)
    (folder / "none.py").write_text(HEAD)
    store = Store(tmp_path / "store", create=True)
    store.add(make(in_folder(tmp_path / "reference.py", folder), Options(trials=1, timeout=60)))
    ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    try:
        names = work_on_ray(store.folder, workers=2, gpus=0, cpus=1)
    finally:
        ray.shutdown()
    assert len(set(names)) == 2
    records = {record["name"]: record for record in store.new_records()}
    assert {record["worker"] for record in records.values()} <= set(names)
    assert len(records) == 6
    for name, record in records.items():
        verdict = record["report"]["verdict"]
        assert verdict == ("NOT_BUILT" if name == "none.py" else "DIFFERENT") or (
            name == "right.py" and record["report"]["same"]
        ), (name, verdict)
    assert not leftovers()


def test_without_ray_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ImportError, match=r"workers on Ray need: pip install .*\[ray\]"):
        work_on_ray(tmp_path, 2)
