"""The generated parts of docs/metrics.md: the fields that a list of metrics may name; diagnoses."""

from collections.abc import Iterable

from struct_docs import table

from libs.contracts.diagnoses import MEANINGS, NOTES
from services.telemetry.field import NumberField
from services.telemetry.fields import DEFAULT_FIELDS, MORE_FIELDS, TEXTS, UNAVAILABLE


def default_fields() -> list[str]:
    return _numbers(DEFAULT_FIELDS)


def more_fields() -> list[str]:
    return _numbers(MORE_FIELDS)


def labels() -> list[str]:
    rows = [[f"`{text.name}`", text.help, text.source, text.remark] for text in TEXTS]
    return table(("Field", "Help", "Source", "Remark"), rows)


def unavailable() -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in UNAVAILABLE.items():
        by_reason.setdefault(reason, []).append(name)
    rows = [
        [", ".join(f"`{name}`" for name in names), reason] for reason, names in by_reason.items()
    ]
    return table(("Field", "Why not"), rows)


def diagnoses() -> list[str]:
    rows = [
        [f"`{each.value}`", "note" if each in NOTES else "failure", meaning, remedy]
        for each, (meaning, remedy) in MEANINGS.items()
    ]
    return table(("Diagnosis", "Severity", "What it means", "What to do"), rows)


def _numbers(fields: Iterable[NumberField]) -> list[str]:
    rows = [[f"`{each.name}`", each.type, each.help, each.source, each.remark] for each in fields]
    return table(("Field", "Type", "Help", "Source", "Remark"), rows)
