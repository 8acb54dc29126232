"""Defaults of a pod's spec, set in place."""

from collections.abc import Iterator

from libs.testing.apiserver.objects.json_access import JsonObject, ensure_map, get_map, get_maps

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_MODED = ("secret", "configMap", "downwardAPI", "projected")


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
    """Set the requests of what is only limited. Applies to pods, not to templates."""
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
    for name in _MODED:
        if volume.get(name) is not None:
            volume[name].setdefault("defaultMode", 420)
    for source in get_maps(volume, "projected", "sources"):
        get_map(source, "serviceAccountToken").setdefault("expirationSeconds", 3600)


def qos_class(spec: JsonObject) -> str:
    asked: list[bool] = []
    equal: list[bool] = []
    for container in all_containers(spec):
        limits = get_map(container, "resources", "limits")
        requests = get_map(container, "resources", "requests")
        counted = [name for name in ("cpu", "memory") if name in requests or name in limits]
        asked.append(bool(counted))
        equal.append(
            len(counted) == 2
            and all(name in limits and requests.get(name) == limits[name] for name in counted)
        )
    if not any(asked):
        return "BestEffort"
    return "Guaranteed" if all(equal) else "Burstable"
