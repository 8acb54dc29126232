"""The audit log: what `sluice audit` reads from it is what the server's journal has."""

from pathlib import Path

from libs.contracts.journal import Revision
from libs.kube.auditlog import AuditLogConverter
from libs.testing.apiserver.audit_log import AuditLog
from tests.builders.objects import pod
from tests.component.testing.apiserver.world import (
    APPLY,
    MERGE,
    NODES,
    PODS,
    ApiServerWorld,
    run_world,
)


async def _write(world: ApiServerWorld) -> tuple[Revision, ...]:
    await world.node("n1")
    path = f"{NODES}/n1"
    label = {"metadata": {"labels": {"a/b": "c"}}}
    await world.request("PATCH", path, label, content_type=MERGE, user="ann")
    await world.request("PUT", path, {"metadata": {"name": "n1", "resourceVersion": "1"}})
    wanted = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    cordon = {**wanted, "spec": {"unschedulable": True}}
    await world.request("PATCH", path, cordon, content_type=APPLY, fieldManager="m", force="true")
    await world.request("GET", path)
    for name in ("p", "q", "r"):
        await world.request("POST", PODS, pod(name))
    binding = {"metadata": {"name": "p"}, "target": {"name": "n1"}}
    await world.request("POST", f"{PODS}/p/binding", binding)
    await world.request("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    await world.request("DELETE", f"{PODS}/q")
    await world.request("DELETE", PODS, labelSelector="!none", fieldSelector="metadata.name=r")
    await world.request("PATCH", path, label, content_type=MERGE, dryRun="All")
    await world.request("DELETE", path, user="bob")
    return tuple(world.server.journal.revisions)


def test_the_log_gives_the_writes_of_the_journal(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    with AuditLog(file) as log:
        journal = run_world(_write, audit_log=log)
    converter = AuditLogConverter("audit.log")
    logged = (*converter.feed(file.read_bytes()), *converter.flush())
    assert len(journal) == 12
    assert [_of(each) for each in logged] == [_of(each) for each in journal]


def test_what_no_promise_is_about_is_not_logged(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"

    async def main(world: ApiServerWorld) -> None:
        await world.config("a")

    with AuditLog(file) as log:
        run_world(main, audit_log=log)
    assert file.read_bytes() == b""


def _of(each: Revision) -> tuple[object, ...]:
    return each.kind, each.name, each.verb, each.code, each.user, each.manager, set(each.changed)
