"""The strategies of pods, of their controllers, and of disruption budgets."""

from collections.abc import Mapping
from typing import Any, ClassVar

from libs.testing.apiserver.kinds import names, pod_defaults
from libs.testing.apiserver.kinds.strategies import KindStrategy
from libs.testing.apiserver.objects.encoding import encoded
from libs.testing.apiserver.objects.json_access import JsonObject, ensure_map, get_map, get_maps
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.apiserver.schemas.causes import Cause, cause, forbidden, invalid, required

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_POD_UPDATES = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
_BY_DEFAULT = tuple(
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)


class PodStrategy(KindStrategy):
    """A pod is created Pending, and little of its spec can change."""

    returns_deleted = True

    def set_defaults(self, thing: JsonObject) -> None:
        spec = ensure_map(thing, "spec")
        pod_defaults.set_pod_defaults(spec)
        pod_defaults.set_default_requests(spec)
        spec.setdefault("enableServiceLinks", True)

    def prepare_for_create(self, thing: JsonObject) -> None:
        """Add what admission adds, and the first status."""
        spec: JsonObject = dict(thing["spec"])
        tolerations = get_maps(spec, "tolerations")
        added = [each for each in _BY_DEFAULT if not _tolerated(each, tolerations)]
        if added:
            spec["tolerations"] = [*tolerations, *added]
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        thing["spec"] = spec
        thing["status"] = {"phase": "Pending", "qosClass": pod_defaults.qos_class(spec)}

    def validate(self, thing: Mapping[str, Any]) -> list[Cause]:
        return _containers(get_map(thing, "spec"), "spec")

    def validate_update(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        if _fixed(new, old) != _fixed(old, old):
            return [forbidden("spec", _POD_UPDATES)]
        return []


def _tolerated(taint: Mapping[str, Any], tolerations: list[JsonObject]) -> bool:
    return any(
        each.get("key") in (taint["key"], None, "")
        and each.get("effect") in (taint["effect"], None, "")
        for each in tolerations
    )


def _fixed(thing: Mapping[str, Any], old: Mapping[str, Any]) -> JsonObject:
    """Return the pod's spec without the parts that may change."""
    spec = {**get_map(thing, "spec")}
    spec.pop("activeDeadlineSeconds", None)
    before = get_maps(old, "spec", "tolerations")
    spec["tolerations"] = [each for each in get_maps(spec, "tolerations") if each in before]
    for name in ("containers", "initContainers"):
        spec[name] = [{**each, "image": ""} for each in get_maps(spec, name)]
    return spec


def _containers(spec: Mapping[str, Any], at: str) -> list[Cause]:
    if not spec.get("containers"):
        return [required(f"{at}.containers", "")]
    found: list[Cause] = []
    for kind in ("containers", "initContainers"):
        for place, container in enumerate(get_maps(spec, kind)):
            field = f"{at}.{kind}[{place}]"
            name = container.get("name", "")
            if not name:
                found.append(required(f"{field}.name", ""))
            elif why := names.validate_label(name):
                found.append(invalid(f"{field}.name", name, why))
            if not container.get("image"):
                found.append(required(f"{field}.image", ""))
    return found


class TemplatedStrategy(KindStrategy):
    """The strategy of kinds with a pod template, which their selector must match."""

    first_status: ClassVar[JsonObject] = {}

    def set_defaults(self, thing: JsonObject) -> None:
        pod_defaults.set_pod_defaults(
            ensure_map(ensure_map(ensure_map(thing, "spec"), "template"), "spec")
        )

    def prepare_for_create(self, thing: JsonObject) -> None:
        thing["status"] = dict(self.first_status)

    def validate(self, thing: Mapping[str, Any]) -> list[Cause]:
        """Validate the containers, and that the selector matches the template."""
        labels = get_map(thing, "spec", "template", "metadata").get("labels")
        selector = get_map(thing, "spec", "selector")
        found: list[Cause] = []
        empty = not selector.get("matchLabels") and not selector.get("matchExpressions")
        if empty or not from_object(selector)(labels or {}):
            field = "spec.template.metadata.labels"
            why = "`selector` does not match template `labels`"
            found.append(_invalid_json(field, labels, why))
        return found + _containers(get_map(thing, "spec", "template", "spec"), "spec.template.spec")

    def validate_update(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        selector = get_map(new, "spec", "selector")
        if selector != get_map(old, "spec", "selector"):
            return [_invalid_json("spec.selector", selector, "field is immutable")]
        return []


def _invalid_json(field: str, value: object, why: str) -> Cause:
    """Return the cause of an invalid value that is shown as JSON in the order of its fields."""
    shown = encoded(value).decode()
    return cause("FieldValueInvalid", field, f"Invalid value: {shown}: {why}")


class DaemonSetStrategy(TemplatedStrategy):
    first_status: ClassVar[JsonObject] = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }

    def set_defaults(self, thing: JsonObject) -> None:
        super().set_defaults(thing)
        spec = thing["spec"]
        strategy = ensure_map(spec, "updateStrategy")
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
        if strategy["type"] == "RollingUpdate":
            rolling = ensure_map(strategy, "rollingUpdate")
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        ensure_map(thing["metadata"], "annotations").setdefault(_TEMPLATE_GENERATION, "1")

    def prepare_for_update(self, new: JsonObject, old: Mapping[str, Any]) -> None:
        """Count the changes of the template."""
        count = int(get_map(old, "metadata", "annotations").get(_TEMPLATE_GENERATION, "1"))
        if new["spec"].get("template") != old["spec"].get("template"):
            count += 1
        new["metadata"]["annotations"][_TEMPLATE_GENERATION] = str(count)


class ReplicaSetStrategy(TemplatedStrategy):
    first_status: ClassVar[JsonObject] = {"replicas": 0}

    def set_defaults(self, thing: JsonObject) -> None:
        super().set_defaults(thing)
        thing["spec"].setdefault("replicas", 1)


class JobStrategy(TemplatedStrategy):
    def set_defaults(self, thing: JsonObject) -> None:
        super().set_defaults(thing)
        spec = thing["spec"]
        spec.setdefault("parallelism", 1)
        spec.setdefault("completions", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("manualSelector", False)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")

    def prepare_for_update(self, new: JsonObject, old: Mapping[str, Any]) -> None:
        """Keep the labels and the selector that the server generated."""
        new["spec"]["selector"] = old["spec"].get("selector")
        metadata = ensure_map(new["spec"]["template"], "metadata")
        theirs = get_map(old, "spec", "template", "metadata", "labels")
        metadata["labels"] = {**get_map(metadata, "labels"), **theirs}

    def prepare_for_create(self, thing: JsonObject) -> None:
        """Keep the labels and the selector that the server generated."""
        super().prepare_for_create(thing)
        metadata, spec = thing["metadata"], dict(thing["spec"])
        marks = {
            "batch.kubernetes.io/controller-uid": metadata["uid"],
            "batch.kubernetes.io/job-name": metadata["name"],
            "controller-uid": metadata["uid"],
            "job-name": metadata["name"],
        }
        labelled = get_map(spec, "template", "metadata")
        labelled = {**labelled, "labels": {**get_map(labelled, "labels"), **marks}}
        spec["template"] = {**spec["template"], "metadata": labelled}
        key = "batch.kubernetes.io/controller-uid"
        spec["selector"] = {"matchLabels": {key: metadata["uid"]}}
        thing["spec"] = spec
        metadata["labels"] = {**get_map(metadata, "labels"), **marks}


class DisruptionBudgetStrategy(KindStrategy):
    def prepare_for_create(self, thing: JsonObject) -> None:
        """Allow no disruption before the controller has counted the pods."""
        counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        thing["status"] = dict.fromkeys(counts, 0)

    def validate(self, thing: Mapping[str, Any]) -> list[Cause]:
        spec = get_map(thing, "spec")
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            why = "minAvailable and maxUnavailable cannot be both set"
            return [_invalid_json("spec", spec, why)]
        return []
