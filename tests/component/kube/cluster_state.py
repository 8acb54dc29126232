"""The objects and writes of a sandbox, without the parts that differ from run to run."""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, cast

from libs.contracts.journal import Revision
from libs.kube.resources import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    EVENTS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
)
from tests.component.kube.cluster_script import REPLICA_SETS
from tests.component.kube.raw_requests import managed_fields, send_request
from tests.component.kube.sandbox import ADMIN, ALICE, Kube, Sandbox
from tests.component.kube.widgets import WIDGETS

Written = dict[str, list[tuple[Any, ...]]]
"""User, manager, verb, code and changes of each write, in order, by object."""

_KINDS = (
    NODES,
    PODS,
    DAEMON_SETS,
    CONTROLLER_REVISIONS,
    REPLICA_SETS,
    POD_DISRUPTION_BUDGETS,
    WIDGETS,
    LEASES,
    EVENTS,
    CONFIG_MAPS,
)
_DEFAULT_OBJECTS = {"kube-root-ca.crt"}
"""Objects that a controller creates in every namespace."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"\b10(\.\d+){3}\b")
_CONTAINER = re.compile(r"containerd://\w+")
_GENERATED = re.compile(r"\b(old|new|job)-[0-9a-z]{5,10}\b")
_HASHES = frozenset({"controller-revision-hash"})
_DROPPED = frozenset({"resourceVersion", "selfLink", "managedFields"})


async def collect_objects(sandbox: Sandbox) -> dict[str, Any]:
    """Return the objects by kind and name; only managers of our clients are kept."""
    kube = sandbox.kube()
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for resource in _KINDS:
        path = resource.path(namespace=sandbox.namespace if resource.namespaced else "")
        for item in (await send_request(kube, "GET", path))["items"]:
            name: str = item["metadata"]["name"]
            if name in _DEFAULT_OBJECTS or not (
                resource.namespaced or name.startswith(sandbox.prefix)
            ):
                continue
            if item.get("reportingComponent"):
                continue  # controllers of the two servers report differently
            shown = normalize(item, sandbox)
            shown["managers"] = [
                normalize(entry, sandbox)
                for entry in managed_fields(item)
                if _ours(entry["manager"], kube)
            ]
            found[f"{resource.kind} {normalize(name, sandbox)}"].append(shown)
    return {key: sorted(values, key=repr) for key, values in sorted(found.items())}


async def collect_writes(sandbox: Sandbox) -> Written:
    """Return the writes of people and services, refused ones included."""
    found: Written = defaultdict(list)
    for revision in await sandbox.revisions():
        if revision.user not in (ADMIN, ALICE) or revision.manager == "test-set-up":
            continue
        key = f"{revision.kind} {normalize(revision.name, sandbox)}"
        found[key].append(_written(revision, sandbox))
    return dict(sorted(found.items()))


def normalize(value: Any, sandbox: Sandbox) -> Any:
    """Return the value without times, uids, revisions, addresses and generated names."""
    if isinstance(value, Mapping):
        tree = cast(Mapping[str, Any], value)
        return {
            normalize(key, sandbox): "HASH" if key in _HASHES else normalize(item, sandbox)
            for key, item in tree.items()
            if key not in _DROPPED
        }
    if isinstance(value, list | tuple):
        return [normalize(item, sandbox) for item in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    value = value.replace(sandbox.namespace, "NAMESPACE").replace(sandbox.prefix, "")
    for pattern, word in (
        (_TIME, "TIME"),
        (_UID, "UID"),
        (_ADDRESS, "ADDRESS"),
        (_CONTAINER, "CONTAINER"),
    ):
        value = pattern.sub(word, value)
    return _GENERATED.sub(r"\1-NAME", value)


def _ours(manager: str, kube: Kube) -> bool:
    return manager.startswith(("sluice", "kubectl", kube.manager))


def _written(revision: Revision, sandbox: Sandbox) -> tuple[Any, ...]:
    changes = normalize(revision.changed, sandbox)
    return revision.user, revision.manager, str(revision.verb), revision.code, changes
