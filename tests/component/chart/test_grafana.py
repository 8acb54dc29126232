"""The dashboards in Grafana's own types: nothing in them is unknown there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.component.chart.boards import BOARDS


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_every_field_is_one_of_grafana(name: str) -> None:
    """What Grafana's types read and write again is what was there."""
    register_default_plugins()
    board = Dashboard.from_json(BOARDS[name])
    written = json.loads(json.dumps(board, cls=JSONEncoder))
    assert list(lost(BOARDS[name], written)) == []


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of what is missing or other; the types leave out what is empty."""
    if isinstance(before, dict):
        for key, value in before.items():
            if isinstance(after, dict) and key in after:
                yield from lost(value, after[key], f"{path}.{key}")
            elif value not in (None, [], {}, False):
                yield f"{path}.{key}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{path}[{index}]")
    elif before != after:
        yield f"{path}: {before!r}, not {after!r}"


def test_a_field_that_grafana_does_not_know_is_found() -> None:
    board = {"title": "a", "panels": [{"id": 1, "colour": "red"}], "links": []}
    known = {"title": "a", "panels": [{"id": 1}]}
    assert list(lost(board, known)) == [".panels[0].colour"]
    assert list(lost({"a": [1]}, {"a": [1, 2]})) == [".a: [1], not [1, 2]"]
