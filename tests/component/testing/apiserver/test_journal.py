"""The journal: each write with its user, outcome and changes, in memory or in a file."""

from pathlib import Path

import pytest

from libs.contracts.journal import Verb
from libs.testing.apiserver.journal import RevisionJournal
from tests.builders import objects
from tests.component.testing.apiserver.world import (
    APPLY,
    CONFIG,
    MERGE,
    PODS,
    ApiServerWorld,
    JsonObject,
    in_world,
    run_world,
)


@in_world
async def test_a_record_has_the_revision_of_the_object_in_the_response(
    world: ApiServerWorld,
) -> None:
    path, objects = f"{CONFIG}/a", list[JsonObject]()

    async def write(method: str, path: str, body: JsonObject | None = None, **options: str) -> None:
        objects.append((await world.request(method, path, body, **options))[1])

    data = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
    await write("POST", CONFIG, {"metadata": {"name": "a", "finalizers": ["x.dev/held"]}})
    for _ in range(2):
        await write("PATCH", path, data, content_type=APPLY, fieldManager="m")
    await write("PATCH", path, data, content_type=MERGE)
    await write("DELETE", path)
    await write("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
    pairs = list(zip(objects, world.server.journal.revisions, strict=True))
    records = [record for _, record in pairs]
    assert [each.revision for each in records] == [
        int(shown["metadata"]["resourceVersion"]) for shown, _ in pairs
    ]
    created, applied, again, merged, deleted, released = records
    assert applied.changed == {"data.k": (None, "v")}
    assert (again.changed, merged.changed) == ({}, {})
    assert applied.revision == again.revision == merged.revision == created.revision + 1
    assert set(deleted.changed) == {
        "metadata.deletionTimestamp",
        "metadata.deletionGracePeriodSeconds",
    }
    # The response does not show that the object is gone.
    assert released.changed == {"metadata.finalizers": (["x.dev/held"], None)}
    assert released.revision == deleted.revision


@in_world
async def test_a_write_whose_response_shows_no_object_has_no_revision(
    world: ApiServerWorld,
) -> None:
    await world.node("n1")
    _, pod = await world.request("POST", PODS, objects.pod("p"))
    before = len(world.server.journal)
    named = {"metadata": {"name": "p"}}
    for _ in range(2):
        await world.request("POST", f"{PODS}/p/binding", {**named, "target": {"name": "n1"}})
    await world.request("POST", f"{PODS}/p/eviction", named)
    await world.config("a")
    await world.request("DELETE", CONFIG)
    records = list(world.server.journal.revisions)[before:]
    assert {each.uid for each in records[:3]} == {pod["metadata"]["uid"]}
    assert [(each.kind, each.verb, each.code, each.revision > 0) for each in records] == [
        ("Binding", Verb.CREATE, 201, False),
        ("Binding", Verb.CREATE, 409, False),
        ("Pod", Verb.EVICT, 201, False),
        ("ConfigMap", Verb.CREATE, 201, True),
        ("ConfigMap", Verb.DELETE, 200, False),
    ]
    assert records[0].changed["spec.nodeName"] == (None, "n1")
    assert "metadata.deletionTimestamp" in records[2].changed
    assert records[-1].changed["metadata.name"] == ("a", None)


@pytest.mark.parametrize("spills", [True, False], ids=["file", "memory"])
def test_a_packed_journal_is_read_completely_while_it_grows(tmp_path: Path, spills: bool) -> None:
    path = tmp_path / "journal"
    with RevisionJournal(spill=path if spills else None, keeps=3) as journal:

        async def main(world: ApiServerWorld) -> list[str]:
            for number in range(8):
                await world.config(f"c{number}")
            read = list[str]()
            for each in journal.revisions:
                read.append(each.name)
                await world.config(f"later-{len(read)}")
            return read

        assert run_world(main, journal=journal) == [f"c{number}" for number in range(8)]
        assert len(list(journal.revisions)) == len(journal) == 16
    assert not spills or len(path.read_bytes().splitlines()) == 15
