"""The format of CDI specs, as their specification has it: what a container runtime refuses."""

import re
from collections.abc import Callable, Iterator
from typing import Any

Check = Callable[[Any], Iterator[str]]
VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
HOOKS = "prestart|createRuntime|createContainer|startContainer|poststart|poststop"


def text(pattern: str = ".+") -> Check:
    def check(value: Any) -> Iterator[str]:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            yield f"{value!r} is no text of the form {pattern}"

    return check


def whole(value: Any) -> Iterator[str]:
    if type(value) is not int:
        yield f"{value!r} is no whole number"


def items(check: Check, *, least: int = 0) -> Check:
    def check_all(value: Any) -> Iterator[str]:
        if not isinstance(value, list) or len(value) < least:
            yield f"{value!r} is no list of {least} or more"
        else:
            for item in value:
                yield from check(item)

    return check_all


def fields(needed: dict[str, Check], more: dict[str, Check] | None = None) -> Check:
    known = needed | (more or {})

    def check(value: Any) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{value!r} is no object"
            return
        yield from (f"{name} is missing" for name in needed.keys() - value.keys())
        for name, entry in value.items():
            found = known[name](entry) if name in known else ["is not a field"]
            yield from (f"{name}: {problem}" for problem in found)

    return check


NAME = "[A-Za-z][A-Za-z0-9_.-]*"
VARIABLES = items(text("[^=]+=.*"))
DEVICE_NODE = fields(
    {"path": text("/.+")},
    {
        "hostPath": text("/.+"),
        "type": text("[bcup]"),
        "permissions": text("[rwm]+"),
        **dict.fromkeys(("major", "minor", "fileMode", "uid", "gid"), whole),
    },
)
MOUNT = fields(
    {"hostPath": text("/.*"), "containerPath": text("/.*")},
    {"type": text(), "options": items(text())},
)
HOOK = fields(
    {"hookName": text(HOOKS), "path": text("/.+")},
    {"args": items(text()), "env": VARIABLES, "timeout": whole},
)
EDITS = fields(
    {},
    {
        "env": VARIABLES,
        "deviceNodes": items(DEVICE_NODE),
        "mounts": items(MOUNT),
        "hooks": items(HOOK),
        "additionalGids": items(whole),
    },
)
DEVICE = fields(
    {"name": text("[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"), "containerEdits": EDITS}
)
SPEC = fields(
    {
        "cdiVersion": text("|".join(map(re.escape, VERSIONS))),
        "kind": text(f"{NAME}/{NAME}"),
        "devices": items(DEVICE, least=1),
    },
    {"containerEdits": EDITS},
)


def problems(spec: Any) -> list[str]:
    """Return why a runtime would refuse the spec."""
    found = list(SPEC(spec))
    if found:
        return found
    found += [f"version {spec['cdiVersion']} is too low" for _ in _newer(spec)]
    names = [each["name"] for each in spec["devices"]]
    return found if len(set(names)) == len(names) else [*found, "two devices have one name"]


def _newer(spec: Any) -> Iterator[str]:
    """Yield each use of what the spec's version does not have yet."""
    version = tuple(map(int, spec["cdiVersion"].split(".")))
    every = [spec.get("containerEdits", {}), *(each["containerEdits"] for each in spec["devices"])]
    nodes = [node for edits in every for node in edits.get("deviceNodes", ())]
    uses = {
        (0, 5, 0): [each["name"] for each in spec["devices"] if each["name"][0].isdecimal()]
        + [node["hostPath"] for node in nodes if "hostPath" in node],
        (0, 6, 0): [spec["kind"]] if "." in spec["kind"].partition("/")[2] else [],
        (0, 7, 0): [edits for edits in every if "additionalGids" in edits],
    }
    for needed, used in uses.items():
        if version < needed:
            yield from map(str, used)
