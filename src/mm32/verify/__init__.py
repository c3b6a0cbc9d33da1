"""Tests a claim about a kernel: a reference script against a candidate script. Same outputs? Faster?

The tool's own process is the trusted side: it decides, and runs no code of a script. The scripts run in processes of their
own, the reference's (reference/) and the candidate's (worker/). The candidate's can lie. The parts of both sides:

    entry, session, stop   the public call, and the stages of a verification
    compare                the stages before timing: loading, trials, probes and self-test
    probing/               the candidate on other data
    inputs/                what the scripts are run on: fresh data, variations, probes
    judging/               same or different: float64 truths, bounds, the judge, its self-test
    timing/                faster or not: windows, rounds, the rule
    timed_calls            the outputs of timed calls, judged like all others
    processes/             scripts' processes, and what they may see and do
    exchange/              how values pass between the tool and a worker
    worker/, reference/    the programs that run beside a candidate, and beside the reference
    batch/                 many candidates, on many cards and machines
    verdict, report, page, html/, text, machine, hints   the outcome, for a machine and for a person

The names below are imported when they are first used: a worker must not load the trusted side, and `import mm32` must stay fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import html
    from .batch.jobs import Pair
    from .batch.run import Reports, verify_many
    from .batch.worker import work
    from .entry import verify
    from .report import Report
    from .reward import NoReward, Reward
    from .verdict import Verdict

__all__ = ["NoReward", "Pair", "Report", "Reports", "Reward", "Verdict", "html", "verify", "verify_many", "work"]

_MODULES = {
    "NoReward": "reward",
    "Pair": "batch.jobs",
    "Report": "report",
    "Reports": "batch.run",
    "Reward": "reward",
    "Verdict": "verdict",
    "verify": "entry",
    "verify_many": "batch.run",
    "work": "batch.worker",
}


class _Package(ModuleType):
    """A package that, when it is called in place of its function of the same name, says where that function is."""

    def __call__(self, *_: object, **__: object) -> object:
        raise TypeError(
            "mm32.verify is a package: call mm32.verify.verify(reference, candidate), or mm32.verify.verify_many for many"
        )


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name == "html":
        return import_module(".html", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "psutil":
            raise
        from mm32.install import pip_install

        raise ImportError(f"mm32.verify.{name} needs psutil, which is not installed: {pip_install('cli')}") from error
    globals()[name] = value
    return value
