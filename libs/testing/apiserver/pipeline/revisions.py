"""Journal records of requests, by the conventions of a real server's audit log."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from libs.contracts.journal import Revision, Verb
from libs.testing.apiserver.pipeline.calls import ApiCall
from libs.testing.apiserver.writes.outcome import WriteOutcome
from libs.testing.changes import changed_paths

_RECORDED_AS = {"bind": "create", "deletecollection": "delete"}
_WITH_OPTIONS = ("delete", "deletecollection", "evict")


def is_dry_run(call: ApiCall) -> bool:
    """Return whether the request is a dry run, which is no write."""
    if "dryRun" in call.request.query:
        return True
    if call.verb not in _WITH_OPTIONS:
        return False
    body = _body(call)
    return bool(body.get("dryRun") or _map(body.get("deleteOptions")).get("dryRun"))


def granted_revision(call: ApiCall, outcome: WriteOutcome, *, now: float) -> Revision:
    collection = call.verb == "deletecollection"
    return _record(
        call,
        outcome.code,
        now=now,
        revision=0 if collection else outcome.revision,
        name=outcome.name,
        uid=outcome.uid,
        changed=changed_paths(outcome.before, outcome.after),
    )


def target_identity(call: ApiCall) -> tuple[str, str]:
    """Return name and uid of the object in the request; empty where it names none."""
    metadata = _map(_body(call).get("metadata"))
    name = call.route.name or str(metadata.get("name") or "")
    return name, str(metadata.get("uid") or "")


def refused_revision(call: ApiCall, code: int, *, name: str, uid: str, now: float) -> Revision:
    return _record(call, code, now=now, name=name, uid=uid)


def _record(call: ApiCall, code: int, *, now: float, revision: int = 0, **more: Any) -> Revision:
    route = call.route
    return Revision(
        revision=revision,
        time=now,
        user=call.user,
        manager=call.manager,
        verb=Verb(_RECORDED_AS.get(call.verb, call.verb)),
        code=code,
        kind="Binding" if route.subresource == "binding" else route.kind.kind,
        namespace=route.namespace,
        **more,
    )


def _body(call: ApiCall) -> Mapping[str, Any]:
    """Return the body; an empty map where it is no object."""
    try:
        return _map(msgspec.json.decode(call.request.body))
    except msgspec.DecodeError:
        return {}


def _map(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
