"""A Service in a table: its type decides which addresses it can be reached at from outside."""

from libs.testing.apiserver.showing.printing.columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Cell,
    Object,
    at,
    column,
    find,
    items,
    labels,
    wide,
)


def _inside(service: Object, _now: float) -> Cell:
    addresses = items(service, "spec", "clusterIPs")
    return addresses[0] if addresses else NONE


def _outside(service: Object, _now: float) -> Cell:
    given: list[str] = find(service, "spec", "externalIPs") or []
    match find(service, "spec", "type"):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            ingress = items(service, "status", "loadBalancer", "ingress")
            ways = {way.get("ip") or way.get("hostname") or "" for way in ingress}
            return ",".join([*sorted(ways - {""}), *given]) or "<pending>"
        case "ExternalName":
            return find(service, "spec", "externalName") or ""
        case _:
            return UNKNOWN


def _ports(service: Object, _now: float) -> Cell:
    return ",".join(_port(port) for port in items(service, "spec", "ports")) or NONE


def _port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port.get('protocol', '')}"


def _selector(service: Object, _now: float) -> Cell:
    return labels(service, "spec", "selector")


SERVICE = (
    NAME,
    column("Type", at("spec", "type")),
    column("Cluster-IP", _inside),
    column("External-IP", _outside),
    column("Port(s)", _ports),
    AGE,
    wide("Selector", _selector),
)
