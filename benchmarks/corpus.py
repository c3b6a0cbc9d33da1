"""Runs the corpus of cheats and honest candidates as one batch: python benchmarks/corpus.py [-o FILE.json] [NAME...].

The corpus is tests/verify/corpus; each file says which verdict it must get. Files for CUDA alone come first, then the others,
then those that a compiler has to build; each of the three groups is shuffled. NAME selects the files that have it in their names
(cheats/t_, honest). With --store, a run that was stopped continues where it was. Prints a line for each file, and exits with 1
if one gets a verdict that it may not get.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from typing import Any

import verify_runs

from mm32.verify import Verdict
from mm32.verify.batch.jobs import Pair

verify_runs.find_tests()
from support.verify.entries import ENTRIES, TIMEOUT, TRIALS, VERDICTS, Entry  # noqa: E402

METHOD = "mm32 verify of each file of tests/verify/corpus, as one batch; verdicts as its --json has them"
SEED = 3


def ordered(entries: Sequence[Entry]) -> list[Entry]:
    shuffled = random.Random(SEED).sample(list(entries), len(entries))
    return sorted(shuffled, key=lambda entry: 2 if entry.compiles else int(entry.device == "both"))


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    cheats, honest = ([row for row in rows if row["kind"] == kind] for kind in VERDICTS)
    return {
        "cheats": len(cheats),
        "caught": sum(row["fits"] for row in cheats),
        "missed": [row["name"] for row in cheats if not row["fits"]],
        "honest": len(honest),
        "false_alarms": [row["name"] for row in honest if not row["fits"]],
        "inconclusive": sum(row["got"] in ("INCONCLUSIVE", "SUSPECT") for row in honest),
        "of_no_candidate": [row["name"] for row in rows if not Verdict[row["got"]].of_candidate],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="candidates with one of these in their names; default all"
    )
    verify_runs.add_options(parser)
    options = parser.parse_args(arguments)
    here = [entry for entry in ENTRIES if entry.device in (verify_runs.DEVICE, "both")]
    chosen = ordered([e for e in here if not options.names or any(name in e.name for name in options.names)])
    if not chosen:
        parser.error(f"no candidate for a {verify_runs.DEVICE} has {' or '.join(options.names)} in its name")
    by_file = {entry.path.name: entry for entry in chosen}
    kept = verify_runs.Record("corpus", METHOD, options.output, options.at_once)
    run = verify_runs.Run(options.limit, options.store, options.at_once, trials=TRIALS, timeout=TIMEOUT)
    rows: list[dict[str, Any]] = []
    for report in run.reports([Pair(entry.reference, entry.path, entry.path.name) for entry in chosen]):
        entry = by_file[report.candidate.rpartition("/")[2]]
        result = verify_runs.outcome(report)
        verdict = result.pop("verdict")
        said = {"name": entry.name, "kind": entry.kind, "device": entry.device, "must": entry.verdict, "got": verdict}
        rows.append(said | {"fits": entry.fits(report.verdict)} | result | {"results": {}})
        print(
            verify_runs.line(f"{entry.name} ({entry.verdict})", result | {"verdict": verdict}, rows[-1]["fits"]),
            flush=True,
        )
        kept.write(rows, of=len(chosen), summary=summary(rows))
    for name, value in summary(rows).items():
        print(f"{name}: {value}")
    if run.over:
        print(
            f"ended after {run.seconds:.0f} s, {len(rows)} of {len(chosen)} done: the same command with this store goes on"
        )
    return int(not all(row["fits"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
