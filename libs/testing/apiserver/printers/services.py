"""A Service in a table: its type decides which addresses it can be reached at from outside."""

from libs.testing.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Cell,
    Object,
    at,
    column,
    labels_text,
    list_at,
    value_at,
    wide,
)


def _inside(service: Object, _now: float) -> Cell:
    addresses = list_at(service, "spec", "clusterIPs")
    return addresses[0] if addresses else NONE


def _outside(service: Object, _now: float) -> Cell:
    given: list[str] = value_at(service, "spec", "externalIPs") or []
    match value_at(service, "spec", "type"):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            ingress = list_at(service, "status", "loadBalancer", "ingress")
            ways = {way.get("ip") or way.get("hostname") or "" for way in ingress}
            return ",".join([*sorted(ways - {""}), *given]) or "<pending>"
        case "ExternalName":
            return value_at(service, "spec", "externalName") or ""
        case _:
            return UNKNOWN


def _ports(service: Object, _now: float) -> Cell:
    return ",".join(_port(port) for port in list_at(service, "spec", "ports")) or NONE


def _port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port.get('protocol', '')}"


def _selector(service: Object, _now: float) -> Cell:
    return labels_text(service, "spec", "selector")


SERVICE = (
    NAME,
    column("Type", at("spec", "type")),
    column("Cluster-IP", _inside),
    column("External-IP", _outside),
    column("Port(s)", _ports),
    AGE,
    wide("Selector", _selector),
)
