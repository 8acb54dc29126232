"""What is written about the GPUs of a Node: Devices, the condition, Events."""

from typing import Any

import msgspec
import pytest

from libs.contracts.device import DeviceHealth
from libs.contracts.facts import Facts
from libs.contracts.gpus import GpuProblem
from libs.contracts.health import HealthFinding, HealthRule, HealthState
from libs.policy.crds import CEL_RULES, crd_schema
from libs.policy.kinds.device import DEVICE
from libs.testing.apiserver.kinds.schema import structural_schema
from services.discovery.cluster.decide import ABSENCE_CONFIRMED
from services.discovery.cluster.device_decide import (
    FIRST_VERDICT,
    NO_VERDICT_AFTER,
    ApplyDevice,
    ChangeHealth,
    DeleteDevice,
    DeviceDecision,
    SetCondition,
)
from services.discovery.cluster.device_health import GpuEvent
from services.discovery.cluster.devices import device_name
from tests.unit.discovery.cluster.builders import NIC
from tests.unit.discovery.cluster.gpu_builders import (
    MIG,
    NOW,
    UUIDS,
    XID,
    Site,
    facts,
    gpu,
    health,
    judged,
    node,
)

TWO = facts(gpu(0), gpu(1))
HEALTHY = health(judged(0), judged(1))
SECOND = f"GPU 1 ({UUIDS[1]}, 0000:01:00.0)"
SECOND_FAILED = health(judged(0), judged(1, XID))


def site(*reports: Any) -> Site:
    """Return a Node with two GPUs that are judged healthy."""
    new = Site(node())
    new.settle(*(reports or (TWO, HEALTHY)))
    return new


def silence(found: DeviceDecision) -> tuple[str, str] | None:
    """Return type and reason of the Event about the agent's silence."""
    assert found.condition is not None
    event = found.condition.event
    return None if event is None else (event.type, event.reason)


def condition(found: DeviceDecision) -> tuple[str, str, str]:
    assert found.condition is not None
    changed = found.condition.condition
    assert changed is not None
    return changed.status, changed.reason, changed.message


def events(found: DeviceDecision) -> list[GpuEvent]:
    writes = [write for write in found.writes if not isinstance(write, DeleteDevice)]
    return [write.event for write in writes if write.event is not None]


def test_a_device_shows_what_people_look_for() -> None:
    described = gpu(
        1,
        migs=(MIG,),
        mig_mode=True,
        mig_pending=False,
        nvlinks_down=(3,),
        fabric="11111111-2222-3333-4444-555555555555.7",
    )
    new = Site(node())
    decision = new.settle(facts(described), health(judged(1, XID)))
    assert len(decision.writes) == 1
    manifest = new.stored["gpu-1-node-a"]
    assert manifest["metadata"]["labels"] == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.uuid": UUIDS[1],
    }
    assert manifest["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "u"}
    ]
    assert manifest["spec"] == {
        "node": "a",
        "index": 1,
        "product": "NVIDIA-H100-80GB-HBM3",
        "memory": 81559,
    }
    assert manifest["status"] == {
        "uuid": UUIDS[1],
        "pci": "0000:01:00.0",
        "serial": "1650221",
        "driver": "580.95.05",
        "computeCapability": "9.0",
        "health": {
            "state": "failed",
            "reason": "Xid79",
            "message": "the GPU fell off the bus (XID 79)",
            "remedy": "reboot the node",
            "since": "2027-01-15T07:59:00Z",
        },
        "mig": {
            "capable": True,
            "mode": "Enabled",
            "pending": "Disabled",
            "devices": [{"uuid": "MIG-1", "profile": "1g.10gb", "gpuInstance": 7, "memory": 9984}],
        },
        "nvlink": {"links": 18, "down": [3]},
        "fabric": {"clique": "11111111-2222-3333-4444-555555555555.7"},
    }
    schema = structural_schema(crd_schema(DEVICE), rules=CEL_RULES)
    assert schema.prune(manifest) == manifest


def test_a_gpu_fails_and_returns_with_one_device_one_condition_and_one_event() -> None:
    story = site()
    assert story.node.gpu_health is not None
    assert (story.node.gpu_health.status, story.node.gpu_health.message) == (
        "True",
        "all 2 GPUs are healthy",
    )
    failed = story.settle(TWO, SECOND_FAILED)
    assert [type(write) for write in failed.writes] == [ApplyDevice]
    assert condition(failed) == (
        "False",
        "GPUFailed",
        f"{SECOND} is failed: the GPU fell off the bus (XID 79) (reboot the node)",
    )
    assert [(event.type, event.reason, event.message) for event in events(failed)] == [
        ("Warning", "GPUFailed", condition(failed)[2])
    ]
    healed = story.settle(TWO, HEALTHY, now=NOW + 100)
    assert len(healed.writes) == 1
    assert condition(healed) == ("True", "GPUsHealthy", "all 2 GPUs are healthy")
    assert [(event.type, event.message) for event in events(healed)] == [
        (
            "Normal",
            f"{SECOND} is ok again; it was failed since 2027-01-15T07:59:00Z (Xid79)",
        )
    ]


def test_a_degraded_gpu_can_be_used_so_the_condition_stays_true() -> None:
    slow = HealthFinding(rule=HealthRule.THERMAL, state=HealthState.DEGRADED, message="hot")
    story = site()
    began = story.node.gpu_health
    decision = story.settle(TWO, health(judged(0), judged(1, slow)), now=NOW + 9)
    assert condition(decision)[:2] == ("True", "GPUDegraded")
    assert [event.reason for event in events(decision)] == ["GPUDegraded"]
    assert began is not None
    assert story.node.gpu_health is not None
    assert story.node.gpu_health.last_transition_time == began.last_transition_time


def test_a_state_keeps_its_beginning_while_its_cause_changes() -> None:
    story = site(TWO, SECOND_FAILED)
    worse = HealthFinding(
        rule=HealthRule.UNUSABLE, state=HealthState.FAILED, message="lost", since=NOW
    )
    decision = story.settle(TWO, health(judged(0), judged(1, worse)), now=NOW + 5)
    assert events(decision) == []
    changed = story.stored["gpu-1-node-a"]["status"]["health"]
    assert (changed["reason"], changed["since"]) == ("Unusable", "2027-01-15T07:59:00Z")


# What is missing.


def test_what_is_not_reported_stays() -> None:
    story = site(TWO, SECOND_FAILED)
    for reports in ((None, None), (TWO, None), (None, SECOND_FAILED), (Facts(pci=None), None)):
        assert story.decide(*reports, driver=None, absent=ABSENCE_CONFIRMED).is_empty


def test_a_health_changes_while_the_description_is_not_known() -> None:
    story = site()
    decision = story.settle(None, SECOND_FAILED, driver=None)
    assert [type(write) for write in decision.writes] == [ChangeHealth]
    assert condition(decision)[0] == "False"
    assert story.stored["gpu-1-node-a"]["status"]["serial"] == "1650221"


@pytest.mark.parametrize(
    "broken",
    [
        gpu(1, name="", memory_mib=0, serial="", problem=GpuProblem.LOST),
        gpu(1, uuid="", name="", memory_mib=0, hung=True),
    ],
    ids=["lost", "hung"],
)
def test_a_hung_or_lost_gpu_keeps_its_description(broken: Any) -> None:
    story = site()
    reported = health(judged(0), judged(1, XID, uuid=broken.uuid))
    decision = story.settle(facts(gpu(0), broken), reported, absent=ABSENCE_CONFIRMED)
    assert [type(write) for write in decision.writes] == [ChangeHealth]
    assert story.stored["gpu-1-node-a"]["spec"]["memory"] == 81559


def test_a_gpu_that_was_never_described_has_a_device_all_the_same() -> None:
    broken = gpu(1, uuid="", name="", pci="", memory_mib=0, serial="", hung=True)
    story = Site(node())
    story.settle(facts(broken), health(judged(1, XID, uuid="")))
    assert story.stored["gpu-1-node-a"]["spec"] == {"node": "a", "index": 1, "product": "unknown"}


def test_a_device_is_deleted_only_when_its_absence_is_confirmed() -> None:
    story = site()
    waiting = story.decide(facts(gpu(0)), health(judged(0)), absent=ABSENCE_CONFIRMED - 30)
    assert (waiting.is_empty, waiting.again_in) == (True, 30.0)
    decision = story.settle(facts(gpu(0)), health(judged(0)), absent=ABSENCE_CONFIRMED)
    assert decision.writes == (DeleteDevice("gpu-1-node-a", "uid of gpu-1-node-a"),)
    assert condition(decision) == ("True", "GPUsHealthy", "the GPU is healthy")


def test_a_machine_without_gpus_loses_its_devices_and_the_condition() -> None:
    story = site()
    decision = story.settle(Facts(pci=(NIC,)), absent=ABSENCE_CONFIRMED)
    assert len(decision.writes) == 2
    assert decision.condition == SetCondition(None)
    assert story.stored == {}


def test_a_verdict_that_is_missing_for_long_is_unknown() -> None:
    story = site()
    waiting = story.decide(TWO, None, absent=NO_VERDICT_AFTER - 60)
    assert (waiting.is_empty, waiting.again_in) == (True, 60.0)
    decision = story.settle(TWO, None, absent=NO_VERDICT_AFTER)
    assert condition(decision)[:2] == ("Unknown", "NoVerdict")
    assert [event.reason for event in events(decision)] == ["GPUHealthUnknown"] * 2
    back = story.settle(TWO, SECOND_FAILED)
    assert condition(back)[0] == "False"
    assert [event.reason for event in events(back)] == ["GPUHealthy", "GPUFailed"]


def test_while_the_agent_is_silent_nothing_is_known_and_one_event_says_so() -> None:
    story = site()
    decision = story.settle(TWO, HEALTHY, is_silent=True)
    text = "the telemetry agent has stopped sending heartbeats"
    assert condition(decision)[:2] == ("Unknown", "AgentSilent")
    assert condition(decision)[2].startswith(f"2 of 2 GPUs: {text} (")
    assert len(decision.writes) == 2
    assert events(decision) == []
    assert silence(decision) == ("Warning", "GPUHealthUnknown")
    for index in range(2):
        found = story.stored[f"gpu-{index}-node-a"]["status"]["health"]
        assert (found["state"], found["reason"], found["message"]) == (
            "unknown",
            "AgentSilent",
            text,
        )
    back = story.settle(TWO, HEALTHY)
    assert condition(back)[0] == "True"
    assert events(back) == []
    assert silence(back) == ("Normal", "GPUHealthy")


def test_silence_heals_no_gpu_and_hides_no_failure_after_it() -> None:
    story = site(TWO, SECOND_FAILED)
    decision = story.settle(TWO, SECOND_FAILED, is_silent=True)
    assert condition(decision)[:2] == ("False", "GPUFailed")
    assert condition(decision)[2].startswith(f"{SECOND} is failed")
    assert silence(decision) is None
    story.settle(TWO, None, is_silent=True)
    assert story.stored["gpu-1-node-a"]["status"]["health"]["state"] == "failed"

    healthy = site()
    healthy.settle(TWO, HEALTHY, is_silent=True)
    back = healthy.settle(TWO, SECOND_FAILED)
    assert [event.reason for event in events(back)] == ["GPUFailed"]
    assert silence(back) is None


def test_a_new_leader_neither_forgets_nor_invents_a_silence() -> None:
    story = site()
    assert story.decide(TWO, HEALTHY, is_silent=None).is_empty
    story.settle(TWO, HEALTHY, is_silent=True)
    assert story.decide(TWO, HEALTHY, is_silent=None).is_empty
    assert story.decide(TWO, None, is_silent=None).is_empty


def test_a_node_that_was_never_judged_is_no_silent_one() -> None:
    story = Site(node())
    story.settle(TWO, None, absent=FIRST_VERDICT)
    assert story.decide(TWO, None, absent=NO_VERDICT_AFTER, is_silent=True).is_empty


def test_a_failed_gpu_counts_before_the_others_are_judged() -> None:
    story = Site(node())
    decision = story.settle(TWO, health(judged(1, XID)), absent=FIRST_VERDICT)
    assert condition(decision)[0] == "False"
    assert len(events(decision)) == 1


def test_a_new_device_waits_a_moment_for_its_first_verdict() -> None:
    story = Site(node())
    waiting = story.decide(TWO, None, absent=4.0)
    assert (waiting.is_empty, waiting.again_in) == (True, FIRST_VERDICT - 4.0)
    decision = story.settle(TWO, None, absent=FIRST_VERDICT)
    assert (len(decision.writes), decision.condition) == (2, None)
    assert story.stored["gpu-0-node-a"]["status"]["health"] == {"state": "unknown"}
    assert story.settle(TWO, None, absent=NO_VERDICT_AFTER).is_empty
    assert events(story.settle(TWO, HEALTHY)) == []


# Identity.


def test_another_gpu_at_an_index_begins_anew() -> None:
    story = site(TWO, SECOND_FAILED)
    other = gpu(1, uuid="GPU-new", serial="7")
    decision = story.settle(facts(gpu(0), other), health(judged(0), judged(1, uuid="GPU-new")))
    assert [type(write) for write in decision.writes] == [ApplyDevice]
    assert events(decision) == []
    assert condition(decision)[0] == "True"
    assert story.stored["gpu-1-node-a"]["metadata"]["labels"]["nvidia.com/gpu.uuid"] == "GPU-new"


def test_devices_of_an_earlier_node_of_that_name_are_taken_over_without_their_health() -> None:
    story = site(TWO, SECOND_FAILED)
    story.node = node(uid="v")
    decision = story.settle(TWO, HEALTHY)
    assert len(decision.writes) == 2
    assert events(decision) == []


def test_a_foreign_device_is_left_alone_and_an_edited_one_is_restored() -> None:
    story = site()
    foreign = msgspec.json.decode(msgspec.json.encode(story.stored["gpu-1-node-a"]))
    foreign["metadata"]["name"] = "mine"
    story.stored["mine"] = foreign
    assert story.decide(facts(gpu(0)), HEALTHY, absent=ABSENCE_CONFIRMED).writes == (
        DeleteDevice("gpu-1-node-a", "uid of gpu-1-node-a"),
    )
    story.stored["gpu-0-node-a"]["spec"]["memory"] = 1
    assert len(story.settle(TWO, HEALTHY).writes) == 1
    assert story.stored["gpu-0-node-a"]["spec"]["memory"] == 81559


def test_names_of_long_nodes_are_cut_and_stay_unique() -> None:
    longest = "n" * 241
    assert device_name(longest, 0) == f"gpu-0-node-{longest}"
    names = {device_name("n" * 250 + last, 31) for last in ("aaa", "aab", ".bb")}
    assert {len(name) for name in names} == {253}
    assert len(names) == 3
    cut = device_name("n" * 229 + "." + "n" * 23, 0)
    assert ".-" not in cut
    assert len(cut) <= 253


def test_a_cached_device_keeps_no_description() -> None:
    story = site(TWO, SECOND_FAILED)
    (_, cached) = story.present
    assert cached.metadata.labels == {}
    assert (cached.spec.node, cached.status.serial) == ("", "")
    assert cached.health == DeviceHealth(
        state="failed",
        reason="Xid79",
        message=XID.message,
        remedy=XID.remedy,
        since="2027-01-15T07:59:00Z",
    )
