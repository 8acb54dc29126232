"""Pools, members and limits from the policies in the journal, without given facts."""

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


def asks_for_drivers(builder: JournalBuilder) -> None:
    def change(whole: dict[str, Any]) -> None:
        whole["spec"] = {"driver": {"useNvidiaDriverCRD": True}}

    write(builder, "ClusterPolicy", "main", change)


def write(builder: JournalBuilder, kind: str, name: str, change: Change | None) -> None:
    known = (kind, name) in builder.objects
    verb = Verb.DELETE if change is None else Verb.UPDATE if known else Verb.CREATE
    builder.write(kind, name, change, manager="kubectl", verb=verb)


def i1_violations(builder: JournalBuilder) -> list[int]:
    journal = builder.journal(pools=())
    return [revision for invariant, _, revision in violations_of(journal) if invariant == "I1"]


def strategy(builder: JournalBuilder, threshold: int, pool: str = POOL) -> None:
    def change(whole: dict[str, Any]) -> None:
        whole["spec"] = {"pool": pool, "failureThreshold": threshold}

    write(builder, "RolloutStrategy", "calm", change)


def test_a_cluster_policy_covers_every_gpu_node() -> None:
    builder = JournalBuilder()
    write(builder, "ClusterPolicy", "main", policy(maxUnavailable="50%"))
    strategy(builder, 100)
    for name in FLEET:
        builder.node(name)
    builder.node("cpu", labels={"nvidia.com/gpu.present": ""})
    leases = [builder.take_lease(name).revision for name in FLEET]
    assert i1_violations(builder) == leases[2:]
    assert judge(builder.journal(pools=())).not_judged == {}


def test_an_edited_limit_holds() -> None:
    builder = JournalBuilder(*FLEET)
    write(builder, "ClusterPolicy", "main", policy(maxUnavailable=1))
    strategy(builder, 100)
    builder.take_lease("n0")
    write(builder, "ClusterPolicy", "main", policy(maxUnavailable=2))
    builder.take_lease("n1")
    over = builder.take_lease("n2")
    builder.advance(1)
    write(builder, "ClusterPolicy", "main", policy(maxUnavailable=3))
    assert i1_violations(builder) == [over.revision]


def test_a_policy_without_a_limit_has_the_default() -> None:
    builder = JournalBuilder(*FLEET)
    write(builder, "ClusterPolicy", "main", policy())
    strategy(builder, 100)
    leases = [builder.take_lease(name).revision for name in FLEET]
    assert i1_violations(builder) == leases[1:]


def test_the_threshold_of_a_strategy_bounds_harm() -> None:
    builder = JournalBuilder(*FLEET)
    write(builder, "ClusterPolicy", "main", policy(maxUnavailable=4))
    strategy(builder, 2)
    leases = [builder.take_lease(name).revision for name in FLEET]
    assert violations_of(builder.journal(pools=())) == [
        ("I8", "n2", leases[2]),
        ("I8", "n3", leases[3]),
    ]


def test_drivers_cover_the_nodes_that_they_select() -> None:
    builder = JournalBuilder()
    for name, rack in zip(FLEET, ("a", "a", "b", "b"), strict=True):
        builder.node(name, labels={"rack": rack})
    asks_for_drivers(builder)
    write(builder, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    write(builder, "NVIDIADriver", "b", driver("b", maxUnavailable=1))
    builder.cordon("n2")
    builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == []
    builder.label("n2", "rack", "a")
    over = builder.take_lease("n1", pool="nvidiadriver-a")
    assert i1_violations(builder) == [over.revision]


def test_nodes_count_in_their_present_pool() -> None:
    builder = JournalBuilder()
    for name in FLEET:
        builder.node(name, labels={"rack": "a"})
    asks_for_drivers(builder)
    write(builder, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    builder.cordon("n2")
    builder.label("n2", "rack", "b")
    builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == []
    builder.release_unchanged("n0")
    builder.node("n9", labels={"rack": "a"})
    builder.cordon("n9")
    over = builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == [over.revision]


def test_a_leased_node_counts_in_the_pool_of_its_record() -> None:
    builder = JournalBuilder()
    for name, rack in zip(FLEET, ("a", "a", "b", "b"), strict=True):
        builder.node(name, labels={"rack": rack})
    asks_for_drivers(builder)
    write(builder, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    write(builder, "NVIDIADriver", "b", driver("b", maxUnavailable=1))
    builder.take_lease("n0", pool="nvidiadriver-a")
    builder.label("n0", "rack", "b")
    over = builder.take_lease("n1", pool="nvidiadriver-a")
    assert i1_violations(builder) == [over.revision]
    builder.release_unchanged("n1")
    builder.release_unchanged("n0")
    builder.cordon("n0")
    builder.take_lease("n1", pool="nvidiadriver-a")
    assert i1_violations(builder) == [over.revision]
    there = builder.take_lease("n2", pool="nvidiadriver-b")
    assert i1_violations(builder) == [over.revision, there.revision]


def test_conflicting_drivers_move_no_node() -> None:
    builder = JournalBuilder()
    for name in FLEET:
        builder.node(name, labels={"rack": "a", "nvidia.com/gpu-operator.driver.owner": "a"})
    asks_for_drivers(builder)
    write(builder, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    write(builder, "NVIDIADriver", "b", driver("a", maxUnavailable=1))
    builder.cordon("n1")
    over = builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == [over.revision]
    write(builder, "NVIDIADriver", "b", None)
    builder.cordon("n1", False)
    builder.release_unchanged("n0")
    builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == [over.revision]


def test_policies_at_the_start_hold() -> None:
    builder = JournalBuilder()
    write(builder, "ClusterPolicy", "main", policy(maxUnavailable=1))
    strategy(builder, 100)
    for name in FLEET:
        builder.node(name)
    builder.cordon("n3")
    start = [{"kind": kind, **whole} for (kind, _), whole in builder.objects.items()]
    begun = len(builder.revisions)
    over = builder.take_lease("n0")
    journal = builder.journal(
        pools=(), revisions=tuple(builder.revisions[begun:]), start=tuple(start)
    )
    assert violations_of(journal) == [("I1", "n0", over.revision)]
    assert judge(journal).not_judged == {}


def test_an_annotation_selects_nothing() -> None:
    builder = JournalBuilder()
    for name, rack in zip(FLEET, ("a", "a", "b", "b"), strict=True):
        builder.node(name, labels={"rack": rack})
    asks_for_drivers(builder)
    write(builder, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    builder.cordon("n2")
    builder.annotate("n2", "rack", "a")
    builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == []


def contradicted(*, row: str | None) -> JournalBuilder:
    """Two drivers that select by different labels; n3 can have both labels."""

    def other(whole: dict[str, Any]) -> None:
        driver("a")(whole)
        whole["spec"]["nodeSelector"] = {"row": "b"}

    builder = JournalBuilder()
    for name in FLEET:
        builder.node(name, labels={"rack": "a"})
    if row:
        builder.label("n3", "row", row)
    asks_for_drivers(builder)
    write(builder, "NVIDIADriver", "a", driver("a", maxUnavailable=1))
    write(builder, "NVIDIADriver", "b", other)
    return builder


def test_a_label_that_ends_a_conflict_returns_all_nodes() -> None:
    builder = contradicted(row="b")
    builder.cordon("n1")
    builder.label("n3", "row", None)
    over = builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == [over.revision]


def test_a_label_that_starts_a_conflict_removes_all_nodes() -> None:
    builder = contradicted(row=None)
    builder.label("n3", "row", "b")
    builder.cordon("n1")
    builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == []


def test_a_deleted_node_that_ends_a_conflict_returns_all_nodes() -> None:
    builder = contradicted(row="b")
    builder.delete("Node", "n3")
    builder.cordon("n1")
    over = builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == [over.revision]


def test_a_recreated_node_has_its_new_labels() -> None:
    builder = contradicted(row="b")
    builder.delete("Node", "n3")
    builder.node("n3", uid="uid-again", labels={"rack": "a"})
    builder.cordon("n3")
    over = builder.take_lease("n0", pool="nvidiadriver-a")
    assert i1_violations(builder) == [over.revision]
