"""Objects for tables, as short as a table lets them be, and the cells that come of them."""

from datetime import UTC, datetime
from typing import Any

from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.printers import tables

NOW = 1_800_000_000.0


def ago(seconds: float) -> str:
    """The timestamp of a moment that long before `NOW`."""
    moment = datetime.fromtimestamp(NOW - seconds, tz=UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def kind(plural: str, group: str = "", version: str = "v1") -> ResourceKind:
    """One of those that the server brings along."""
    found = ResourceKinds().by_path(group, version, plural)
    assert found is not None
    return found


def made(name: str, *, seconds: float = 90, **fields: Any) -> dict[str, Any]:
    """An object of that age."""
    metadata = {"name": name, "resourceVersion": "7", "creationTimestamp": ago(seconds)}
    return {**fields, "metadata": metadata | fields.get("metadata", {})}


def cells(kind: ResourceKind, thing: dict[str, Any]) -> dict[str, Any]:
    """Of its row, by the name of the column."""
    table = tables.table(kind, [thing], now=NOW, include="None")
    (row,) = table["rows"]
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, row["cells"], strict=True))
