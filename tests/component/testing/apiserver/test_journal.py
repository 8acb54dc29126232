"""The journal: who wrote what with which outcome, in memory or in a file."""

from pathlib import Path

import pytest

from libs.contracts.journal import Revision, Verb
from libs.testing.apiserver.journal import RevisionJournal
from tests.component.testing.apiserver.world import (
    APPLY,
    CONFIG,
    MERGE,
    NODES,
    PODS,
    ApiServerWorld,
    JsonObject,
    run_world,
)


def test_every_write_is_there_with_its_writer_and_what_it_changed() -> None:
    async def main(town: ApiServerWorld) -> list[Revision]:
        node = await town.node("n1")
        label = {"metadata": {"labels": {"a/b": "c"}}}
        await town.ask("PATCH", f"{NODES}/n1", label, content_type=MERGE, user="ann")
        await town.ask("PUT", f"{NODES}/n1", {"metadata": {"name": "n1", "resourceVersion": "1"}})
        wanted = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        wanted["spec"] = {"unschedulable": True}  # type: ignore[assignment]
        await town.ask("PATCH", f"{NODES}/n1", wanted, content_type=APPLY, fieldManager="m")
        await town.ask("GET", f"{NODES}/nope")
        await town.ask("DELETE", f"{NODES}/nope")
        await town.ask("DELETE", f"{NODES}/n1", user="bob")
        found = list(town.server.journal.revisions)
        assert {each.uid for each in found if each.code < 400} == {node["metadata"]["uid"]}
        return found

    found = run_world(main)
    assert [(each.verb, each.code, each.user, each.manager) for each in found] == [
        (Verb.CREATE, 201, "admin", "admin"),
        (Verb.PATCH, 200, "ann", "ann"),
        (Verb.UPDATE, 409, "admin", "admin"),
        (Verb.APPLY, 200, "admin", "m"),
        (Verb.DELETE, 404, "admin", "admin"),
        (Verb.DELETE, 200, "bob", "bob"),
    ]
    assert found[1].changed == {'metadata.labels["a/b"]': (None, "c")}
    assert found[2].changed == {}
    assert found[3].changed == {"spec.unschedulable": (None, True)}
    assert found[5].changed["metadata.name"] == ("n1", None)
    first = found[0].revision
    assert [each.revision for each in found] == [first, first + 1, 0, first + 2, 0, 0]


def test_a_record_is_of_the_revision_that_the_answer_shows() -> None:
    async def main(town: ApiServerWorld) -> list[tuple[JsonObject, Revision]]:
        path, answers = f"{CONFIG}/a", list[JsonObject]()

        async def ask(method: str, at: str, body: JsonObject | None = None, **more: str) -> None:
            answers.append((await town.ask(method, at, body, **more))[1])

        data = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
        metadata = {"name": "a", "finalizers": ["x.dev/held"]}
        await ask("POST", CONFIG, {"metadata": metadata})
        for _ in range(2):
            await ask("PATCH", path, data, content_type=APPLY, fieldManager="m")
        await ask("PATCH", path, data, content_type=MERGE)
        await ask("DELETE", path)
        await ask("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
        return list(zip(answers, town.server.journal.revisions, strict=True))

    found = run_world(main)
    shown = [int(answer["metadata"]["resourceVersion"]) for answer, _ in found]
    records = [record for _, record in found]
    assert [each.revision for each in records] == shown
    made, applied, again, merged, marked, released = records
    assert applied.changed == {"data.k": (None, "v")}
    assert (again.changed, merged.changed) == ({}, {})
    assert applied.revision == again.revision == merged.revision == made.revision + 1
    assert set(marked.changed) == {
        "metadata.deletionTimestamp",
        "metadata.deletionGracePeriodSeconds",
    }
    # Its end does not show in the answer.
    assert released.changed == {"metadata.finalizers": (["x.dev/held"], None)}
    assert released.revision == marked.revision


def test_what_shows_no_object_is_of_no_revision() -> None:
    async def main(town: ApiServerWorld) -> list[Revision]:
        await town.node("n1")
        spec = {"containers": [{"name": "c", "image": "x"}]}
        _, pod = await town.ask("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
        before = len(town.server.journal)
        named = {"metadata": {"name": "p"}}
        await town.ask("POST", f"{PODS}/p/binding", {**named, "target": {"name": "n1"}})
        await town.ask("POST", f"{PODS}/p/binding", {**named, "target": {"name": "n1"}})
        await town.ask("POST", f"{PODS}/p/eviction", named)
        await town.ask("POST", PODS, {**named, "spec": spec})
        stale = {"metadata": {"uid": "other", "resourceVersion": "1"}}
        await town.ask("PATCH", f"{PODS}/p", stale, content_type=MERGE)
        await town.ask("PATCH", f"{PODS}/p", b"no object".hex(), content_type=MERGE)
        await town.config("a")
        await town.ask("DELETE", CONFIG)
        found = list(town.server.journal.revisions)[before:]
        assert {each.uid for each in found[:4]} == {pod["metadata"]["uid"]}
        return found

    found = run_world(main)
    assert [(each.kind, each.verb, each.code, each.name, each.revision > 0) for each in found] == [
        ("Binding", Verb.CREATE, 201, "p", False),
        ("Binding", Verb.CREATE, 409, "p", False),
        ("Pod", Verb.EVICT, 201, "p", False),
        ("Pod", Verb.CREATE, 409, "p", False),
        ("Pod", Verb.PATCH, 409, "p", False),
        ("Pod", Verb.PATCH, 400, "p", False),
        ("ConfigMap", Verb.CREATE, 201, "a", True),
        ("ConfigMap", Verb.DELETE, 200, "a", False),
    ]
    bound, _, evicted, *_, deleted = found
    assert bound.changed["spec.nodeName"] == (None, "n1")
    assert "metadata.deletionTimestamp" in evicted.changed
    assert "status.conditions[type=DisruptionTarget].status" in evicted.changed
    assert found[4].uid == "other"
    assert deleted.changed["metadata.name"] == ("a", None)


@pytest.mark.parametrize("spills", [True, False])
def test_a_journal_that_puts_records_away_is_read_whole_and_in_order(
    tmp_path: Path, spills: bool
) -> None:
    path = tmp_path / "journal"
    with RevisionJournal(spill=path if spills else None, keeps=10) as journal:

        async def main(town: ApiServerWorld) -> None:
            for number in range(25):
                await town.config(f"c{number:02d}")
                if number == 13:
                    assert len(list(journal.revisions)) == 14
            await town.ask("DELETE", f"{CONFIG}/c00")

        run_world(main, journal=journal)
        names = [each.name for each in journal.revisions]
        assert names == [*(f"c{number:02d}" for number in range(25)), "c00"]
        assert len(journal) == 26
    assert not spills or len(path.read_bytes().splitlines()) == 20


@pytest.mark.parametrize("spills", [True, False])
def test_whoever_reads_a_journal_is_not_disturbed_by_those_who_write(
    tmp_path: Path, spills: bool
) -> None:
    with RevisionJournal(spill=tmp_path / "journal" if spills else None, keeps=3) as journal:

        async def main(town: ApiServerWorld) -> list[str]:
            for number in range(8):
                await town.config(f"c{number}")
            read = list[str]()
            for each in journal.revisions:
                read.append(each.name)
                await town.config(f"later-{len(read)}")
            return read

        assert run_world(main, journal=journal) == [f"c{number}" for number in range(8)]
        assert len(list(journal.revisions)) == len(journal) == 16


def test_the_same_seed_writes_the_same_journal() -> None:
    async def main(town: ApiServerWorld) -> list[Revision]:
        for _ in range(5):
            await town.ask("POST", CONFIG, {"metadata": {"generateName": "a-"}})
        return list(town.server.journal.revisions)

    assert run_world(main, seed=3) == run_world(main, seed=3)
    assert run_world(main, seed=3) != run_world(main, seed=4)
