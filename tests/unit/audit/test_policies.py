"""Pools, members and limits from the policies in the journal, without given facts."""

from typing import Any

from libs.audit import judge
from libs.contracts.journal import Verb
from tests.unit.audit.builders import POOL, JournalBuilder, cases, revisions_of, violations_of

A = "pool=nvidiadriver-a"
B = "pool=nvidiadriver-b"
BOTH = "driver a rack a; driver b rack b;"


class PolicyJournalBuilder(JournalBuilder):
    """Steps that write policies and strategies as a person."""

    def set_spec(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        verb = Verb.UPDATE if (kind, name) in self.objects else Verb.CREATE
        self.write(kind, name, lambda manifest: manifest.update(spec=spec), verb=verb)

    def policy(self, **upgrade: Any) -> None:
        settings = {"upgradePolicy": {"autoUpgrade": True, **upgrade}}
        self.set_spec("ClusterPolicy", "main", {"driver": settings})

    def strategy(self, threshold: int) -> None:
        spec = {"pool": POOL, "failureThreshold": threshold}
        self.set_spec("RolloutStrategy", "calm", spec)

    def driver(self, name: str, key: str, value: str) -> None:
        """Write a driver that allows one unavailable node among those of the label."""
        self.set_spec("ClusterPolicy", "main", {"driver": {"useNvidiaDriverCRD": True}})
        spec = {
            "driverType": "gpu",
            "repository": "nvcr.io/nvidia",
            "image": "driver",
            "version": "580.1",
            "nodeSelector": {key: value},
            "upgradePolicy": {"maxUnavailable": 1},
        }
        self.set_spec("NVIDIADriver", name, spec)

    def racks(self, racks: str) -> None:
        """Register a node for each letter, in the rack of that name."""
        for number, rack in enumerate(racks):
            self.node(f"n{number}", labels={"rack": rack})


@cases(
    "story",
    a_cluster_policy_covers_every_gpu_node=(
        "policy maxUnavailable=50%; strategy 100; racks aaaa; node cpu labels=$cpu; lease n0;"
        "lease n1; !lease n2; !lease n3"
    ),
    an_edited_limit_holds=(
        "racks aaaa; policy maxUnavailable=1; strategy 100; lease n0; policy maxUnavailable=2;"
        "lease n1; !lease n2; advance 1; policy maxUnavailable=3"
    ),
    a_policy_without_a_limit_has_the_default=(
        "racks aaaa; policy; strategy 100; lease n0; !lease n1; !lease n2"
    ),
    a_policy_at_the_start_holds=(
        "policy maxUnavailable=1; strategy 100; racks aaaa; cordon n3; begin; !lease n0"
    ),
    a_driver_covers_the_nodes_that_it_selects=(
        f"racks aabb; {BOTH} cordon n2; lease n0 {A}; label n2 rack a; !lease n1 {A}"
    ),
    a_node_that_moves_away_counts_no_more=(
        f"racks aaaa; driver a rack a; cordon n2; label n2 rack b; lease n0 {A}"
    ),
    a_node_that_joins_counts=(
        f"racks aaa; driver a rack a; node n9 labels=$a; cordon n9; !lease n0 {A}"
    ),
    a_leased_node_counts_in_the_pool_of_its_record=(
        f"racks aabb; {BOTH} lease n0 {A}; label n0 rack b; !lease n1 {A}; release n1; release n0;"
        f"cordon n0; lease n1 {A}; !lease n2 {B}"
    ),
    conflicting_drivers_move_no_node=(
        "racks aaaa; driver a rack a; label n0 nvidia.com/gpu-operator.driver.owner a;"
        "label n1 nvidia.com/gpu-operator.driver.owner a; driver b rack a; cordon n1;"
        f"!lease n0 {A}; delete NVIDIADriver b; uncordon n1; release n0; lease n0 {A}"
    ),
    an_annotation_selects_nothing=(
        f"racks aabb; driver a rack a; cordon n2; annotate n2 rack a; lease n0 {A}"
    ),
    a_label_that_ends_a_conflict_returns_all_nodes=(
        "racks aaaa; label n3 row b; driver a rack a; driver b row b; cordon n1; label n3 row None;"
        f"!lease n0 {A}"
    ),
    a_label_that_starts_a_conflict_removes_all_nodes=(
        f"racks aaaa; driver a rack a; driver b row b; label n3 row b; cordon n1;lease n0 {A}"
    ),
    a_deleted_node_that_ends_a_conflict_returns_all_nodes=(
        "racks aaaa; label n3 row b; driver a rack a; driver b row b; delete Node n3; cordon n1;"
        f"!lease n0 {A}"
    ),
    a_recreated_node_has_its_new_labels=(
        "racks aaaa; label n3 row b; driver a rack a; driver b row b; delete Node n3;"
        f"node n3 uid=again labels=$a; cordon n3; !lease n0 {A}"
    ),
)
def test_policies_assign_nodes_to_pools_and_bound_them(story: str) -> None:
    builder = PolicyJournalBuilder()
    builder.play(story, a={"rack": "a"}, cpu={"nvidia.com/gpu.present": ""})
    journal = builder.journal(pools=())
    assert revisions_of(journal, "I1") == builder.planted
    assert judge(journal).not_judged == {}


@cases(
    "until_joined",
    a_node_that_is_not_labelled_yet="lease n0",
    a_node_that_joined="label late nvidia.com/gpu.present true; !lease n0",
)
def test_facts_without_members_leave_them_to_the_policies(until_joined: str) -> None:
    builder = PolicyJournalBuilder()
    builder.play(
        f"policy; racks aa; node late labels=$cpu; cordon late; {until_joined}; release n0;"
        "label late nvidia.com/gpu.present true; uncordon late; lease late",
        cpu={"nvidia.com/gpu.present": ""},
    )
    facts = builder.facts(members=None, max_unavailable=1)
    assert revisions_of(builder.journal(pools=(facts,)), "I1") == builder.planted


def test_the_threshold_of_a_strategy_bounds_harm() -> None:
    builder = PolicyJournalBuilder()
    builder.play("racks aaaa; policy maxUnavailable=4; strategy 2; lease n0; lease n1")
    builder.play("!lease n2; !lease n3")
    found = violations_of(builder.journal(pools=()))
    names = ("n2", "n3")
    assert found == [("I8", *found_in) for found_in in zip(names, builder.planted, strict=True)]
