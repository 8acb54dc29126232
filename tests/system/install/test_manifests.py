"""Sluice comes to a real node, and goes, by kubectl and the files of `make manifests`."""

from tests.system.install.doctor import FOUND_OK, ok_checks
from tests.system.install.release import AGENTS
from tests.system.install.world import NAMESPACE, SOAK_ONLY, World
from tools.manifests import DEFINITIONS, SETUP, SLUICE, TEST, UNINSTALL

SERVER_SIDE = ("apply", "--server-side")


@SOAK_ONLY
async def test_kubectl_installs_and_removes_sluice(fresh: World) -> None:
    """The commands are those of docs/install.md."""
    world = fresh
    folder = await world.make_manifests()
    definitions, setup, sluice, test, uninstall = (
        str(folder / name) for name in (DEFINITIONS, SETUP, SLUICE, TEST, UNINSTALL)
    )
    kubectl = world.kubectl
    await world.create_namespace()
    await kubectl.run(*SERVER_SIDE, "--force-conflicts", "-f", definitions)
    cluster, host = await world.snapshot(), await world.host()
    for _ in ("install", "the same again, as an upgrade"):
        await kubectl.run("delete", "--ignore-not-found", "-f", setup)
        await kubectl.run("apply", "-f", setup)
        await world.until_job_is_done("sluice-setup", within=240)
        await kubectl.run("delete", "-f", setup)
        await kubectl.run(*SERVER_SIDE, "-f", sluice)
    await world.forward_nats()
    await world.until_rolled_out("statefulset", within=240)
    await world.until_rolled_out("deployment", within=240)
    await world.until_agents_are_ready(AGENTS, within=240)
    await kubectl.wait("jsonpath={.status.state}=ready", "clusterpolicy/cluster-policy")

    await kubectl.run("apply", "-f", test)
    said = await world.until_job_is_done("sluice-test", within=180)
    assert ok_checks(said) >= FOUND_OK
    await kubectl.run("delete", "-f", test)

    await kubectl.run("apply", "-f", uninstall)
    await world.until_job_is_done("sluice-uninstall", within=600)
    await kubectl.run("delete", "--ignore-not-found", "-f", sluice, "-f", uninstall)
    await world.until_as(cluster)
    assert sorted({*(await world.host()).splitlines()} ^ {*host.splitlines()}) == []
    assert NAMESPACE in await kubectl.run("get", "namespaces")
