"""Pods and the kinds that own them: defaults and validation; the strategy of each kind."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from libs.testing.apiserver.kinds import names
from libs.testing.apiserver.kinds.custom_resources import (
    RESOURCE,
    CustomResourceDefinitionStrategy,
)
from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.schema import Predicate
from libs.testing.apiserver.kinds.strategies import (
    CustomObjectStrategy,
    EventStrategy,
    KindStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    RoleStrategy,
    SecretStrategy,
    ServiceAccountStrategy,
    ServiceStrategy,
)
from libs.testing.apiserver.objects.json import JsonObject, encoded, ensure_map, get_map, get_maps
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.apiserver.status import Cause, cause, forbidden, invalid, required

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_WITH_MODE = ("secret", "configMap", "downwardAPI", "projected")


def set_pod_defaults(spec: JsonObject) -> None:
    spec.setdefault("restartPolicy", "Always")
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in all_containers(spec):
        _fill_container(container, host=spec.get("hostNetwork") is True)
    for volume in get_maps(spec, "volumes"):
        _fill_volume(volume)


def all_containers(spec: JsonObject) -> Iterator[JsonObject]:
    """Return the containers, init containers first."""
    yield from get_maps(spec, "initContainers")
    yield from get_maps(spec, "containers")


def _fill_container(container: JsonObject, *, host: bool) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    for port in get_maps(container, "ports"):
        port.setdefault("protocol", "TCP")
        if host and not port.get("hostPort"):
            port["hostPort"] = port.get("containerPort")
    for variable in get_maps(container, "env"):
        get_map(variable, "valueFrom", "fieldRef").setdefault("apiVersion", "v1")
    for name in _PROBES:
        if container.get(name) is not None:
            _fill_probe(container[name])


def set_default_requests(spec: JsonObject) -> None:
    """Set missing requests to the limits, in pods but not in templates."""
    for container in all_containers(spec):
        for name, amount in get_map(container, "resources", "limits").items():
            ensure_map(container["resources"], "requests").setdefault(name, amount)


def _pull_policy(image: str) -> str:
    name, _, digest = image.partition("@")
    if digest:
        return "IfNotPresent"
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _fill_probe(probe: JsonObject) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if probe.get("httpGet") is not None:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _fill_volume(volume: JsonObject) -> None:
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    for name in _WITH_MODE:
        if volume.get(name) is not None:
            volume[name].setdefault("defaultMode", 420)
    for source in get_maps(volume, "projected", "sources"):
        get_map(source, "serviceAccountToken").setdefault("expirationSeconds", 3600)


def qos_class(spec: JsonObject) -> str:
    has_values: list[bool] = []
    is_equal: list[bool] = []
    for container in all_containers(spec):
        limits = get_map(container, "resources", "limits")
        requests = get_map(container, "resources", "requests")
        counted = [name for name in ("cpu", "memory") if name in requests or name in limits]
        has_values.append(bool(counted))
        is_equal.append(
            len(counted) == 2
            and all(name in limits and requests.get(name) == limits[name] for name in counted)
        )
    if not any(has_values):
        return "BestEffort"
    return "Guaranteed" if all(is_equal) else "Burstable"


_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_POD_UPDATES = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
_DEFAULT_TOLERATIONS = tuple(
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)


class PodStrategy(KindStrategy):
    """A pod is created Pending, and little of its spec can change."""

    returns_deleted = True

    def set_defaults(self, obj: JsonObject) -> None:
        spec = ensure_map(obj, "spec")
        set_pod_defaults(spec)
        set_default_requests(spec)
        spec.setdefault("enableServiceLinks", True)

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Add the default tolerations and priority of admission, and the first status."""
        spec: JsonObject = dict(obj["spec"])
        tolerations = get_maps(spec, "tolerations")
        added = [
            toleration
            for toleration in _DEFAULT_TOLERATIONS
            if not _tolerated(toleration, tolerations)
        ]
        if added:
            spec["tolerations"] = [*tolerations, *added]
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        obj["spec"] = spec
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}

    def validate(self, obj: Mapping[str, Any]) -> list[Cause]:
        return _containers(get_map(obj, "spec"), "spec")

    def validate_update(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        if _fixed_spec(new, old) != _fixed_spec(old, old):
            return [forbidden("spec", _POD_UPDATES)]
        return []


def _tolerated(taint: Mapping[str, Any], tolerations: list[JsonObject]) -> bool:
    return any(
        toleration.get("key") in (taint["key"], None, "")
        and toleration.get("effect") in (taint["effect"], None, "")
        for toleration in tolerations
    )


def _fixed_spec(obj: Mapping[str, Any], old: Mapping[str, Any]) -> JsonObject:
    """Return the pod's spec without the parts that may change."""
    spec = {**get_map(obj, "spec")}
    spec.pop("activeDeadlineSeconds", None)
    before = get_maps(old, "spec", "tolerations")
    spec["tolerations"] = [each for each in get_maps(spec, "tolerations") if each in before]
    for name in ("containers", "initContainers"):
        spec[name] = [{**each, "image": ""} for each in get_maps(spec, name)]
    return spec


def _containers(spec: Mapping[str, Any], path: str) -> list[Cause]:
    if not spec.get("containers"):
        return [required(f"{path}.containers", "")]
    causes: list[Cause] = []
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(get_maps(spec, kind)):
            field = f"{path}.{kind}[{index}]"
            name = container.get("name", "")
            if not name:
                causes.append(required(f"{field}.name", ""))
            elif why := names.validate_label(name):
                causes.append(invalid(f"{field}.name", name, why))
            if not container.get("image"):
                causes.append(required(f"{field}.image", ""))
    return causes


class TemplatedStrategy(KindStrategy):
    """The strategy of kinds with a pod template, which their selector must match."""

    first_status: ClassVar[JsonObject] = {}

    def set_defaults(self, obj: JsonObject) -> None:
        set_pod_defaults(ensure_map(ensure_map(ensure_map(obj, "spec"), "template"), "spec"))

    def prepare_for_create(self, obj: JsonObject) -> None:
        obj["status"] = dict(self.first_status)

    def validate(self, obj: Mapping[str, Any]) -> list[Cause]:
        """Validate the containers, and that the selector matches the template."""
        labels = get_map(obj, "spec", "template", "metadata").get("labels")
        selector = get_map(obj, "spec", "selector")
        found: list[Cause] = []
        empty = not selector.get("matchLabels") and not selector.get("matchExpressions")
        if empty or not from_object(selector)(labels or {}):
            field = "spec.template.metadata.labels"
            why = "`selector` does not match template `labels`"
            found.append(_invalid_json(field, labels, why))
        return found + _containers(get_map(obj, "spec", "template", "spec"), "spec.template.spec")

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

    def set_defaults(self, obj: JsonObject) -> None:
        super().set_defaults(obj)
        spec = obj["spec"]
        strategy = ensure_map(spec, "updateStrategy")
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
        if strategy["type"] == "RollingUpdate":
            rolling = ensure_map(strategy, "rollingUpdate")
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        ensure_map(obj["metadata"], "annotations").setdefault(_TEMPLATE_GENERATION, "1")

    def prepare_for_update(self, new: JsonObject, old: Mapping[str, Any]) -> None:
        """Count the changes of the template."""
        count = int(get_map(old, "metadata", "annotations").get(_TEMPLATE_GENERATION, "1"))
        if new["spec"].get("template") != old["spec"].get("template"):
            count += 1
        new["metadata"]["annotations"][_TEMPLATE_GENERATION] = str(count)


class ReplicaSetStrategy(TemplatedStrategy):
    first_status: ClassVar[JsonObject] = {"replicas": 0}

    def set_defaults(self, obj: JsonObject) -> None:
        super().set_defaults(obj)
        obj["spec"].setdefault("replicas", 1)


class DisruptionBudgetStrategy(KindStrategy):
    def prepare_for_create(self, obj: JsonObject) -> None:
        """Allow no disruption before the controller has counted the pods."""
        counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        obj["status"] = dict.fromkeys(counts, 0)

    def validate(self, obj: Mapping[str, Any]) -> list[Cause]:
        spec = get_map(obj, "spec")
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            message = "minAvailable and maxUnavailable cannot be both set"
            return [_invalid_json("spec", spec, message)]
        return []


_RBAC = ("clusterrolebindings", "clusterroles", "rolebindings", "roles")


class StrategyRegistry:
    def __init__(self, rules: Mapping[str, Predicate]) -> None:
        self._ordinary = KindStrategy()
        self._own: dict[str, KindStrategy] = {
            RESOURCE: CustomResourceDefinitionStrategy(rules),
            "nodes": NodeStrategy(),
            "namespaces": NamespaceStrategy(),
            "events": EventStrategy(),
            "secrets": SecretStrategy(),
            "services": ServiceStrategy(),
            "serviceaccounts": ServiceAccountStrategy(),
            "leases.coordination.k8s.io": LeaseStrategy(),
            "pods": PodStrategy(),
            "daemonsets.apps": DaemonSetStrategy(),
            "replicasets.apps": ReplicaSetStrategy(),
            "poddisruptionbudgets.policy": DisruptionBudgetStrategy(),
            **{f"{name}.rbac.authorization.k8s.io": RoleStrategy() for name in _RBAC},
        }

    def __call__(self, kind: ResourceKind) -> KindStrategy:
        if kind.custom:
            return CustomObjectStrategy(status="status" in kind.subresources)
        return self._own.get(kind.resource, self._ordinary)
