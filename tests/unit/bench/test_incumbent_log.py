"""What the bench of the incumbent reads from an audit log."""

from pathlib import Path
from typing import Any

import msgspec

from bench.incumbent.audit_log import column_log, read_log

START = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""


def line(user: str, verb: str, resource: str, second: int, **more: Any) -> dict[str, Any]:
    name, _, subresource = resource.partition("/")
    return {
        "user": {"username": user},
        "verb": verb,
        "stageTimestamp": f"2026-01-01T00:00:{second:02}.000000Z",
        "objectRef": {"resource": name, "subresource": subresource},
        "responseStatus": {"code": 200},
        **more,
    }


def node(second: int, revision: int, state: str, *, cordoned: bool, code: int = 200) -> Any:
    labels = {"nvidia.com/gpu-driver-upgrade-state": state}
    metadata = {"name": "n", "resourceVersion": str(revision), "labels": labels}
    written = {"metadata": metadata, "spec": {"unschedulable": cordoned}}
    more = {"responseObject": written, "responseStatus": {"code": code}}
    return line("them", "patch", "nodes", second, **more)


def test_requests_are_counted_by_verb_within_the_window(tmp_path: Path) -> None:
    file = tmp_path / "log"
    early = msgspec.json.encode(line("them", "get", "nodes", 1)) + b"\n"
    lines = [
        line("them", "get", "nodes", 1),
        line("them", "get", "nodes", 3),
        line("them", "create", "events", 4),
        line("them", "create", "pods/eviction", 5),
        line("others", "get", "nodes", 5),
        line("them", "list", "pods", 9),
    ]
    file.write_bytes(early + b"".join(msgspec.json.encode(each) + b"\n" for each in lines))
    found = column_log(read_log(file, offset=len(early), since=START + 2), until=START + 8)
    assert found.of(["them"]) == {"get": 1, "event": 1, "evict": 1}


def test_a_node_is_followed_by_revision_and_refused_writes_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "log"
    lines = [
        node(12, 6, "pod-restart-required", cordoned=True),
        node(10, 5, "cordon-required", cordoned=True),
        node(14, 9, "upgrade-failed", cordoned=False, code=409),
        node(20, 8, "upgrade-done", cordoned=False),
        node(30, 11, "upgrade-done", cordoned=True),
    ]
    file.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in lines))
    found = column_log(read_log(file, offset=0, since=START), until=START + 60)
    assert [moment.revision for moment in found.nodes["n"]] == [5, 6, 8, 11]
    assert found.first("n", "upgrade-failed") is None
    assert found.first("n", "upgrade-done") == START + 20
    assert found.cordoned_seconds("n", until=START + 34) == 14.0
