"""Lists of findings, fields and problems in the messages of conditions."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from libs.policy.findings import Finding

_LISTED: Final = 10
"""How many findings a message describes."""
_NAMED: Final = 250
"""How many fields a message names: more than a policy can set without effect."""
_IN_SECTION: Final = re.compile(r"(spec\.\w+)\.(.+)")


def list_findings(findings: Sequence[Finding]) -> str:
    """Describe the first findings, and name the fields of the rest."""
    listed, rest = findings[:_LISTED], findings[_LISTED:]
    texts = [finding.for_scripts for finding in listed]
    if rest:
        texts.append(f"and {len(rest)} more: {name_fields(rest)}")
    return "; ".join(texts)


def name_fields(findings: Iterable[Finding]) -> str:
    """Name the fields of findings, those of a section together: `spec.gfd (image, version)`."""
    paths = list(dict.fromkeys(finding.field for finding in findings))
    sections: dict[str, list[str]] = {}
    for path in paths[:_NAMED]:
        parts = _IN_SECTION.fullmatch(path)
        below = sections.setdefault(parts[1] if parts else path, [])
        below += [parts[2]] if parts else []
    names = [
        f"{section} ({', '.join(below)})" if below else section
        for section, below in sections.items()
    ]
    more = [f"and {len(paths) - _NAMED} more"] if len(paths) > _NAMED else []
    return ", ".join([*names, *more])
