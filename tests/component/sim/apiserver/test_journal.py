"""The journal: who wrote what with which outcome, in memory or in a file."""

from pathlib import Path

from sluice.contracts.journal import Revision, Verb
from sluice.sim.apiserver.journal import Journal
from tests.component.sim.apiserver.town import APPLY, CONFIG, MERGE, NODES, Town, play


def test_every_write_is_there_with_its_writer_and_what_it_changed() -> None:
    async def main(town: Town) -> list[Revision]:
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

    found = play(main)
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
    revisions = [each.revision for each in found]
    assert [each - revisions[0] for each in revisions] == [0, 1, 1, 2, 2, 3]


def test_a_journal_that_spills_is_read_whole_and_in_order(tmp_path: Path) -> None:
    with Journal(spill=tmp_path / "journal", keeps=10) as journal:

        async def main(town: Town) -> None:
            for number in range(25):
                await town.config(f"c{number:02d}")
                if number == 13:
                    assert len(list(journal.revisions)) == 14
            await town.ask("DELETE", f"{CONFIG}/c00")

        play(main, journal=journal)
        names = [each.name for each in journal.revisions]
        assert names == [*(f"c{number:02d}" for number in range(25)), "c00"]
        assert len(journal) == 26
    assert len((tmp_path / "journal").read_bytes().splitlines()) == 20


def test_the_same_seed_writes_the_same_journal() -> None:
    async def main(town: Town) -> list[Revision]:
        for _ in range(5):
            await town.ask("POST", CONFIG, {"metadata": {"generateName": "a-"}})
        return list(town.server.journal.revisions)

    assert play(main, seed=3) == play(main, seed=3)
    assert play(main, seed=3) != play(main, seed=4)
