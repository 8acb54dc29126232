"""The rules by which operands are deployed on a node, and paused for an upgrade."""

import pytest

from services.discovery.cluster.decide import (
    ApplyLabels,
    LabelPolicy,
    RemoveLabels,
    ReportedFacts,
    decide,
)
from services.discovery.cluster.resources import Node
from tests.builders.fleet import record
from tests.unit.discovery.cluster.builders import (
    ALL_OPERANDS,
    CONTAINER,
    DEPLOY,
    FEATURES,
    LABEL_POLICY,
    NO_GPUS,
    ON_HOSTS,
    OPERATOR,
    PCI_ALONE,
    PRESENT,
    labels_after,
    node,
    operands_after,
    operands_in,
    ours,
    policy,
)

PAUSED = "paused-for-driver-upgrade"
READY = {PRESENT: "true", **dict.fromkeys(CONTAINER, "true")}
CLIENT = f"{DEPLOY}client"
PASSTHROUGH = "sandbox-validator vfio-manager kata-manager cc-manager client"
VGPU = "sandbox-device-plugin vgpu-manager vgpu-device-manager sandbox-validator cc-manager client"


NVIDIA_DEVICE = f"{FEATURES}pci-10de.present"
NOTHING, GONE = ReportedFacts(), ReportedFacts(facts=NO_GPUS.facts, without_gpus=179.0)
PRESENCE: dict[str, tuple[dict[str, str], ReportedFacts, str | None]] = {
    "a device of NVIDIA's": ({}, PCI_ALONE, "true"),
    "a device where none was": ({PRESENT: "false"}, PCI_ALONE, "true"),
    "a device where nothing was known": ({PRESENT: ""}, PCI_ALONE, "true"),
    "a label of NFD's": ({NVIDIA_DEVICE: "true"}, NOTHING, "true"),
    "a label of a 3D controller": ({f"{FEATURES}pci-0302_10de.present": "true"}, NOTHING, "true"),
    "a label of a display": ({f"{FEATURES}pci-0300_10de.present": "true"}, NOTHING, "true"),
    "a label that denies it": ({NVIDIA_DEVICE: "false"}, NOTHING, None),
    "GPUs that are gone": ({PRESENT: "true"}, NO_GPUS, "false"),
    "a node that never had any": ({}, NO_GPUS, None),
    "a node that has none still": ({PRESENT: "false"}, NO_GPUS, "false"),
    "no report": ({PRESENT: "true"}, NOTHING, "true"),
    "an absence that is not confirmed yet": ({PRESENT: "true"}, GONE, "true"),
    "an absence that NFD denies": ({PRESENT: "true", NVIDIA_DEVICE: "true"}, NO_GPUS, "true"),
    "nothing at all": ({}, NOTHING, None),
}


@pytest.mark.parametrize("known", PRESENCE)
def test_a_node_with_gpus_is_labelled_as_present(known: str) -> None:
    labels, reported, present = PRESENCE[known]
    assert labels_after(node(labels), reported).get(PRESENT) == present


def test_a_node_for_containers_gets_their_operands() -> None:
    assert operands_after(node()) == ALL_OPERANDS
    assert operands_after(node(), PCI_ALONE, ON_HOSTS) == ALL_OPERANDS


@pytest.mark.parametrize(
    ("workload", "mode", "operands"),
    [
        ("container", "kubevirt", " ".join(ALL_OPERANDS)),
        ("vm-passthrough", "kubevirt", f"{PASSTHROUGH} sandbox-device-plugin"),
        ("vm-passthrough", "kata", f"{PASSTHROUGH} kata-sandbox-device-plugin"),
        ("vm-vgpu", "kubevirt", VGPU),
        ("vm-vgpu", "kata", VGPU),
    ],
)
def test_operands_follow_the_workload_configuration(
    workload: str, mode: str, operands: str
) -> None:
    label_policy = LabelPolicy(cluster=policy(sandboxWorkloads={"enabled": True, "mode": mode}))
    labels = {"nvidia.com/gpu.workload.config": workload}
    found = operands_after(node(labels), PCI_ALONE, label_policy)
    assert found == dict.fromkeys(operands.split(), "true")
    settings = {"enabled": True, "mode": mode, "defaultWorkload": workload}
    label_policy = LabelPolicy(cluster=policy(sandboxWorkloads=settings))
    assert operands_after(node(), PCI_ALONE, label_policy) == found
    invalid = {"nvidia.com/gpu.workload.config": "pinball"}
    assert operands_after(node(invalid), PCI_ALONE, label_policy) == found


def test_a_changed_workload_configuration_removes_the_old_operands() -> None:
    label_policy = LabelPolicy(cluster=policy(sandboxWorkloads={"enabled": True}))
    before = ours(READY | {f"{DEPLOY}driver": "false", f"{DEPLOY}nvsm": "true"})
    labels = {**before.metadata.labels, "nvidia.com/gpu.workload.config": "vm-vgpu"}
    changed = node(labels, ours=tuple(before.ours))
    kept = {"driver": "false", "nvsm": "true"}
    assert operands_after(changed, PCI_ALONE, label_policy) == {
        **dict.fromkeys(VGPU.split(), "true"),
        **kept,
    }


def test_the_plugin_for_claims_has_a_label_while_the_policy_switches_it_on() -> None:
    claims = LabelPolicy(
        cluster=policy(dra={"enabled": True}, devicePlugin={"enabled": False}),
    )
    found = operands_after(node({}), PCI_ALONE, claims)
    assert found == ALL_OPERANDS | {"dra-driver": "true"}
    # NVIDIA's plugin may be selected by the same label.
    labels = {f"{DEPLOY}dra-driver": "true"}
    assert operands_after(node(labels))["dra-driver"] == "true"
    for off in ({PRESENT: "false"}, {PRESENT: "true", f"{DEPLOY}operands": "false"}):
        assert "dra-driver" not in operands_after(node(labels | off), NO_GPUS, claims)


@pytest.mark.parametrize("value", ["false", "pre-installed", "nightly"])
def test_a_value_set_by_a_user_stays(value: str) -> None:
    key = f"{DEPLOY}driver"
    before = node({key: value}, owners={key: "kubectl-label"})
    decision = decide(before, PCI_ALONE, LABEL_POLICY)
    assert isinstance(decision.change, ApplyLabels)
    assert key not in decision.change.labels
    assert operands_after(before) == {**ALL_OPERANDS, "driver": value}


def test_disabled_operands_are_removed_and_the_gpu_label_stays() -> None:
    labels = READY | {f"{DEPLOY}operands": "false", f"{DEPLOY}mig-manager": "true"}
    found = labels_after(node(labels, ours=(*READY, f"{DEPLOY}mig-manager")), PCI_ALONE)
    assert operands_in(found) == {"operands": "false"}
    assert found[PRESENT] == "true"


def test_a_node_without_gpus_keeps_only_labels_set_by_users() -> None:
    more = {f"{DEPLOY}mig-manager": "true", f"{DEPLOY}nvsm": "true", f"{DEPLOY}dcgm": "false"}
    found = labels_after(ours(READY | more), NO_GPUS)
    assert operands_in(found) == {"nvsm": "true", "dcgm": "false"}
    assert found[PRESENT] == "false"


def test_labels_left_by_another_operator_are_removed_without_gpus() -> None:
    before = node(READY, owners=dict.fromkeys(READY, OPERATOR))
    decision = decide(before, NO_GPUS, LABEL_POLICY)
    assert decision.change == RemoveLabels(tuple(sorted(CONTAINER)))
    after = labels_after(before, NO_GPUS)
    assert (after[PRESENT], after.keys() & CONTAINER) == ("false", frozenset())


def test_labels_left_by_another_operator_are_used() -> None:
    before = node(READY | {f"{FEATURES}pci-10de.present": "true"},
                  owners=dict.fromkeys(READY, OPERATOR))  # fmt: skip
    assert decide(before, PCI_ALONE, LABEL_POLICY).change is None


def test_nothing_changes_without_a_policy() -> None:
    assert operands_after(node(), PCI_ALONE, LabelPolicy()) == {}
    existing = {PRESENT: "true", f"{DEPLOY}dcgm": "true"}
    assert operands_after(ours(existing), PCI_ALONE, LabelPolicy()) == {"dcgm": "true"}


@pytest.mark.parametrize(
    ("labels", "capable"),
    [
        ({"nvidia.com/mig.capable": "true"}, True),
        ({"nvidia.com/mig.capable": "false", "nvidia.com/gpu.product": "NVIDIA-H100"}, False),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-A30"}, True),
        ({"nvidia.com/gpu.product": "Tesla-T4"}, False),
        ({"nvidia.com/mig.capable": "true", "nvidia.com/vgpu.host-driver-version": "1"}, False),
        ({}, False),
    ],
)
def test_the_mig_manager_is_deployed_on_mig_capable_gpus(
    labels: dict[str, str], capable: bool
) -> None:
    found = operands_after(node(labels))
    assert found.get("mig-manager") == ("true" if capable else None)
    kept = node(labels | {f"{DEPLOY}mig-manager": "false"})
    assert operands_after(kept)["mig-manager"] == "false"


# Pauses.

OUR_AGENTS = ("device-plugin", "operator-validator", "dcgm-exporter", "driver")


def test_foreign_operands_are_paused_while_the_record_is_paused() -> None:
    before = ours(READY, upgrade=record(paused=True))
    found = operands_after(before)
    assert {name for name, value in found.items() if value == PAUSED} == set(ALL_OPERANDS) - set(
        OUR_AGENTS
    )
    assert {found[name] for name in OUR_AGENTS} == {"true"}
    resumed = ours(labels_after(before, PCI_ALONE), upgrade=record(paused=False))
    assert operands_after(resumed) == ALL_OPERANDS
    dropped = ours(labels_after(before, PCI_ALONE))
    assert operands_after(dropped) == ALL_OPERANDS


def test_the_device_plugin_of_others_is_paused_where_ours_is_switched_off() -> None:
    without = LabelPolicy(cluster=policy(devicePlugin={"enabled": False}))
    before = ours(READY, upgrade=record(paused=True))
    paused = operands_after(before, PCI_ALONE, without)
    assert paused["device-plugin"] == PAUSED
    assert {paused[name] for name in OUR_AGENTS[1:]} == {"true"}
    resumed = ours(labels_after(before, PCI_ALONE, without), upgrade=record(paused=False))
    assert operands_after(resumed, PCI_ALONE, without) == ALL_OPERANDS
    switched_on = ours(labels_after(before, PCI_ALONE, without), upgrade=record(paused=True))
    assert operands_after(switched_on)["device-plugin"] == "true"


@pytest.mark.parametrize(
    ("section", "operand"), [("devicePlugin", "device-plugin"), ("dcgmExporter", "dcgm-exporter")]
)
def test_where_an_agent_of_ours_is_off_what_selects_by_its_label_is_paused(
    section: str, operand: str
) -> None:
    switched_off = LabelPolicy(cluster=policy(**{section: {"enabled": False}}))
    before = ours(READY, upgrade=record(paused=True))
    found = operands_after(before, PCI_ALONE, switched_off)
    assert found[operand] == PAUSED
    assert {found[name] for name in OUR_AGENTS if name != operand} == {"true"}
    resumed = ours(labels_after(before, PCI_ALONE, switched_off), upgrade=record(paused=True))
    assert operands_after(resumed)[operand] == "true"


@pytest.mark.parametrize(
    ("value", "paused"),
    [
        ("true", PAUSED),
        ("false", "false"),
        ("", ""),
        ("nightly", f"nightly_{PAUSED}"),
        (PAUSED, PAUSED),
        (f"nightly_{PAUSED}", f"nightly_{PAUSED}"),
        ("n" * 60, "n" * 60),
    ],
)
def test_each_value_is_paused_and_restored(value: str, paused: str) -> None:
    labels = READY | {f"{DEPLOY}nvsm": value}
    before = node(labels, upgrade=record(paused=True))
    found = labels_after(before, PCI_ALONE)
    assert operands_in(found)["nvsm"] == paused
    wanted = {PAUSED: "true", f"nightly_{PAUSED}": "nightly"}.get(paused, paused)
    assert operands_after(node(found))["nvsm"] == wanted


@pytest.mark.parametrize("upgrade", [record(paused=True), record(paused=False), "", "{"])
def test_our_own_agents_are_restored_with_any_record(upgrade: str) -> None:
    labels = READY | {f"{DEPLOY}operator-validator": PAUSED}
    found = operands_after(node(labels, upgrade=upgrade))
    assert found["operator-validator"] == "true"


def test_a_pause_is_lifted_without_facts_and_without_a_policy() -> None:
    labels = READY | {f"{DEPLOY}client": PAUSED}
    assert operands_after(node(labels), ReportedFacts(), LabelPolicy()) == ALL_OPERANDS


KEPT: dict[str, tuple[Node, dict[str, str]]] = {
    "without sandbox workloads their configuration has no effect": (
        node({"nvidia.com/gpu.workload.config": "vm-vgpu"}),
        {},
    ),
    "an empty value counts as unset": (node({f"{DEPLOY}dcgm": ""}), {}),
    "a deleted label is restored": (ours({key: READY[key] for key in READY if key != CLIENT}), {}),
    "operands that are enabled in so many words": (
        ours(READY | {f"{DEPLOY}operands": "true"}),
        {"operands": "true"},
    ),
    "the MIG manager stays on nodes for containers": (
        ours(READY | {f"{DEPLOY}mig-manager": "true"}),
        {"mig-manager": "true"},
    ),
    "what a user disabled stays so": (node(READY | {CLIENT: "false"}), {"client": "false"}),
    "an unreadable record neither pauses nor restores": (
        node(READY | {CLIENT: PAUSED}, upgrade="{"),
        {"client": PAUSED},
    ),
}


@pytest.mark.parametrize("claim", KEPT)
def test_a_node_has_the_operands_for_containers_but_for(claim: str) -> None:
    given, differing = KEPT[claim]
    assert operands_after(given) == ALL_OPERANDS | differing


@pytest.mark.parametrize(("before", "after"), [("false", "false"), (None, PAUSED)])
def test_during_a_pause_an_added_operand_is_paused_and_a_disabled_one_stays_so(
    before: str | None, after: str
) -> None:
    labels = {key: before if key == CLIENT else READY[key] for key in READY}
    present = {key: value for key, value in labels.items() if value is not None}
    assert operands_after(node(present, upgrade=record(paused=True)))["client"] == after
