"""The generated parts of docs/health.md: the conditions, and what each XID means."""

from collections.abc import Iterable

from struct_docs import table

from libs.contracts.health import HealthState
from libs.health.rules import CONDITIONS
from libs.health.xids import XIDS, XidMeaning


def conditions() -> list[str]:
    """Return a table of the conditions, in the order of their importance."""
    rows = [
        [
            f"`{each.rule.value}`",
            f"`{each.state.value}`",
            each.when,
            f"{each.start:g} s" if each.start else "at once",
            f"{each.end:g} s",
        ]
        for each in CONDITIONS
    ]
    return table(("Rule", "State", "When", "Begins after", "Ends after"), rows)


def xids() -> list[str]:
    """Return a table of the XIDs: those that fail a GPU, then the others."""
    by_meaning: dict[XidMeaning, list[int]] = {}
    for code, meaning in XIDS.items():
        by_meaning.setdefault(meaning, []).append(code)
    rank = [HealthState.FAILED, HealthState.DEGRADED, HealthState.OK]
    ordered = sorted(by_meaning.items(), key=lambda item: (rank.index(item[0].state), item[1]))
    rows = [
        [
            _numbers(codes),
            meaning.cause,
            "" if meaning.state is HealthState.OK else f"`{meaning.state.value}`",
            meaning.scope.value,
            meaning.remedy,
        ]
        for meaning, codes in ordered
    ]
    return table(("XID", "Cause", "Fails or degrades", "Concerns", "Remedy"), rows)


def _numbers(codes: Iterable[int]) -> str:
    """Return numbers as a list of ranges: `70-72, 75`."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][-1] + 1:
            ranges[-1].append(code)
        else:
            ranges.append([code])
    return ", ".join(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in ranges)
