"""What every record has to hold."""

from __future__ import annotations

from mm32.verify import Verdict


def assert_verdicts_are_whole(made: dict) -> None:
    """Assert that a record has, for every candidate, a verdict, whether that fits, and how long it took; and that the summary
    counts exactly these candidates."""
    rows, said = made["rows"], made["summary"]
    results = [r for row in rows for r in (row["results"].values() if made["name"] == "kernelbench" else [row])]
    assert results
    for result in results:
        verdict = Verdict[result["got" if made["name"] == "corpus" else "verdict"]]
        assert result["fits"] in (True, False) or (result["fits"] is None and not verdict.of_candidate)
        assert result["seconds"] >= 0
        assert result["building"] >= 0
    assert made["cards"] >= 1
    if made["name"] == "kernelbench":
        kinds = [kind for kind, counts in said.items() if isinstance(counts, dict)]
        assert said["problems"] == len(rows)
        assert {kind: said[kind]["done"] for kind in kinds} == {
            kind: sum(kind in row["results"] for row in rows) for kind in kinds
        }
        assert sum(said[kind]["done"] for kind in kinds) == len(results)
    elif made["name"] == "corpus":
        assert said["cheats"] + said["honest"] == len(rows) <= made["of"]  # its table says how many were reached
        assert len(said["missed"]) + len(said["false_alarms"]) == sum(not row["fits"] for row in rows)
    elif made["name"] == "power":
        assert sum(of["done"] for of in said.values()) == len(rows)
        assert sum(of["done"] - of["right"] for of in said.values()) == sum(not row["fits"] for row in rows)
    else:
        assert said["candidates"] == len(rows) + said["lost"]
        assert said["wrong"] == sum(not row["fits"] for row in rows)
