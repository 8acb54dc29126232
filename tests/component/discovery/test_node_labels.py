"""Labels of Nodes: one write for each change, and no other."""

import json

import msgspec
from structlog.testing import capture_logs

from libs.contracts.facts import Facts, Kernel, LoadedDriver, LocalFeatures
from libs.contracts.identities import Writer
from libs.kube.resources import NODES
from services.discovery.cluster.gfd import GPU_LABELS
from tests.builders.fleet import record
from tests.component.discovery.world import World, in_world
from tests.unit.discovery.cluster.builders import (
    ALL_OPERANDS,
    CONTAINER,
    DEPLOY,
    GPU,
    NIC,
    PRESENT,
    SYSTEM,
    operands_in,
)

PAUSED = "paused-for-driver-upgrade"
PRODUCT = "nvidia.com/gpu.product"
NFD = "feature.node.kubernetes.io/"
KERNEL = f"{NFD}kernel-version.full"


@in_world
async def test_a_node_is_labelled_in_one_write(world: World) -> None:
    await world.node("a")
    role = await world.lead()
    assert world.written == []
    await world.report_facts("a", SYSTEM)
    await world.sleep(2)
    labels = await world.labels("a")
    assert labels[PRESENT] == "true"
    assert labels[KERNEL] == "5.15.0-139-generic"
    assert operands_in(labels) == ALL_OPERANDS
    assert world.written == [("apply", "Node", "a")]
    assert [each.code for each in world.revisions()] == [200]
    await world.sleep(3600)
    assert len(world.revisions()) == 1
    assert role.service.unready_reasons() == []
    assert role.value("sluice_discovery_api_writes_total", outcome="written") == 1


@in_world
async def test_each_node_is_written_once_and_machines_without_gpus_differ(world: World) -> None:
    names = [f"n{number}" for number in range(50)]
    await world.lead()
    for name in names:
        await world.node(name, SYSTEM)
    await world.node("plain")
    await world.report_facts("plain", msgspec.structs.replace(SYSTEM, pci=(NIC,)))
    await world.sleep(600)
    assert sorted(world.written) == sorted(("apply", "Node", name) for name in [*names, "plain"])
    assert [each for each in world.revisions() if each.code != 200] == []
    labels = await world.labels("plain")
    assert (labels[KERNEL], labels.get(PRESENT)) == ("5.15.0-139-generic", None)
    assert operands_in(labels) == {}


@in_world
async def test_gpus_reported_later_are_one_more_write(world: World) -> None:
    await world.node("a", SYSTEM)
    await world.lead()
    await world.report_facts("a", msgspec.structs.replace(SYSTEM, gpus=(GPU,)))
    driver = Facts(driver=LoadedDriver(version="580.95.05"))
    await world.report_facts("a", driver, writer=Writer.DRIVER)
    await world.sleep(2)
    labels = await world.labels("a")
    assert labels[PRODUCT] == "NVIDIA-H100-80GB-HBM3"
    assert labels["nvidia.com/cuda.driver-version.full"] == "580.95.05"
    assert operands_in(labels) == {**ALL_OPERANDS, "mig-manager": "true"}
    assert len(world.revisions()) == 2


@in_world
async def test_an_upgrade_costs_two_writes_and_pauses_operands_at_once(world: World) -> None:
    await world.node("a", SYSTEM)
    await world.lead()
    before = len(world.revisions())
    await world.set_record("a", record(paused=True))
    await world.sleep(0.2)
    paused = await world.operands("a")
    assert {paused[name] for name in ("dcgm", "client", "container-toolkit")} == {PAUSED}
    assert {paused[name] for name in ("device-plugin", "dcgm-exporter", "driver")} == {"true"}
    await world.report_facts("a", Facts(), writer=Writer.DRIVER)
    await world.sleep(600)
    await world.set_record("a", record(paused=False))
    await world.sleep(0.2)
    assert await world.operands("a") == ALL_OPERANDS
    assert len(world.revisions()) - before == 2


@in_world
async def test_absent_gpus_remove_labels_and_missing_facts_do_not(world: World) -> None:
    await world.node("a")
    await world.report_facts("a", msgspec.structs.replace(SYSTEM, gpus=(GPU,)))
    role = await world.lead()
    labelled = await world.labels("a")
    await world.report_facts("a", Facts())
    await world.report_facts("a", Facts(pci=()), boot="another boot")
    await world.sleep(900)
    assert await world.labels("a") == labelled
    await world.report_facts("a", Facts(pci=()))
    await world.sleep(170)
    assert await world.labels("a") == labelled
    await world.report_facts("a", SYSTEM)
    await world.sleep(170)
    await world.report_facts("a", Facts(pci=()))
    await world.sleep(170)
    assert await world.labels("a") == labelled
    assert len(world.revisions("Node")) == 1
    await world.sleep(15)
    labels = await world.labels("a")
    assert (labels[PRESENT], operands_in(labels)) == ("false", {})
    assert not labels.keys() & set(GPU_LABELS)
    assert len(world.revisions("Node")) == 2
    await world.sleep(900)
    assert len(world.revisions("Node")) == 2
    assert role.service.unready_reasons() == []


@in_world
async def test_no_label_is_removed_while_no_report_arrives(world: World) -> None:
    await world.node("a", SYSTEM)
    role = await world.lead()
    await world.report_facts("a", Facts(pci=(NIC,)))
    await world.sleep(60)
    world.bus.cut(role.bus.identity)
    await world.sleep(600)
    assert (await world.labels("a"))[PRESENT] == "true"
    world.bus.restore(role.bus.identity)
    await world.sleep(100)
    assert (await world.labels("a"))[PRESENT] == "true"
    await world.sleep(200)
    assert (await world.labels("a"))[PRESENT] == "false"


@in_world
async def test_labels_set_by_users_are_kept_while_others_change(world: World) -> None:
    await world.node("a", **{f"{DEPLOY}dcgm": "false"})
    await world.report_facts("a", SYSTEM)
    await world.lead()
    await world.label("a", {f"{DEPLOY}client": "false"})
    await world.set_record("a", record(paused=True))
    await world.sleep(1)
    await world.set_record("a", None)
    await world.sleep(1)
    found = await world.operands("a")
    assert found == {**ALL_OPERANDS, "dcgm": "false", "client": "false"}
    node = await world.get_node("a")
    assert not node.ours & {f"{DEPLOY}dcgm", f"{DEPLOY}client"}
    await world.label("a", {f"{DEPLOY}operands": "false"})
    await world.sleep(1)
    found = await world.operands("a")
    assert found == {"operands": "false", "dcgm": "false", "client": "false"}
    await world.label("a", {f"{DEPLOY}operands": None, f"{DEPLOY}client": None})
    await world.sleep(1)
    assert await world.operands("a") == {**ALL_OPERANDS, "dcgm": "false"}


@in_world
async def test_labels_of_a_removed_operator_are_removed_with_the_gpus(world: World) -> None:
    await world.node("a")
    labels = {PRESENT: "true", **dict.fromkeys(CONTAINER, "true")}
    await world.label("a", labels, manager="gpu-operator")
    await world.report_facts("a", Facts(pci=()))
    await world.lead()
    assert world.written == []
    await world.sleep(185)
    labels = await world.labels("a")
    assert (labels[PRESENT], operands_in(labels)) == ("false", {})
    assert world.written == [("patch", "Node", "a"), ("apply", "Node", "a")]


@in_world
async def test_labels_of_another_feature_discovery_are_left_alone(world: World) -> None:
    await world.node("a")
    await world.label("a", {KERNEL: "4.18.0"}, manager="nfd-master")
    claims = "kernel-version.full,system-os_release.ID"
    await world.annotate("a", **{"nfd.node.kubernetes.io/feature-labels": claims})
    await world.report_facts("a", SYSTEM)
    role = await world.lead()
    labels = await world.labels("a")
    assert labels[KERNEL] == "4.18.0"
    assert "feature.node.kubernetes.io/system-os_release.ID" not in labels
    # None of its keys is written while it runs, and what it says is used.
    features = [key for key in labels if key.startswith("feature.node.kubernetes.io/")]
    assert features == [KERNEL]
    assert labels[PRESENT] == "true"
    assert role.value("sluice_discovery_labels_left") == 9
    assert len(world.revisions()) == 1


@in_world
async def test_labels_follow_facts_within_a_second(world: World) -> None:
    names = [f"n{number}" for number in range(50)]
    for name in names:
        await world.node(name, SYSTEM)
    await world.lead()
    newer = msgspec.structs.replace(SYSTEM, gpus=(GPU,), kernel=Kernel(release="6.9.9"))
    for name in names:
        await world.report_facts(name, newer)

    async def are_labelled() -> bool:
        labels = [await world.labels(name) for name in names]
        return all(each[KERNEL] == "6.9.9" and PRODUCT in each for each in labels)

    assert not await are_labelled()
    assert await world.until(are_labelled, within=1.0) <= 1.0


@in_world
async def test_no_label_of_nfd_is_written_where_it_runs_by_the_setting(world: World) -> None:
    world.nfd_enabled = False
    await world.node("a")
    await world.label(
        "a", {f"{NFD}pci-10de.present": "true", KERNEL: "4.18.0"}, manager="nfd-master"
    )
    await world.lead()
    # The labels that NFD writes are used before any agent reports.
    assert (await world.labels("a"))[PRESENT] == "true"
    await world.report_facts("a", msgspec.structs.replace(SYSTEM, gpus=(GPU,)))
    await world.sleep(600)
    labels = await world.labels("a")
    assert labels[PRODUCT] == "NVIDIA-H100-80GB-HBM3"
    assert {key: value for key, value in labels.items() if key.startswith(NFD)} == {
        f"{NFD}pci-10de.present": "true",
        KERNEL: "4.18.0",
    }


@in_world
async def test_our_labels_go_when_nfd_has_written_its_own(world: World) -> None:
    await world.node("a", SYSTEM)
    before = await world.lead()
    await before.stop()
    ours = {key for key in await world.labels("a") if key.startswith(NFD)}
    assert len(ours) > 5
    world.nfd_enabled = False
    await world.lead()
    await world.sleep(600)
    assert {key for key in await world.labels("a") if key.startswith(NFD)} == ours
    await world.label("a", {KERNEL: "6.9.9"}, manager="nfd-master")
    claims = "kernel-version.full,pci-10de.present"
    await world.annotate("a", **{"nfd.node.kubernetes.io/feature-labels": claims})
    await world.sleep(2)
    labels = await world.labels("a")
    assert {key for key in labels if key.startswith(NFD)} == {KERNEL, f"{NFD}pci-10de.present"}
    assert (labels[KERNEL], labels[PRESENT]) == ("6.9.9", "true")


@in_world
async def test_refused_values_are_reported_once(world: World) -> None:
    await world.node("a", SYSTEM)
    role = await world.lead()
    refused = "sluice_discovery_refused_labels"
    assert role.value(refused) == 0
    hostile = msgspec.structs.replace(GPU, name="x" * 4096)
    features = LocalFeatures(refused=1, why="site: line 2: a reason\nof \x1b[31mtwo lines")
    facts = msgspec.structs.replace(SYSTEM, gpus=(hostile,), features=features)
    with capture_logs() as logs:
        await world.report_facts("a", facts)
        await world.sleep(600)
        changed = msgspec.structs.replace(facts, kernel=Kernel(release="6.9.9"))
        await world.report_facts("a", changed)
        await world.sleep(600)
    labels = await world.labels("a")
    assert (labels[KERNEL], PRODUCT in labels) == ("6.9.9", False)
    assert role.value(refused) == 2
    why = (
        f"no values of labels: {PRODUCT}; lines of feature files: 1, the first: "
        "site: line 2: a reason of [31mtwo lines"
    )
    (line,) = [each for each in logs if each["event"].startswith("reported values cannot be")]
    assert (line["node"], line["why"]) == ("a", why)
    body = await world.kube.request("GET", "/api/v1/namespaces/default/events")
    found = json.loads(body)["items"]
    (event,) = [each for each in found if each["reason"] == "LabelsRefused"]
    assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "a")
    assert event["message"] == f"left out, and the labels stay as they are: {why}"
    await world.report_facts("a", msgspec.structs.replace(SYSTEM, gpus=(GPU,)))
    await world.sleep(2)
    assert role.value(refused) == 0
    await world.report_facts("a", msgspec.structs.replace(facts, features=LocalFeatures()))
    await world.sleep(2)
    assert role.value(refused) == 1
    await world.remove(NODES, "a")
    await world.sleep(2)
    assert role.value(refused) == 0


@in_world
async def test_facts_that_change_all_the_time_are_written_a_few_times(world: World) -> None:
    await world.node("a", SYSTEM)
    await world.node("b", SYSTEM)
    await world.lead()
    before = len(world.revisions("Node"))
    for number in range(600):
        kernel = Kernel(release=f"6.{number}.0")
        await world.report_facts("a", msgspec.structs.replace(SYSTEM, kernel=kernel))
        await world.sleep(1)
    assert len(world.revisions("Node")) - before <= 6 + 600 / 20 + 1
    # Neither other nodes nor a pause of operands wait for it.
    await world.report_facts("b", msgspec.structs.replace(SYSTEM, kernel=Kernel(release="6.9.9")))
    await world.set_record("a", record(paused=True))
    await world.sleep(1)
    assert (await world.operands("a"))["dcgm"] == PAUSED
    assert (await world.labels("b"))[KERNEL] == "6.9.9"
    await world.sleep(25)
    assert (await world.labels("a"))[KERNEL] == "6.599.0"
