"""What the API server's audit log says about one column: requests by account, and its nodes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from libs.contracts.node import STATE_LABEL


class _User(msgspec.Struct, frozen=True):
    username: str


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Reference(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _Line(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    user: _User
    verb: str
    stage_timestamp: str
    object_ref: _Reference = _Reference()
    response_status: _Status = _Status()
    response_object: msgspec.Raw = msgspec.Raw(b"null")


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    name: str
    resource_version: str
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class _Node(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


class NodeMoment(msgspec.Struct, frozen=True, order=True):
    """A node after a write."""

    revision: int
    at: float
    unschedulable: bool
    state: str


class RequestCount(msgspec.Struct, frozen=True, order=True):
    """A request of one account."""

    user: str
    verb: str
    resource: str


class ColumnLog(msgspec.Struct, frozen=True, kw_only=True):
    """The requests between two moments, and the course of every node from the first moment on."""

    requests: Counter[RequestCount]
    nodes: dict[str, list[NodeMoment]]

    def of(self, users: Iterable[str]) -> Counter[str]:
        """Return how many requests these accounts sent, by verb; evictions are their own verb."""
        wanted, found = set(users), Counter[str]()
        for request, count in self.requests.items():
            if request.user in wanted:
                eviction = request.resource == "pods/eviction"
                event = request.resource == "events"
                verb = "evict" if eviction else "event" if event else request.verb
                found[verb] += count
        return found

    def first(self, node: str, state: str) -> float | None:
        """Return when a node first had this state."""
        return next((each.at for each in self.nodes.get(node, ()) if each.state == state), None)

    def most_cordoned(self) -> int:
        """Return how many nodes were cordoned at once, at most."""
        cordoned, most = set[str](), 0
        moments = [(each, name) for name, found in self.nodes.items() for each in found]
        for moment, name in sorted(moments):
            (cordoned.add if moment.unschedulable else cordoned.discard)(name)
            most = max(most, len(cordoned))
        return most

    def first_cordon(self, node: str) -> float | None:
        """Return when a node was first seen cordoned."""
        return next((each.at for each in self.nodes.get(node, ()) if each.unschedulable), None)

    def cordoned_seconds(self, node: str, *, until: float) -> float:
        """Return for how long a node was cordoned."""
        moments = self.nodes[node]
        ends = [each.at for each in moments[1:]] + [until]
        return sum(
            max(0.0, min(end, until) - each.at)
            for each, end in zip(moments, ends, strict=True)
            if each.unschedulable
        )


def read_log(log: Path, *, offset: int, since: float) -> list[_Line]:
    """Return the lines from this offset on, of requests that were answered after `since`."""
    decode = msgspec.json.Decoder(_Line).decode
    with log.open("rb") as file:
        file.seek(offset)
        return [line for text in file if _time((line := decode(text)).stage_timestamp) >= since]


def column_log(lines: Sequence[_Line], *, until: float) -> ColumnLog:
    """Count the requests until a moment, and follow the nodes to the end of the lines."""
    requests = Counter(
        RequestCount(line.user.username, line.verb, _resource(line.object_ref))
        for line in lines
        if _time(line.stage_timestamp) <= until
    )
    nodes: dict[str, list[NodeMoment]] = {}
    for name, moment in _node_writes(lines):
        nodes.setdefault(name, []).append(moment)
    return ColumnLog(requests=requests, nodes={name: sorted(nodes[name]) for name in nodes})


def _node_writes(lines: Iterable[_Line]) -> Iterator[tuple[str, NodeMoment]]:
    decode: Any = msgspec.json.Decoder(_Node).decode
    for line in lines:
        is_write = line.verb in ("create", "update", "patch") and line.response_status.code < 300
        if line.object_ref.resource == "nodes" and is_write:
            node: _Node = decode(line.response_object)
            meta = node.metadata
            yield (
                meta.name,
                NodeMoment(
                    revision=int(meta.resource_version),
                    at=_time(line.stage_timestamp),
                    unschedulable=node.spec.unschedulable,
                    state=meta.labels.get(STATE_LABEL, ""),
                ),
            )


def _resource(reference: _Reference) -> str:
    return "/".join(filter(None, (reference.resource, reference.subresource)))


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
