"""Our schemas take every field of the GPU Operator's CRDs, with the same limits and defaults."""

from typing import Any

import pytest

from libs.policy.crds import crd_schema
from libs.policy.kinds import KINDS
from tests.unit.policy.upstream_fields import FOLDER, fields_of, upstream_fields

CASES = [
    (version.name, file.stem)
    for version in sorted(FOLDER.iterdir())
    for file in sorted(version.glob("*.tsv"))
]
OPEN = {"type": "object"}
"""An object that is stored as it is given."""


@pytest.mark.parametrize(("version", "kind"), CASES)
def test_every_upstream_field_has_the_same_limits_here(version: str, kind: str) -> None:
    ours = fields_of(crd_schema(KINDS[kind]))
    upstream = upstream_fields(version, kind)
    different = {
        path: (_ours(ours, path), limits)
        for path, limits in upstream.items()
        if _ours(ours, path) not in (limits, OPEN)
    }
    assert different == {}


def _ours(fields: dict[str, Any], path: str) -> Any:
    """Return the limits of a field here, or those of the open object that it is in."""
    while path and path not in fields:
        path = path.rpartition(".")[0]
    return fields.get(path)
