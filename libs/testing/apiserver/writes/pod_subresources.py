"""The subresources of pods: eviction within disruption budgets, and binding."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.objects.json import JsonObject, decoded, encoded, get_map, get_maps
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.store import Store, StoredObject
from libs.testing.apiserver.writes.admission import WriteOutcome, WriteTarget
from libs.testing.apiserver.writes.deletion import DeleteOptions, Deleter, check_preconditions
from libs.testing.apiserver.writes.object_writer import ObjectWriter

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_MANAGER = "kube-apiserver"
_SUCCESS = encoded(
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
)


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class EvictionBody(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Named = _Named()
    delete_options: DeleteOptions | None = None


class BindingBody(msgspec.Struct, frozen=True):
    target: _Named = _Named()


S = TypeVar("S", EvictionBody, BindingBody)


def parse_body(body: bytes, form: type[S]) -> S:
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.DecodeError as error:
        raise bad_request(f"{form.__name__} cannot be read: {error}") from error


class Evictor:
    def __init__(
        self, store: Store, kinds: ResourceKinds, *, writer: ObjectWriter, deleter: Deleter
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._writer = writer
        self._deleter = deleter

    def evict(self, write: WriteTarget, live: StoredObject, eviction: EvictionBody) -> WriteOutcome:
        """Delete the pod, unless a budget forbids it."""
        if eviction.metadata.name != live.name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = eviction.delete_options or DeleteOptions()
        pod = decoded(live.raw)
        if not _needs_no_budget(pod):
            self._consume_budget(write, pod)
        return self._delete(write, live, pod, options)

    def _delete(
        self, write: WriteTarget, live: StoredObject, pod: JsonObject, options: DeleteOptions
    ) -> WriteOutcome:
        check_preconditions(write.kind, live, options)
        live = self._writer.mark(write, live, _disrupted(pod, self._writer.now()))
        # The revision was checked before the mark changed it.
        options = options.without_revision()
        outcome = self._deleter.delete(write, live, options)
        return msgspec.structs.replace(
            outcome, code=201, raw=_SUCCESS, is_status_body=True, revision=0, before=pod
        )

    def _consume_budget(self, write: WriteTarget, pod: JsonObject) -> None:
        budgets = self._budgets(pod)
        if not budgets:
            return
        if len(budgets) > 1:
            message = (
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support."
            )
            raise StatusError(500, "", message)
        kind, stored, budget = budgets[0]
        status = get_map(budget, "status")
        if not _ready(pod) and _allows_unhealthy(budget):
            return
        _check_budget(budget)
        remaining = status["disruptionsAllowed"] - 1
        now = self._writer.now()
        disrupted = get_map(status, "disruptedPods")
        consumed: JsonObject = {
            **status,
            "disruptionsAllowed": remaining,
            "disruptedPods": {**disrupted, pod["metadata"]["name"]: now},
        }
        if not remaining:
            consumed["conditions"] = _exhausted(budget, now)
        budget_write = msgspec.structs.replace(
            write, kind=kind, name=stored.name, subresource="status", manager=_MANAGER
        )
        self._writer.update(budget_write, stored, lambda obj: {**obj, "status": consumed}, put=True)

    def _budgets(self, pod: JsonObject) -> list[tuple[ResourceKind, StoredObject, JsonObject]]:
        kind = self._kinds.by_path("policy", "v1", "poddisruptionbudgets")
        if kind is None:
            return []
        labels = get_map(pod, "metadata", "labels")
        budgets: list[tuple[ResourceKind, StoredObject, JsonObject]] = []
        for stored in self._store.of_kind(kind).select(pod["metadata"]["namespace"]):
            budget = decoded(stored.raw)
            if from_object(get_map(budget, "spec").get("selector"))(labels):
                budgets.append((kind, stored, budget))
        return budgets


def bind(
    write: WriteTarget, live: StoredObject, binding: BindingBody, *, writer: ObjectWriter
) -> WriteOutcome:
    """Bind a pod to a node; a second binding is refused."""
    pod = decoded(live.raw)
    node = binding.target.name
    spec: JsonObject = pod["spec"]
    if not node:
        raise bad_request("a Binding must name its target")
    why = ""
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {live.name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {live.name} is already assigned to node "{spec["nodeName"]}"'
    if why:
        raise StatusError(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on pods/binding "{live.name}": {why}',
            details={"name": live.name, "kind": "pods/binding"},
        )
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    status = get_map(pod, "status")
    bound = {
        **pod,
        "spec": {**spec, "nodeName": node},
        "status": {
            **status,
            "conditions": _with_condition(
                status, {**scheduled, "lastTransitionTime": writer.now()}
            ),
        },
    }
    outcome = writer.put(write, live, bound)
    return msgspec.structs.replace(outcome, code=201, raw=_SUCCESS, is_status_body=True, revision=0)


def _needs_no_budget(pod: Mapping[str, Any]) -> bool:
    phase = get_map(pod, "status").get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(
        pod["metadata"].get("deletionTimestamp")
    )


def _ready(pod: Mapping[str, Any]) -> bool:
    conditions = get_maps(pod, "status", "conditions")
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    )


def _allows_unhealthy(budget: Mapping[str, Any]) -> bool:
    status = get_map(budget, "status")
    if get_map(budget, "spec").get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = status.get("desiredHealthy", 0)
    return 0 < desired <= status.get("currentHealthy", 0)


def _check_budget(budget: Mapping[str, Any]) -> None:
    """Refuse the eviction where the budget allows no disruption now."""
    name, status = budget["metadata"]["name"], get_map(budget, "status")
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        message = f"The disruption budget {name} is still being processed by the server."
        raise _budget_error(message, retry_after=10)
    if status.get("disruptionsAllowed", 0) > 0:
        return
    current, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    message = f"The disruption budget {name} does not allow evicting pods currently"
    if current <= desired:
        message = (
            f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        )
    raise _budget_error(message, retry_after=None)


def _budget_error(message: str, *, retry_after: int | None) -> StatusError:
    cause = {"reason": "DisruptionBudget", "message": message}
    return StatusError(429, "TooManyRequests", _REFUSED, causes=[cause], retry_after=retry_after)


def _exhausted(budget: Mapping[str, Any], now: str) -> list[JsonObject]:
    condition: JsonObject = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": get_map(budget, "status").get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": "InsufficientPods",
        "message": "",
    }
    return _with_condition(get_map(budget, "status"), condition)


def _disrupted(pod: JsonObject, now: str) -> JsonObject:
    status = get_map(pod, "status")
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return {**pod, "status": {**status, "conditions": _with_condition(status, condition)}}


def _with_condition(status: Mapping[str, Any], condition: JsonObject) -> list[JsonObject]:
    """Return the conditions with this one; an unchanged status keeps its transition time."""
    conditions = get_maps(status, "conditions")
    result: list[JsonObject] = []
    is_replaced = False
    for existing in conditions:
        if existing.get("type") != condition["type"]:
            result.append(existing)
            continue
        is_replaced = True
        same = existing.get("status") == condition["status"]
        since = existing.get("lastTransitionTime") if same else condition["lastTransitionTime"]
        result.append({**condition, "lastTransitionTime": since})
    return result if is_replaced else [*result, condition]
