"""Pools, members and limits as policies in the journal say them, when nobody hands them over."""

from typing import Any

from libs.audit import judge
from libs.contracts.journal import Verb
from tests.unit.audit.builders import POOL, Change, JournalBuilder, violations_of

FLEET = tuple(f"n{number}" for number in range(4))


def policy(**upgrade: Any) -> Change:
    def change(whole: dict[str, Any]) -> None:
        whole["spec"] = {"driver": {"upgradePolicy": {"autoUpgrade": True, **upgrade}}}

    return change


def driver(rack: str, **upgrade: Any) -> Change:
    def change(whole: dict[str, Any]) -> None:
        whole["spec"] = {
            "driverType": "gpu",
            "repository": "nvcr.io/nvidia",
            "image": "driver",
            "version": "580.1",
            "nodeSelector": {"rack": rack},
            "upgradePolicy": upgrade,
        }

    return change


def asks_for_drivers(story: JournalBuilder) -> None:
    def change(whole: dict[str, Any]) -> None:
        whole["spec"] = {"driver": {"useNvidiaDriverCRD": True}}

    write(story, "ClusterPolicy", "main", change)


def write(story: JournalBuilder, kind: str, name: str, change: Change | None) -> None:
    known = (kind, name) in story.objects
    verb = Verb.DELETE if change is None else Verb.UPDATE if known else Verb.CREATE
    story.write(kind, name, change, manager="kubectl", verb=verb)


def of_i1(story: JournalBuilder) -> list[int]:
    journal = story.journal(pools=())
    return [revision for invariant, _, revision in violations_of(journal) if invariant == "I1"]


def strategy(story: JournalBuilder, threshold: int, pool: str = POOL) -> None:
    def change(whole: dict[str, Any]) -> None:
        whole["spec"] = {"pool": pool, "failureThreshold": threshold}

    write(story, "RolloutStrategy", "calm", change)


def test_one_policy_has_every_gpu_node() -> None:
    story = JournalBuilder()
    write(story, "ClusterPolicy", "main", policy(maxUnavailable="50%"))
    strategy(story, 100)
    for name in FLEET:
        story.node(name)
    story.node("cpu", labels={"nvidia.com/gpu.present": ""})
    leases = [story.take_lease(name).revision for name in FLEET]
    assert of_i1(story) == leases[2:]
    assert judge(story.journal(pools=())).not_judged == {}


def test_a_person_edits_the_limit() -> None:
    story = JournalBuilder(*FLEET)
    write(story, "ClusterPolicy", "main", policy(maxUnavailable=1))
    strategy(story, 100)
    story.take_lease("n0")
    write(story, "ClusterPolicy", "main", policy(maxUnavailable=2))
    story.take_lease("n1")
    over = story.take_lease("n2")
    story.advance(1)
    write(story, "ClusterPolicy", "main", policy(maxUnavailable=3))
    assert of_i1(story) == [over.revision]


def test_a_policy_that_sets_no_limit_has_the_default() -> None:
    story = JournalBuilder(*FLEET)
    write(story, "ClusterPolicy", "main", policy())
    strategy(story, 100)
    leases = [story.take_lease(name).revision for name in FLEET]
    assert of_i1(story) == leases[1:]


def test_the_threshold_of_a_strategy_bounds_harm() -> None:
    story = JournalBuilder(*FLEET)
    write(story, "ClusterPolicy", "main", policy(maxUnavailable=4))
    strategy(story, 2)
    leases = [story.take_lease(name).revision for name in FLEET]
    assert violations_of(story.journal(pools=())) == [
        ("I8", "n2", leases[2]),
        ("I8", "n3", leases[3]),
    ]


def test_drivers_have_the_nodes_that_they_select() -> None:
    story = JournalBuilder()
    for name, rack in zip(FLEET, ("a", "a", "b", "b"), strict=True):
        story.node(name, labels={"rack": rack})
    asks_for_drivers(story)
    write(story, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    write(story, "NVIDIADriver", "b", driver("b", maxUnavailable=1))
    story.cordon("n2")
    story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == []
    story.label("n2", "rack", "a")
    over = story.take_lease("n1", pool="nvidiadriver-a")
    assert of_i1(story) == [over.revision]


def test_a_node_that_leaves_its_pool_counts_no_more_and_one_that_comes_does() -> None:
    story = JournalBuilder()
    for name in FLEET:
        story.node(name, labels={"rack": "a"})
    asks_for_drivers(story)
    write(story, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    story.cordon("n2")
    story.label("n2", "rack", "b")
    story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == []
    story.release_unchanged("n0")
    story.node("n9", labels={"rack": "a"})
    story.cordon("n9")
    over = story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == [over.revision]


def test_a_node_counts_where_its_lease_began_and_at_rest_where_it_is_selected() -> None:
    story = JournalBuilder()
    for name, rack in zip(FLEET, ("a", "a", "b", "b"), strict=True):
        story.node(name, labels={"rack": rack})
    asks_for_drivers(story)
    write(story, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    write(story, "NVIDIADriver", "b", driver("b", maxUnavailable=1))
    story.take_lease("n0", pool="nvidiadriver-a")
    story.label("n0", "rack", "b")
    over = story.take_lease("n1", pool="nvidiadriver-a")
    assert of_i1(story) == [over.revision]
    story.release_unchanged("n1")
    story.release_unchanged("n0")
    story.cordon("n0")
    story.take_lease("n1", pool="nvidiadriver-a")
    assert of_i1(story) == [over.revision]
    there = story.take_lease("n2", pool="nvidiadriver-b")
    assert of_i1(story) == [over.revision, there.revision]


def test_while_drivers_contradict_each_other_nobody_changes_hands() -> None:
    story = JournalBuilder()
    for name in FLEET:
        story.node(name, labels={"rack": "a", "nvidia.com/gpu-operator.driver.owner": "a"})
    asks_for_drivers(story)
    write(story, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    write(story, "NVIDIADriver", "b", driver("a", maxUnavailable=1))
    story.cordon("n1")
    over = story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == [over.revision]
    write(story, "NVIDIADriver", "b", None)
    story.cordon("n1", False)
    story.release_unchanged("n0")
    story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == [over.revision]


def test_what_stood_there_at_the_start_holds() -> None:
    story = JournalBuilder()
    write(story, "ClusterPolicy", "main", policy(maxUnavailable=1))
    strategy(story, 100)
    for name in FLEET:
        story.node(name)
    story.cordon("n3")
    start = [{"kind": kind, **whole} for (kind, _), whole in story.objects.items()]
    begun = len(story.revisions)
    over = story.take_lease("n0")
    journal = story.journal(pools=(), revisions=tuple(story.revisions[begun:]), start=tuple(start))
    assert violations_of(journal) == [("I1", "n0", over.revision)]
    assert judge(journal).not_judged == {}


def test_an_annotation_selects_nothing() -> None:
    story = JournalBuilder()
    for name, rack in zip(FLEET, ("a", "a", "b", "b"), strict=True):
        story.node(name, labels={"rack": rack})
    asks_for_drivers(story)
    write(story, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    story.cordon("n2")
    story.annotate("n2", "rack", "a")
    story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == []


def contradicted(*, row: str | None) -> JournalBuilder:
    """Two drivers, of which the second selects by another label; n3 may have both."""

    def other(whole: dict[str, Any]) -> None:
        driver("a")(whole)
        whole["spec"]["nodeSelector"] = {"row": "b"}

    story = JournalBuilder()
    for name in FLEET:
        story.node(name, labels={"rack": "a"})
    if row:
        story.label("n3", "row", row)
    asks_for_drivers(story)
    write(story, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    write(story, "NVIDIADriver", "b", other)
    return story


def test_who_ends_a_contradiction_by_a_label_gives_all_nodes_back_to_their_pool() -> None:
    story = contradicted(row="b")
    story.cordon("n1")
    story.label("n3", "row", None)
    over = story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == [over.revision]


def test_and_who_begins_one_takes_them_away() -> None:
    story = contradicted(row=None)
    story.label("n3", "row", "b")
    story.cordon("n1")
    story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == []


def test_so_does_who_ends_it_by_going() -> None:
    story = contradicted(row="b")
    story.delete("Node", "n3")
    story.cordon("n1")
    over = story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == [over.revision]


def test_a_machine_that_comes_again_under_its_name_has_the_labels_that_it_brings() -> None:
    story = contradicted(row="b")
    story.delete("Node", "n3")
    story.node("n3", uid="uid-again", labels={"rack": "a"})
    story.cordon("n3")
    over = story.take_lease("n0", pool="nvidiadriver-a")
    assert of_i1(story) == [over.revision]
