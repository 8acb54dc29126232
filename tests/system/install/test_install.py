"""`helm install` on a real node: services, NATS and agents are Ready, and `helm test` says so."""

import json
import shlex
from pathlib import Path

import pytest

from libs.ctl.failures import ExitCode
from tests.system.install.doctor import FOUND_OK, ok_checks
from tests.system.install.laptop import BINDING, Laptop, a_person
from tests.system.install.release import AGENTS, Release
from tests.system.install.second import OF_OTHERS, SECOND, restarted, second_chart, until_second
from tests.system.install.world import NAMESPACE, SERVER, World
from tests.system.nodes.metrics import gpus_with_metrics

SERVICES = [
    "sluice-discovery-cluster",
    "sluice-driver-cluster",
    "sluice-scheduler",
    "sluice-sign-in",
    "sluice-telemetry-cluster",
    "sluice-validator-cluster",
]


@pytest.mark.dear("a control plane, a node, and all of Sluice as Helm brings it, in pods")
async def test_helm_installs_sluice(release: Release) -> None:
    world = release.world
    assert "These values have no effect" not in release.install_said
    assert await world.until_rolled_out("statefulset", within=240) == ["sluice-nats"]
    assert await world.until_rolled_out("deployment", within=240) == SERVICES
    waits = [line for line in release.install_said.splitlines() if "kubectl wait" in line]
    assert len(waits) == 3
    for line in waits:  # what Helm says to wait for does end, and pods have GPUs then
        await world.kubectl.run(*line.split()[1:])
    await release.until_ready()
    events = await world.kubectl.get("--namespace", NAMESPACE, "events")
    early = [
        f"{each['involvedObject']['name']}: {each['message']}"
        for each in events["items"]
        if each["reason"] == "Unhealthy"
        and each["involvedObject"]["name"].startswith(tuple(SERVICES))
    ]
    assert len(early) <= len(SERVICES) // 2, early
    pods = await world.running()
    assert restarted(pods) == {}, pods
    (machine,) = world.machines
    uuids = sorted(gpu.uuid for gpu in machine.gpus.gpus)
    assert await gpus_with_metrics(world.kubectl, machine.node.name) == uuids
    assert {*SERVICES, *FOUND_OK} <= ok_checks(await world.test())
    assert await world.pods("app.kubernetes.io/component=test") == {}


@pytest.mark.dear("NATS in a pod, and a kubelet that forwards its port")
async def test_people_reach_nats_by_their_kubeconfig_alone(
    release: Release, tmp_path: Path
) -> None:
    """An administrator, and somebody before and after what the command tells them to ask for."""
    world = release.world
    await release.until_ready()
    (node,) = world.ground.nodes
    laptop = Laptop(world, world.ground.kube.kubeconfig())
    why = await laptop.sluice("why", node.name)
    assert why.code == ExitCode.DONE
    assert "not from" not in why.out, why
    checks = {each["about"]: each for each in json.loads((await laptop.doctor()).out)}
    assert checks["NATS"]["found"] == (
        f"signed in at tls://{SERVER}:4222, through the API server and the pod sluice-nats-0"
    )
    assert checks["your rights"]["verdict"] == "ok"
    async with a_person(world, tmp_path) as kubeconfig:
        await bound_as_the_command_says(world, Laptop(world, kubeconfig))


async def bound_as_the_command_says(world: World, person: Laptop) -> None:
    lost = await person.sluice("events")
    assert (lost.code, "in all namespaces" in lost.err) == (ExitCode.NOT_ALLOWED, True), lost
    refused = await person.sluice("events", "--namespace", NAMESPACE)
    assert refused.code == ExitCode.NOT_ALLOWED, refused
    _, command, _ = refused.err.split("`", 2)
    program, *arguments = shlex.split(command)
    _, _, *created = arguments[:5]
    assert (program, *created) == ("kubectl", "create", "rolebinding", BINDING)
    await world.kubectl.run(*arguments)
    events = await person.sluice("events", "--output", "json")
    assert (events.code, events.err) == (ExitCode.DONE, "")
    assert events.out.splitlines()
    rights = {each["about"]: each for each in json.loads((await person.doctor()).out)}
    assert "portforward" not in rights["your rights"]["found"]
    assert "serviceaccounts/token" not in rights["your rights"]["found"]


@pytest.mark.dear("every pod of Sluice is replaced, as on a cluster")
async def test_helm_upgrades_sluice_beside_nats_and_a_driver(
    release: Release, tmp_path: Path
) -> None:
    """The pods of NATS and of the driver are those of the first version. Helm upgrades a release
    that it could not remove after a rollback only, which changes nothing (docs/install.md#remove).
    """
    world = release.world
    await release.until_ready()
    await world.tag_image(SECOND)
    before = await world.running()
    await world.rollback(1)
    world.values["image"]["tag"] = SECOND
    await world.helm("upgrade", chart=second_chart(tmp_path))
    await world.until_rolled_out("deployment", within=300)
    await until_second(world)
    await world.until_agents_are_ready(AGENTS, within=240)
    after = await world.running()
    kept = {uid for uid, pod in before.items() if pod.app in OF_OTHERS}
    assert len(kept) == len(OF_OTHERS)
    assert before.keys() & after.keys() == kept
    assert restarted(after) == {}
