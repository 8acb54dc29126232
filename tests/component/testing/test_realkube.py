"""A real control plane: start, users, audit log, faults and end."""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.journal import Revision, Verb
from libs.kube.auditlog import AuditLogConverter
from libs.kube.changes import changed_paths
from libs.testing.child_process import ReservedPort
from libs.testing.errors import ServerFailed
from libs.testing.realkube.binaries import Binaries, find_binaries
from libs.testing.realkube.cluster import RealKube
from tests.builders.objects import daemon_set, pod
from tests.component.testing.realkube_client import (
    APPLY,
    CONFIG_MAPS,
    MERGE,
    NODE,
    PODS,
    STRATEGIC,
    Client,
    running,
)
from tests.support import eventually

SEARCH = find_binaries(os.environ)

SERVERS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}


@pytest.fixture(scope="module")
def binaries() -> Binaries:
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.explanation)
    return SEARCH.binaries


@pytest.fixture(scope="module")
def plane(binaries: Binaries) -> Iterator[RealKube]:
    """Yield one control plane, shared by the tests that leave it unchanged."""
    kube = asyncio.run(
        RealKube.start(
            binaries=binaries, users={"alice": ["people"], "carol": []}, reads_of=["people"]
        )
    )
    folder = kube.audit_log.parent
    assert running(folder).keys() == SERVERS
    yield kube
    asyncio.run(kube.stop())
    assert_nothing_left(kube, folder)


def assert_nothing_left(kube: RealKube, folder: Path) -> None:
    assert running(folder) == {}
    assert not folder.exists()
    ReservedPort(int(kube.url.rpartition(":")[2])).release()
    assert f"control plane at {kube.url}" not in {thread.name for thread in threading.enumerate()}


def kubectl(kube: RealKube, *arguments: str, user: str = "admin") -> str:
    command = [kube.kubectl, f"--kubeconfig={kube.kubeconfig(user)}", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


async def test_a_started_control_plane_serves(plane: RealKube) -> None:
    async with Client(plane) as client:
        assert (await client.ask("POST", PODS, pod("first")))[0] == 201
        assert (await client.ask("DELETE", f"{PODS}/first"))[0] == 200
        status, version = await client.ask("GET", "/version")
        assert (status, version["gitVersion"]) == (200, plane.version)


async def test_rbac_applies_to_users(plane: RealKube) -> None:
    role = {
        "metadata": {"name": "may-list"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
    }
    binding = {
        "metadata": {"name": "may-list"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "may-list",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "people"}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    async with Client(plane) as admin, Client(plane, "alice") as alice:
        assert (await alice.ask("GET", "/api/v1/nodes"))[0] == 403
        assert (await admin.ask("POST", f"{rbac}/clusterroles", role))[0] == 201
        assert (await admin.ask("POST", f"{rbac}/clusterrolebindings", binding))[0] == 201

        async def may_list() -> bool:
            return (await alice.ask("GET", "/api/v1/nodes"))[0] == 200

        await eventually(may_list)
        assert (await alice.ask("GET", PODS))[0] == 403
    with pytest.raises(ServerFailed, match=r"has no user 'bob', only admin, .*, alice, carol: add"):
        plane.token("bob")


async def test_the_audit_log_has_reads_of_the_named_users(plane: RealKube) -> None:
    path = "/api/v1/namespaces/default/secrets"

    def refusals() -> list[tuple[str, int]]:
        events = map(json.loads, plane.audit_log.read_text().splitlines())
        return [
            (event["user"]["username"], event["responseStatus"]["code"])
            for event in events
            if event["requestURI"] == path and "responseObject" not in event
        ]

    for user in ("admin", "carol", "alice"):
        async with Client(plane, user) as client:
            assert (await client.ask("GET", path))[0] == (200 if user == "admin" else 403)
    await eventually(lambda: bool(refusals()))
    assert refusals() == [("alice", 403)]


async def test_a_restart_keeps_objects_and_compacts_history(plane: RealKube) -> None:
    async with Client(plane) as client:
        _, created = await client.ask("POST", CONFIG_MAPS, {"metadata": {"name": "kept"}})
        revision = created["metadata"]["resourceVersion"]
        body = {"data": {"a": "1"}}
        _, changed = await client.ask("PATCH", f"{CONFIG_MAPS}/kept", body, as_=MERGE)
        assert [
            event["type"] for event in await client.watched(CONFIG_MAPS, resourceVersion=revision)
        ] == ["MODIFIED"]
    pid = running(plane.audit_log.parent)["kube-apiserver"]

    await plane.compact(int(changed["metadata"]["resourceVersion"]))
    await plane.restart_apiserver()

    assert running(plane.audit_log.parent)["kube-apiserver"] != pid
    async with Client(plane) as client:
        _, kept = await client.ask("GET", f"{CONFIG_MAPS}/kept")
        assert kept == changed
        (gone,) = await client.watched(CONFIG_MAPS, resourceVersion=revision)
        assert (gone["type"], gone["object"]["code"]) == ("ERROR", 410)
        exact = {"resourceVersion": revision, "resourceVersionMatch": "Exact"}
        assert (await client.ask("GET", CONFIG_MAPS, **exact))[0] == 410
        assert (await client.ask("DELETE", f"{CONFIG_MAPS}/kept"))[0] == 200


class AuditLogJournal:
    """The journal that the audit log of a control plane gives, from now on."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._start = log.stat().st_size
        self.revisions: list[Revision] = []

    def refresh(self) -> None:
        # Reads all of it again: flushed revisions cannot be sorted with later ones.
        converter = AuditLogConverter(str(self._log))
        text = self._log.read_bytes()[self._start :]
        self.revisions = [*converter.feed(text), *converter.flush()]

    def of(self, kind: str, name: str, *users: str) -> list[Revision]:
        return [
            revision
            for revision in self.revisions
            if (revision.kind, revision.name) == (kind, name)
            and (not users or revision.user in users)
        ]


async def test_the_audit_log_is_read_as_a_journal(plane: RealKube) -> None:
    journal = AuditLogJournal(plane.audit_log)
    apply = {"fieldManager": "sluice-scheduler", "force": "true"}
    node_reference: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
    }
    async with Client(plane) as client:
        registered = {
            **node_reference,
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        _, node = await client.ask("POST", "/api/v1/nodes", registered)
        labels = {"labels": {"nvidia.com/gpu.present": "true"}}
        desired = {
            **node_reference,
            "metadata": {"name": "n1", **labels},
            "spec": {"unschedulable": True},
        }
        await client.ask("PATCH", NODE, desired, as_=APPLY, **apply)
        conflicting = {
            **node_reference,
            "metadata": {"labels": {"nvidia.com/gpu.present": "false"}},
        }
        conflict = await client.ask("PATCH", NODE, conflicting, as_=APPLY, fieldManager="other")
        stale = await client.ask("PUT", NODE, node)
        await client.ask("PATCH", NODE, node_reference, as_=APPLY, **apply, dryRun="All")
        await client.ask("PATCH", NODE, node_reference, as_=APPLY, **apply)
        assert (conflict[0], stale[0]) == (409, 409)

        def all_recorded() -> bool:
            journal.refresh()
            return len(journal.of("Node", "n1", "admin")) == 5

        await eventually(all_recorded)
        await client.ask("DELETE", NODE)
    created, applied, conflicted, updated, released = journal.of("Node", "n1", "admin")
    assert [
        (revision.verb, revision.code, revision.manager)
        for revision in journal.of("Node", "n1", "admin")
    ] == [
        (Verb.CREATE, 201, "probe"),
        (Verb.APPLY, 200, "sluice-scheduler"),
        (Verb.APPLY, 409, "other"),
        (Verb.UPDATE, 409, "probe"),
        (Verb.APPLY, 200, "sluice-scheduler"),
    ]
    assert created.changed["status.allocatable.cpu"] == (None, "4")
    assert applied.changed == {
        'metadata.labels["nvidia.com/gpu.present"]': (None, "true"),
        "spec.unschedulable": (None, True),
    }
    assert released.changed == {path: (b, a) for path, (a, b) in applied.changed.items()}
    assert (conflicted.changed, updated.changed) == ({}, {})
    assert {revision.uid for revision in journal.of("Node", "n1")} == {node["metadata"]["uid"]}
    assert applied.revision > int(node["metadata"]["resourceVersion"])


async def test_evictions_and_deletions_are_in_the_journal(plane: RealKube) -> None:
    journal = AuditLogJournal(plane.audit_log)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    async with Client(plane) as client:
        await client.ask("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}, **CAPACITY})
        wanted = pod("p", meta={"labels": {"app": "p"}}, tolerations=[{"operator": "Exists"}])
        await client.ask("POST", PODS, wanted)

        async def bound() -> bool:
            return (await client.ask("GET", f"{PODS}/p"))[1]["spec"].get("nodeName") == "n2"

        await eventually(bound)
        assert (await client.ask("POST", f"{PODS}/p/eviction", eviction))[0] == 201
        _, marked = await client.ask("GET", f"{PODS}/p")
        status = {"status": {"phase": "Running"}}
        await client.ask("PATCH", f"{PODS}/p/status", status, as_=STRATEGIC)
        await client.ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        await client.ask("DELETE", "/api/v1/nodes/n2")
        await client.ask("POST", f"{PODS}/p/eviction", eviction)

        def all_recorded() -> bool:
            journal.refresh()
            return len(journal.of("Pod", "p", "admin")) == 5

        await eventually(all_recorded)
    (binding,) = journal.of("Binding", "p")
    assert binding.user == "system:kube-scheduler"
    assert binding.changed["spec.nodeName"] == (None, "n2")
    _, evicted, running_, deleted, missed = journal.of("Pod", "p", "admin")
    assert (evicted.verb, evicted.code, evicted.uid) == (Verb.EVICT, 201, binding.uid)
    assert evicted.changed["metadata.deletionGracePeriodSeconds"] == (None, 30)
    changes = {path.rpartition(".")[2]: after for path, (_, after) in evicted.changed.items()}
    (disrupted,) = [
        condition
        for condition in marked["status"]["conditions"]
        if condition["type"] == "DisruptionTarget"
    ]
    for field in ("type", "status", "reason", "message"):
        assert changes[field] == disrupted[field]
    assert set(changes) - set(disrupted) == {"deletionTimestamp", "deletionGracePeriodSeconds"}
    assert running_.changed == {"status.phase": ("Pending", "Running")}
    assert (deleted.verb, deleted.changed["metadata.name"]) == (Verb.DELETE, ("p", None))
    assert (missed.verb, missed.code) == (Verb.EVICT, 404)


CAPACITY = {
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
}
COMPARED = {"Node", "Pod", "DaemonSet", "ControllerRevision"}
UNSEEN = ("status.conditions[type=PodScheduled]",)
"""Changes of a binding that the audit log does not show."""


Leaves = dict[tuple[str, str], dict[str, Any]]
"""Values by path, by kind and name of the object."""


async def test_replaying_the_journal_gives_the_objects(plane: RealKube) -> None:
    journal = AuditLogJournal(plane.audit_log)
    async with Client(plane) as client:
        await client.ask("POST", "/api/v1/nodes", {"metadata": {"name": "n3"}, **CAPACITY})
        apps = "/apis/apps/v1/namespaces/default"
        wanted = daemon_set("ds", strategy={"type": "RollingUpdate"})
        await client.ask("POST", f"{apps}/daemonsets", wanted)

        async def listed(path: str, kind: str) -> Leaves:
            _, answer = await client.ask("GET", path)
            return {
                (kind, item["metadata"]["name"]): {
                    path: after
                    for path, (_, after) in changed_paths(None, item).items()
                    if has_own_path(after) and not path.startswith(UNSEEN)
                }
                for item in answer["items"]
            }

        async def objects() -> Leaves:
            return {
                **await listed("/api/v1/nodes", "Node"),
                **await listed(PODS, "Pod"),
                **await listed(f"{apps}/daemonsets", "DaemonSet"),
                **await listed(f"{apps}/controllerrevisions", "ControllerRevision"),
            }

        async def bound() -> bool:
            _, pods = await client.ask("GET", PODS)
            return [pod["spec"].get("nodeName") for pod in pods["items"]] == ["n3"]

        await eventually(bound)
        ((_, name),) = await listed(PODS, "Pod")
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await client.ask("PATCH", f"{PODS}/{name}/status", status, as_=STRATEGIC)

        async def journal_complete() -> bool:
            journal.refresh()
            return await objects() == replay(journal.revisions)

        await eventually(journal_complete, within=100.0, every=0.2)
        assert {kind for kind, _ in await objects()} == COMPARED
        await client.ask("DELETE", f"{apps}/daemonsets/ds")
        await client.ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        await client.ask("DELETE", "/api/v1/nodes/n3")


def has_own_path(value: Any) -> bool:
    """Return whether the value has a path of its own; an empty container loses it when filled."""
    return value is not None and value not in ({}, [])


def replay(revisions: list[Revision]) -> Leaves:
    """Return the objects that result from applying all changes in order.

    What an earlier test created is left out: the time of an eviction is a guess of the journal.
    """
    leaves_by_uid: dict[str, dict[str, Any]] = {}
    keys: dict[str, tuple[str, str]] = {}
    for revision in revisions:
        if revision.kind in COMPARED and (revision.verb, revision.code) == (Verb.CREATE, 201):
            keys[revision.uid] = revision.kind, revision.name
        if revision.uid not in keys:
            continue
        leaves = leaves_by_uid.setdefault(revision.uid, {})
        for path, (before, after) in revision.changed.items():
            if path.startswith(UNSEEN):
                continue
            assert leaves.pop(path, None) == (before if has_own_path(before) else None)
            if has_own_path(after):
                leaves[path] = after
    return {keys[uid]: leaves for uid, leaves in leaves_by_uid.items() if leaves}


async def test_an_unexpected_exit_is_an_error_and_ends_the_other_programs(
    binaries: Binaries,
) -> None:
    kube = await RealKube.start(binaries=binaries)
    folder = kube.audit_log.parent
    os.kill(running(folder)["kube-scheduler"], signal.SIGTERM)
    await eventually(lambda: "kube-scheduler" not in running(folder))
    with pytest.raises(ServerFailed, match=r"^kube-scheduler of https://127\.0\.0\.1:\d+ "):
        await kube.stop()
    assert_nothing_left(kube, folder)


async def test_a_failed_start_reports_the_output_of_the_server(
    binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho 'Error: unknown flag: --quux' >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(ServerFailed) as failed:
        await RealKube.start(binaries=replace(binaries, apiserver=broken))
    first, *_, last = str(failed.value).splitlines()
    assert first.startswith("kube-apiserver of https://127.0.0.1:")
    assert first.endswith(" has ended by itself (exit code 3); its last lines:")
    assert last == "  Error: unknown flag: --quux"
    url = first.split()[2]
    assert f"control plane at {url}" not in {thread.name for thread in threading.enumerate()}
    assert os.listdir(tmp_path) == [broken.name]
