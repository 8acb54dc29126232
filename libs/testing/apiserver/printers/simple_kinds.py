"""Kinds whose tables follow from a field or two: what is configured, held, bound and defined."""

from libs.testing.apiserver.printers.columns import (
    AGE,
    CREATED_AT,
    NAME,
    Cell,
    CellReader,
    Object,
    at,
    column,
    count,
    list_at,
    map_at,
    size,
    true_condition,
    value_at,
    wide,
)


def _pieces(config: Object, _now: float) -> Cell:
    return len(map_at(config, "data")) + len(map_at(config, "binaryData"))


def _bound(field: str) -> CellReader:
    def read(budget: Object, _now: float) -> Cell:
        bound = value_at(budget, "spec", field)
        return "N/A" if bound is None else str(bound)

    return read


def _role(binding: Object, _now: float) -> Cell:
    return f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}"


def _subjects(kind: str) -> CellReader:
    def read(binding: Object, _now: float) -> Cell:
        subjects = list_at(binding, "subjects")
        return ", ".join(_subject(subject) for subject in subjects if subject["kind"] == kind)

    return read


def _subject(subject: Object) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"{subject.get('namespace', '')}/{subject['name']}"
    return subject["name"]


def _versions(definition: Object, _now: float) -> Cell:
    versions = list_at(definition, "spec", "versions")
    served = (version for version in versions if version.get("served"))
    return ",".join(
        sorted(f"{each['name']}{'(storage)' * bool(each.get('storage'))}" for each in served)
    )


def _short_names(definition: Object, _now: float) -> Cell:
    return ",".join(list_at(definition, "spec", "names", "shortNames"))


def _established(definition: Object, _now: float) -> Cell:
    return true_condition(definition, "Established")


NAMESPACE = (NAME, column("Status", at("status", "phase")), AGE)
CONFIG_MAP = (NAME, column("Data", _pieces), AGE)
SECRET = (NAME, column("Type", at("type")), column("Data", size("data")), AGE)
SERVICE_ACCOUNT = (NAME, AGE)
LEASE = (NAME, column("Holder", at("spec", "holderIdentity")), AGE)
RUNTIME_CLASS = (NAME, column("Handler", at("handler")), AGE)
BUDGET = (
    NAME,
    column("Min Available", _bound("minAvailable")),
    column("Max Unavailable", _bound("maxUnavailable")),
    column("Allowed Disruptions", count("status", "disruptionsAllowed"), "integer"),
    AGE,
)
ROLE_BINDING = (
    NAME,
    column("Role", _role),
    AGE,
    wide("Users", _subjects("User")),
    wide("Groups", _subjects("Group")),
    wide("ServiceAccounts", _subjects("ServiceAccount")),
)
CUSTOM_RESOURCE = (
    NAME,
    column("Scope", at("spec", "scope")),
    column("Versions", _versions),
    CREATED_AT,
    wide("Group", at("spec", "group")),
    wide("Kind", at("spec", "names", "kind")),
    wide("ShortNames", _short_names),
    wide("Established", _established, "boolean"),
)
