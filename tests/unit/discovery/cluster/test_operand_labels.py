"""Each rule by which a node is given operands, and by which they stand aside."""

import pytest

from services.discovery.cluster.decide import (
    ApplyLabels,
    LabelPolicy,
    RemoveLabels,
    ReportedFacts,
    decide,
)
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
    operands_in,
    ours,
    policy,
    record,
)

PAUSED = "paused-for-driver-upgrade"
READY = {PRESENT: "true", **dict.fromkeys(CONTAINER, "true")}
PASSTHROUGH = "sandbox-validator vfio-manager kata-manager cc-manager client"
VGPU = "sandbox-device-plugin vgpu-manager vgpu-device-manager sandbox-validator cc-manager client"


@pytest.mark.parametrize(
    ("labels", "told", "present"),
    [
        ({}, PCI_ALONE, "true"),
        ({PRESENT: "false"}, PCI_ALONE, "true"),
        ({PRESENT: ""}, PCI_ALONE, "true"),
        ({f"{FEATURES}pci-10de.present": "true"}, ReportedFacts(), "true"),
        ({f"{FEATURES}pci-0302_10de.present": "true"}, ReportedFacts(), "true"),
        ({f"{FEATURES}pci-0300_10de.present": "true"}, ReportedFacts(), "true"),
        ({f"{FEATURES}pci-10de.present": "false"}, ReportedFacts(), None),
        ({PRESENT: "true"}, NO_GPUS, "false"),
        ({}, NO_GPUS, None),
        ({PRESENT: "false"}, NO_GPUS, "false"),
        ({PRESENT: "true"}, ReportedFacts(), "true"),
        ({PRESENT: "true"}, ReportedFacts(facts=NO_GPUS.facts, without_gpus=179.0), "true"),
        ({PRESENT: "true", f"{FEATURES}pci-10de.present": "true"}, NO_GPUS, "true"),
        ({}, ReportedFacts(), None),
    ],
)
def test_a_node_with_gpus_is_labelled_as_present(
    labels: dict[str, str], told: ReportedFacts, present: str | None
) -> None:
    assert labels_after(node(labels), told).get(PRESENT) == present


def test_a_node_for_containers_gets_their_operands() -> None:
    assert operands_in(labels_after(node(), PCI_ALONE)) == ALL_OPERANDS
    assert operands_in(labels_after(node(), PCI_ALONE, ON_HOSTS)) == ALL_OPERANDS


@pytest.mark.parametrize(
    ("purpose", "mode", "operands"),
    [
        ("container", "kubevirt", " ".join(ALL_OPERANDS)),
        ("vm-passthrough", "kubevirt", f"{PASSTHROUGH} sandbox-device-plugin"),
        ("vm-passthrough", "kata", f"{PASSTHROUGH} kata-sandbox-device-plugin"),
        ("vm-vgpu", "kubevirt", VGPU),
        ("vm-vgpu", "kata", VGPU),
    ],
)
def test_what_the_gpus_of_a_node_are_for(purpose: str, mode: str, operands: str) -> None:
    wish = LabelPolicy(cluster=policy(sandboxWorkloads={"enabled": True, "mode": mode}))
    labels = {"nvidia.com/gpu.workload.config": purpose}
    found = operands_in(labels_after(node(labels), PCI_ALONE, wish))
    assert found == dict.fromkeys(operands.split(), "true")
    chosen = {"enabled": True, "mode": mode, "defaultWorkload": purpose}
    wish = LabelPolicy(cluster=policy(sandboxWorkloads=chosen))
    assert operands_in(labels_after(node(), PCI_ALONE, wish)) == found
    wrong = {"nvidia.com/gpu.workload.config": "pinball"}
    assert operands_in(labels_after(node(wrong), PCI_ALONE, wish)) == found


def test_what_gpus_are_for_counts_only_where_that_is_switched_on() -> None:
    labels = {"nvidia.com/gpu.workload.config": "vm-vgpu"}
    assert operands_in(labels_after(node(labels), PCI_ALONE)) == ALL_OPERANDS


def test_a_node_that_changes_its_purpose_loses_the_operands_of_the_old_one() -> None:
    wish = LabelPolicy(cluster=policy(sandboxWorkloads={"enabled": True}))
    before = ours(READY | {f"{DEPLOY}driver": "false", f"{DEPLOY}nvsm": "true"})
    labels = {**before.metadata.labels, "nvidia.com/gpu.workload.config": "vm-vgpu"}
    changed = node(labels, ours=tuple(before.ours))
    kept = {"driver": "false", "nvsm": "true"}
    assert operands_in(labels_after(changed, PCI_ALONE, wish)) == {
        **dict.fromkeys(VGPU.split(), "true"),
        **kept,
    }


@pytest.mark.parametrize("value", ["false", "pre-installed", "nightly"])
def test_what_a_person_wrote_stays(value: str) -> None:
    key = f"{DEPLOY}driver"
    before = node({key: value}, owners={key: "kubectl-label"})
    decision = decide(before, PCI_ALONE, LABEL_POLICY)
    assert isinstance(decision.change, ApplyLabels)
    assert key not in decision.change.labels
    assert operands_in(labels_after(before, PCI_ALONE)) == {**ALL_OPERANDS, "driver": value}


def test_an_empty_value_is_none() -> None:
    assert operands_in(labels_after(node({f"{DEPLOY}dcgm": ""}), PCI_ALONE)) == ALL_OPERANDS


def test_a_label_that_a_person_deleted_comes_back() -> None:
    key = f"{DEPLOY}dcgm"
    labels = {name: value for name, value in READY.items() if name != key}
    assert operands_in(labels_after(ours(labels), PCI_ALONE)) == ALL_OPERANDS


def test_operands_that_are_not_wanted_on_a_node_go_and_its_gpus_stay() -> None:
    labels = READY | {f"{DEPLOY}operands": "false", f"{DEPLOY}mig-manager": "true"}
    found = labels_after(node(labels, ours=(*READY, f"{DEPLOY}mig-manager")), PCI_ALONE)
    assert operands_in(found) == {"operands": "false"}
    assert found[PRESENT] == "true"
    assert operands_in(labels_after(ours(READY | {f"{DEPLOY}operands": "true"}), PCI_ALONE)) == {
        **ALL_OPERANDS,
        "operands": "true",
    }


def test_a_node_without_gpus_keeps_only_labels_set_by_users() -> None:
    more = {f"{DEPLOY}mig-manager": "true", f"{DEPLOY}nvsm": "true", f"{DEPLOY}dcgm": "false"}
    found = labels_after(ours(READY | more), NO_GPUS)
    assert operands_in(found) == {"nvsm": "true", "dcgm": "false"}
    assert found[PRESENT] == "false"


def test_what_another_operator_left_goes_too() -> None:
    before = node(READY, owners=dict.fromkeys(READY, OPERATOR))
    decision = decide(before, NO_GPUS, LABEL_POLICY)
    assert decision.change == RemoveLabels(tuple(sorted(CONTAINER)))
    assert labels_after(before, NO_GPUS) == {PRESENT: "false"}


def test_what_another_operator_left_serves() -> None:
    before = node(READY | {f"{FEATURES}pci-10de.present": "true"},
                  owners=dict.fromkeys(READY, OPERATOR))  # fmt: skip
    assert decide(before, PCI_ALONE, LABEL_POLICY).change is None


def test_nothing_changes_without_a_policy() -> None:
    assert operands_in(labels_after(node(), PCI_ALONE, LabelPolicy())) == {}
    some = {PRESENT: "true", f"{DEPLOY}dcgm": "true"}
    assert operands_in(labels_after(ours(some), PCI_ALONE, LabelPolicy())) == {"dcgm": "true"}


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
def test_the_mig_manager_goes_where_gpus_can_be_divided(
    labels: dict[str, str], capable: bool
) -> None:
    found = operands_in(labels_after(node(labels), PCI_ALONE))
    assert found.get("mig-manager") == ("true" if capable else None)
    kept = node(labels | {f"{DEPLOY}mig-manager": "false"})
    assert operands_in(labels_after(kept, PCI_ALONE))["mig-manager"] == "false"


def test_the_mig_manager_is_not_swept_from_nodes_for_containers() -> None:
    labels = READY | {f"{DEPLOY}mig-manager": "true"}
    assert operands_in(labels_after(ours(labels), PCI_ALONE)) == {
        **ALL_OPERANDS,
        "mig-manager": "true",
    }


# Pauses.

OF_OUR_AGENTS = ("device-plugin", "operator-validator", "dcgm-exporter", "driver")


def test_what_is_not_ours_stands_aside_while_the_record_says_so() -> None:
    before = ours(READY, upgrade=record(paused=True))
    found = operands_in(labels_after(before, PCI_ALONE))
    assert {name for name, value in found.items() if value == PAUSED} == set(ALL_OPERANDS) - set(
        OF_OUR_AGENTS
    )
    assert {found[name] for name in OF_OUR_AGENTS} == {"true"}
    back = ours(labels_after(before, PCI_ALONE), upgrade=record(paused=False))
    assert operands_in(labels_after(back, PCI_ALONE)) == ALL_OPERANDS
    dropped = ours(labels_after(before, PCI_ALONE))
    assert operands_in(labels_after(dropped, PCI_ALONE)) == ALL_OPERANDS


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
def test_each_word_has_its_way_aside_and_back(value: str, paused: str) -> None:
    labels = READY | {f"{DEPLOY}nvsm": value}
    before = node(labels, upgrade=record(paused=True))
    found = labels_after(before, PCI_ALONE)
    assert operands_in(found)["nvsm"] == paused
    wanted = {PAUSED: "true", f"nightly_{PAUSED}": "nightly"}.get(paused, paused)
    assert operands_in(labels_after(node(found), PCI_ALONE))["nvsm"] == wanted


def test_a_users_no_during_a_pause_stays() -> None:
    labels = READY | {f"{DEPLOY}dcgm": "false"}
    assert (
        operands_in(labels_after(node(labels, upgrade=record(paused=True)), PCI_ALONE))["dcgm"]
        == "false"
    )
    assert operands_in(labels_after(node(labels), PCI_ALONE))["dcgm"] == "false"


def test_an_operand_that_is_new_in_the_midst_of_a_pause_stands_aside_too() -> None:
    labels = {key: value for key, value in READY.items() if key != f"{DEPLOY}client"}
    found = labels_after(node(labels, upgrade=record(paused=True)), PCI_ALONE)
    assert operands_in(found)["client"] == PAUSED


def test_a_record_that_cannot_be_read_pauses_nothing_and_restores_nothing() -> None:
    labels = READY | {f"{DEPLOY}client": PAUSED}
    assert operands_in(labels_after(node(labels, upgrade="{"), PCI_ALONE)) == {
        **ALL_OPERANDS,
        "client": PAUSED,
    }


@pytest.mark.parametrize("upgrade", [record(paused=True), record(paused=False), "", "{"])
def test_our_own_agents_come_back_whatever_a_record_says(upgrade: str) -> None:
    labels = READY | {f"{DEPLOY}operator-validator": PAUSED}
    found = operands_in(labels_after(node(labels, upgrade=upgrade), PCI_ALONE))
    assert found["operator-validator"] == "true"


def test_a_pause_is_lifted_without_facts_and_without_a_policy() -> None:
    labels = READY | {f"{DEPLOY}client": PAUSED}
    assert operands_in(labels_after(node(labels), ReportedFacts(), LabelPolicy())) == ALL_OPERANDS
