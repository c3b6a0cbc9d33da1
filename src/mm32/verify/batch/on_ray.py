"""Workers on a Ray cluster: Ray starts them and gives each its cards; jobs and records are in the store, as always.

A worker that dies is not started again. Its leases run out, and other workers take its jobs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mm32.install import pip_install

from .store import Store
from .worker import work


def work_on_ray(store: str | Path, workers: int, gpus: int = 1, cpus: int = 4) -> list[str]:
    """Run `workers` workers for a store until all of its jobs are done. Returns the names of those that lived until then.

    `gpus` and `cpus` are those of one worker, as Ray counts them; 0 gpus verifies on the CPU. All nodes must see the store's
    folder and the scripts under the same paths. Uses the cluster that Ray is connected to, or else calls `ray.init()`.

    Raises ImportError without ray, ValueError where the folder is no store, RuntimeError where jobs are left and no worker lives.
    """
    try:
        import ray
    except ImportError:
        raise ImportError(f"workers on Ray need: {pip_install('ray')}") from None
    whole = Store(Path(store))
    if not ray.is_initialized():
        ray.init()
    # No retries: a job that ends its worker would end the next one in the same way. The store counts that; Ray would not.
    remote: Any = ray.remote(num_gpus=gpus, num_cpus=cpus, max_retries=0)(work)
    left = [remote.remote(str(whole.folder)) for _ in range(workers)]
    names, problems = [], []
    while left:
        (ended,), left = ray.wait(left, num_returns=1)
        try:
            names.append(str(ray.get(ended)))
        except ray.exceptions.RayError as error:
            problems.append(str(error).splitlines()[0])
    missing = len(whole.jobs().keys() - whole.done())
    if missing:
        raise RuntimeError(f"{missing} jobs are left in {whole.folder}, and no worker: {'; '.join(problems)}")
    return names
