"""An event in a table: when it was last seen comes first, and its own name last."""

from dataclasses import replace

from libs.testing.apiserver.printers.columns import NAME, Cell, Object, at, column, value_at, wide
from libs.testing.apiserver.printers.durations import since


def _first_seen(event: Object, now: float) -> Cell:
    return since(event.get("firstTimestamp") or event.get("eventTime"), now)


def _last_seen(event: Object, now: float) -> Cell:
    if event.get("series"):
        return since(event["series"].get("lastObservedTime"), now)
    if event.get("lastTimestamp"):
        return since(event["lastTimestamp"], now)
    return _first_seen(event, now)


def _count(event: Object, _now: float) -> Cell:
    if event.get("series"):
        return event["series"].get("count", 0)
    return event.get("count") or 1


def _object(event: Object, _now: float) -> Cell:
    about: Object = event.get("involvedObject") or {}
    kind: str = about.get("kind", "").lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


def _source(event: Object, _now: float) -> Cell:
    component = value_at(event, "source", "component") or event.get("reportingComponent") or ""
    instance = value_at(event, "source", "host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _message(event: Object, _now: float) -> Cell:
    return event.get("message", "").strip()


EVENT = (
    column("Last Seen", _last_seen),
    column("Type", at("type")),
    column("Reason", at("reason")),
    column("Object", _object),
    wide("Subobject", at("involvedObject", "fieldPath")),
    wide("Source", _source),
    column("Message", _message),
    wide("First Seen", _first_seen),
    wide("Count", _count),
    replace(NAME, priority=1),
)
