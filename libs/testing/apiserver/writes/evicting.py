"""What is done to pods by their subresources: evicted where a budget lets them go, and bound."""

from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from libs.testing.apiserver.kinds import Kind, Kinds
from libs.testing.apiserver.kinds.refusals import bad
from libs.testing.apiserver.objects.encoding import decoded, encoded
from libs.testing.apiserver.objects.parts import Thing, items, part
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.apiserver.status import Refused
from libs.testing.apiserver.storage.store import Store, Stored
from libs.testing.apiserver.writes import Outcome, Write
from libs.testing.apiserver.writes.deleting import DeleteOptions, Deleter, check
from libs.testing.apiserver.writes.writing import Writer

_MOST_DISRUPTED = 2_000
_WITHHELD = "Cannot evict pod as it would violate the pod's disruption budget."
_MANAGER = "kube-apiserver"


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class Eviction(msgspec.Struct, frozen=True, rename="camel"):
    """What an eviction says."""

    metadata: _Named = _Named()
    delete_options: DeleteOptions | None = None


class Binding(msgspec.Struct, frozen=True):
    """What a binding says."""

    target: _Named = _Named()


S = TypeVar("S", Eviction, Binding)


def said(body: bytes, form: type[S]) -> S:
    """The body of such a request."""
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.DecodeError as error:
        raise bad(f"{form.__name__} cannot be read: {error}") from error


class Evictor:
    """The eviction subresource."""

    def __init__(self, store: Store, kinds: Kinds, *, writer: Writer, deleter: Deleter) -> None:
        self._store = store
        self._kinds = kinds
        self._writer = writer
        self._deleter = deleter

    def evict(self, write: Write, live: Stored, eviction: Eviction) -> Outcome:
        """Delete the pod, unless its budget forbids it."""
        if eviction.metadata.name != live.name:
            raise bad("name in URL does not match name in Eviction object")
        options = eviction.delete_options or DeleteOptions()
        if options.dry_run:
            write = msgspec.structs.replace(write, dry_run=True)
        pod = decoded(live.raw)
        if not _needs_no_budget(pod):
            self._spend(write, pod)
        return self._delete(write, live, pod, options)

    def _delete(self, write: Write, live: Stored, pod: Thing, options: DeleteOptions) -> Outcome:
        check(write.kind, live, options)
        if not write.dry_run:
            live = self._writer.mark(write, live, _disrupted(pod, self._writer.now()))
            # The precondition was met before the mark, which gave the pod another revision.
            options = options.beyond_revision()
        outcome = self._deleter.delete(write, live, options)
        done = encoded(success())
        return msgspec.structs.replace(
            outcome, code=201, raw=done, bare=True, revision=0, before=pod
        )

    def _spend(self, write: Write, pod: Thing) -> None:
        budgets = self._budgets(pod)
        if not budgets:
            return
        if len(budgets) > 1:
            words = (
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support."
            )
            raise Refused(500, "", words)
        kind, stored, budget = budgets[0]
        status = part(budget, "status")
        if not _ready(pod) and _lets_unhealthy_go(budget):
            return
        _check_budget(budget)
        left = status["disruptionsAllowed"] - 1
        now = self._writer.now()
        disrupted = part(status, "disruptedPods")
        spent: Thing = {
            **status,
            "disruptionsAllowed": left,
            "disruptedPods": {**disrupted, pod["metadata"]["name"]: now},
        }
        if not left:
            spent["conditions"] = _exhausted(budget, now)
        into = msgspec.structs.replace(
            write, kind=kind, name=stored.name, subresource="status", manager=_MANAGER
        )
        self._writer.update(into, stored, lambda thing: {**thing, "status": spent}, put=True)

    def _budgets(self, pod: Thing) -> list[tuple[Kind, Stored, Thing]]:
        kind = self._kinds.by_path("policy", "v1", "poddisruptionbudgets")
        if kind is None:
            return []
        labels = part(pod, "metadata", "labels")
        found: list[tuple[Kind, Stored, Thing]] = []
        for stored in self._store.shelf(kind).select(pod["metadata"]["namespace"]):
            budget = decoded(stored.raw)
            if from_object(part(budget, "spec").get("selector"))(labels):
                found.append((kind, stored, budget))
        return found


def bind(write: Write, live: Stored, binding: Binding, *, writer: Writer) -> Outcome:
    """Give a pod to a node; once."""
    pod = decoded(live.raw)
    node = binding.target.name
    spec: Thing = pod["spec"]
    if not node:
        raise bad("a Binding must name its target")
    why = ""
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {live.name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {live.name} is already assigned to node "{spec["nodeName"]}"'
    if why:
        raise Refused(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on pods/binding "{live.name}": {why}',
            details={"name": live.name, "kind": "pods/binding"},
        )
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    status = part(pod, "status")
    bound = {
        **pod,
        "spec": {**spec, "nodeName": node},
        "status": {
            **status,
            "conditions": _with(status, {**scheduled, "lastTransitionTime": writer.now()}),
        },
    }
    outcome = writer.put(write, live, bound)
    raw = encoded(success())
    return msgspec.structs.replace(outcome, code=201, raw=raw, bare=True, revision=0)


def success() -> Thing:
    """The answer where there is nothing to show."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }


def _needs_no_budget(pod: Mapping[str, Any]) -> bool:
    phase = part(pod, "status").get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(
        pod["metadata"].get("deletionTimestamp")
    )


def _ready(pod: Mapping[str, Any]) -> bool:
    conditions = items(pod, "status", "conditions")
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _lets_unhealthy_go(budget: Mapping[str, Any]) -> bool:
    status = part(budget, "status")
    if part(budget, "spec").get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    wanted = status.get("desiredHealthy", 0)
    return 0 < wanted <= status.get("currentHealthy", 0)


def _check_budget(budget: Mapping[str, Any]) -> None:
    """Refuse where it allows no disruption now."""
    name, status = budget["metadata"]["name"], part(budget, "status")
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        words = f"The disruption budget {name} is still being processed by the server."
        _withhold(words, retry_after=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        _forbid(name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
    if len(part(status, "disruptedPods")) > _MOST_DISRUPTED:
        _forbid(
            name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        )
    if allowed == 0:
        _withhold(_why_not(name, budget, status), retry_after=None)


def _why_not(name: str, budget: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    conditions = items(budget, "status", "conditions")
    known = [each for each in conditions if each.get("type") == "DisruptionAllowed"]
    condition = known[0] if known else {}
    told = condition.get("message") if condition.get("status") == "False" else ""
    refused = f"The disruption budget {name} does not allow evicting pods currently"
    if told and condition.get("reason") == "SyncFailed":
        return f"{refused} because it failed sync: {told}"
    current, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if current <= desired:
        return (
            f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        )
    return f"{refused} ({condition.get('reason')}): {told}" if told else refused


def _withhold(words: str, *, retry_after: int | None) -> NoReturn:
    cause = {"reason": "DisruptionBudget", "message": words}
    raise Refused(429, "TooManyRequests", _WITHHELD, causes=[cause], retry_after=retry_after)


def _forbid(name: str, why: str, told: str) -> NoReturn:
    words = f"The disruption budget {name} does not allow evicting pods currently: {told}"
    raise Refused(
        403,
        "Forbidden",
        f'poddisruptionbudget.policy "{name}" is forbidden: {why}',
        details={"name": name, "group": "policy", "kind": "poddisruptionbudget"},
        causes=[{"reason": "DisruptionBudget", "message": words}],
    )


def _exhausted(budget: Mapping[str, Any], now: str) -> list[Thing]:
    condition: Thing = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": part(budget, "status").get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": "InsufficientPods",
        "message": "",
    }
    return _with(part(budget, "status"), condition)


def _disrupted(pod: Thing, now: str) -> Thing:
    status = part(pod, "status")
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return {**pod, "status": {**status, "conditions": _with(status, condition)}}


def _with(status: Mapping[str, Any], condition: Thing) -> list[Thing]:
    """The conditions with this one in its place; since when it holds stays."""
    known = items(status, "conditions")
    result: list[Thing] = []
    found = False
    for each in known:
        if each.get("type") != condition["type"]:
            result.append(each)
            continue
        found = True
        same = each.get("status") == condition["status"]
        since = each.get("lastTransitionTime") if same else condition["lastTransitionTime"]
        result.append({**condition, "lastTransitionTime": since})
    return result if found else [*result, condition]
