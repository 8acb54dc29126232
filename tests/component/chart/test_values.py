"""The values of the chart: each is documented and has a schema; wrong ones are refused in words."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.component.chart.conftest import Render
from tests.component.chart.rendered import CHART, FOREIGN, VALUES, Object

DOCUMENT: Final = CHART.parents[1] / "docs/install.md"
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text())
OURS: Final = (
    *("image", "nats", "signIn", "services", "admission", "networkPolicies", "monitoring"),
)
FREE: Final = {"affinity", "data", "requests", "limits", "labels", "nodeSelector", "annotations"}
"""What people name themselves, or what Kubernetes describes."""


def parts(schema: Object) -> Iterator[Object]:
    """Yield what a schema consists of, with references followed."""
    if reference := schema.get("$ref"):
        schema = SCHEMA["definitions"][reference.removeprefix("#/definitions/")]
    yield schema
    for each in schema.get("allOf", ()):
        yield from parts(each)


def below(schema: Object, name: str) -> Object | None:
    found = [
        part["properties"][name] for part in parts(schema) if name in part.get("properties", {})
    ]
    return found[-1] if found else None


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value and not (path and path[-1] in FREE):
        for name, child in value.items():
            yield from leaves(child, (*path, name))
    else:
        yield path


def known(path: tuple[str, ...]) -> bool:
    """Return whether the schema says of which type a value is."""
    schema: Object = SCHEMA
    for name in path:
        child = below(schema, name)
        if child is None:
            return False
        schema = child
    return any({"type", "enum", "oneOf"} & part.keys() for part in parts(schema))


VALUES_OF_CHART: Final = yaml.safe_load((CHART / "values.yaml").read_text())
DEFAULTS: Final = [*leaves(VALUES_OF_CHART)]


Path = tuple[str, ...]


def documented_rows() -> Iterator[tuple[list[Path], str]]:
    """Yield the values in each row of the table of docs/install.md, and the defaults it gives."""
    section = DOCUMENT.read_text().partition("\n## Values\n")[2].partition("\n## ")[0]
    for row, defaults in re.findall(r"^\| (`.*?) \| (.*?) \|", section, re.MULTILINE):
        yield list(named(row)), defaults


def named(row: str) -> Iterator[Path]:
    """Yield the values that a row names; a name with a dot follows another."""
    parent: Path = ()
    for name in re.findall(r"`([^`]+)`", row):
        path = (*parent, *name[1:].split(".")) if name.startswith(".") else tuple(name.split("."))
        parent = parent if name.startswith(".") else path[:-1]
        yield path


def documented() -> Iterator[Path]:
    return (path for paths, _ in documented_rows() for path in paths)


def default_of(path: Path) -> str:
    """Return the default of a value as the table gives it."""
    if path[1:2] == ("<name>",):
        of_all = {default_of((path[0], name, *path[2:])) for name in VALUES_OF_CHART["services"]}
        return " or ".join(sorted(of_all))
    value: Any = VALUES_OF_CHART
    for name in path:
        value = value[name]
    if value in ("", [], {}):
        return "none"
    if isinstance(value, dict) or (isinstance(value, list) and "{" in json.dumps(value)):
        return "[file](../deploy/chart/values.yaml)"
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{text}`"


def test_each_default_in_the_documentation_is_that_of_the_chart() -> None:
    rows = list(documented_rows())
    assert len(rows) > 15
    for paths, given in rows:
        defaults = [default_of(path) for path in paths]
        expected = defaults[:1] if len(set(defaults)) == 1 else defaults
        assert given == ", ".join(expected), paths


def test_every_value_has_a_schema() -> None:
    assert [".".join(path) for path in DEFAULTS if not known(path)] == []


def test_every_documented_value_exists() -> None:
    services = tuple(name for kind, name, *_ in DEFAULTS if kind == "services")
    expanded = [
        (kind, service, *rest)
        for kind, *rest in documented()
        for service in (dict.fromkeys(services) if rest[:1] == ["<name>"] else (None,))
    ]
    paths = [tuple(part for part in path if part not in (None, "<name>")) for path in expanded]
    assert len(paths) > 40
    assert [path for path in paths if not known(path)] == []
    starts = {path[: len(given)] for given in paths for path in DEFAULTS}
    assert [path for path in paths if path not in starts] == []


def test_every_value_of_ours_is_documented() -> None:
    described = set(documented())
    described |= {
        (kind, service, *rest[1:])
        for kind, *rest in described
        if rest[:1] == ["<name>"]
        for service in ("discovery", "driver", "scheduler", "validator", "telemetry", "signin")
    }
    ours = [path for path in DEFAULTS if path[0] in OURS]
    assert [
        ".".join(path)
        for path in ours
        if not any(path[: len(given)] == given for given in described)
    ] == []


def test_sections_of_ours_are_closed() -> None:
    def open_sections(schema: Object, path: str) -> Iterator[str]:
        for part in parts(schema):
            if "properties" in part and part.get("additionalProperties") is not False:
                yield path
            for name, child in part.get("properties", {}).items():
                yield from open_sections(child, f"{path}.{name}")

    sections = SCHEMA["properties"]
    assert [each for name in OURS for each in open_sections(sections[name], name)] == []


@pytest.mark.parametrize(
    ("setting", "where", "says"),
    [
        ("nats.replicas=2", "/nats/replicas", "must be one of 1, 3"),
        ("nats.url=nats://plain.example", "/nats/url", "does not match pattern"),
        ("image.tagg=x", "/image", "additional properties 'tagg' not allowed"),
        ("monitoring.agent=true", "/monitoring", "additional properties 'agent' not allowed"),
        ("services.scheduler.replica=2", "/services/scheduler", "'replica' not allowed"),
        ("services.validator.replicas=2", "/services/validator/replicas", "maximum"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy", "must be one of"),
        ("operator.logging.level=loud", "/operator/logging/level", "must be one of"),
        ("driver.version=580", "/driver/version", "want string"),
        ("driver.upgradePolicy.maxUnavailable=many", "/driver/upgradePolicy", "pattern"),
        ("mig.strategy=all", "/mig/strategy", "must be one of"),
        ("driver.enabled=ja", "/driver/enabled", "want boolean"),
    ],
)
def test_wrong_values_are_refused(render: Render, setting: str, where: str, says: str) -> None:
    with pytest.raises(AssertionError) as refusal:
        render("--set", setting)
    assert f"'{where}" in str(refusal.value)
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["nats.enabled=false"], "nats.url must name the existing NATS"),
        (["nats.certManager.enabled=true"], "needs nats.certManager.issuer.name"),
        (["devicePlugin.config.create=true"], "devicePlugin.config.create needs"),
    ],
)
def test_what_misses_its_other_half_is_refused(
    render: Render, settings: list[str], says: str
) -> None:
    with pytest.raises(AssertionError, match=says):
        render(*(part for each in settings for part in ("--set", each)))


def test_unknown_keys_of_nvidia_are_accepted(render: Render) -> None:
    given = ("driver.something=new", "newOperand.enabled=true", "operator.other=1")
    assert render(*(part for each in given for part in ("--set", each)))


@pytest.mark.dear("Helm renders each file of values")
def test_there_are_thirty_files_of_values(render: Render) -> None:
    assert len(VALUES) >= 30
    kinds = {each["kind"] for file in VALUES for each in render("--values", str(file))}
    assert kinds >= FOREIGN
