"""`sluice doctor` where little is installed: on the real API server, and without a cluster."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from libs.ctl.failures import ExitCode
from libs.policy.validation import PRESENT_LABEL
from libs.testing.realkube.cluster import RealKube
from tests.component.ctl.world import NO_ADDRESSES, POOL, Ended, halted, make_world, run_command
from tests.component.kube.sandbox import NOBODY


async def doctor(kubeconfig: str, *arguments: str) -> Ended:
    environ = {**NO_ADDRESSES, "KUBECONFIG": kubeconfig, "NO_COLOR": "1", "COLUMNS": "200"}
    return await asyncio.to_thread(
        run_command, "doctor", "--namespace", "without-sluice", *arguments, **environ
    )


def by_subject(ended: Ended) -> dict[str, dict[str, Any]]:
    return {check["about"]: check for check in msgspec.json.decode(ended.out)}


async def test_an_administrator_of_a_real_cluster_without_sluice(plane: RealKube) -> None:
    ended = await doctor(str(plane.kubeconfig()), "-o", "json")
    assert (ended.code, ended.err) == (ExitCode.FAULT_FOUND, "")
    found = by_subject(ended)
    assert found["Kubernetes"]["verdict"] == "ok"
    assert found["Kubernetes"]["found"].startswith("v1.")
    assert found["services"]["found"] == "there are none in namespace without-sluice"
    assert found["agents and drivers"]["verdict"] == "warning"
    assert found["your rights"]["verdict"] == "ok"
    assert found["NATS"]["verdict"] == "unknown"


async def test_a_user_without_rights_learns_which_are_missing(plane: RealKube) -> None:
    found = by_subject(await doctor(str(plane.kubeconfig(NOBODY)), "-o", "json"))
    assert found["services"]["verdict"] == "unknown"
    assert "deployments" in found["services"]["found"]
    assert "patch rollouts (for upgrade pause)" in found["your rights"]["found"]


async def test_a_frozen_pool_and_a_lease_of_a_person_are_warnings(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        await world.add_rollout()
        await world.add_node("node-2")
        await world.label("node-2", PRESENT_LABEL, "true")
        for verb in (("upgrade", "freeze", "--reason", "storage"), ("lease", "take", "node-2")):
            reason = () if verb[0] == "upgrade" else ("--reason", "a riser")
            assert (await world.run(*verb, *reason)).code == ExitCode.DONE
        found = by_subject(await world.run("doctor", "-o", "json"))
        pool, node = found[f"pool {POOL}"], found["node-2"]
        assert (pool["verdict"], node["verdict"]) == ("warning", "warning")
        assert pool["found"].startswith("frozen by ")
        assert '("storage")' in pool["found"]
        assert pool["remedy"] == f"`sluice upgrade resume {POOL}`"
        assert node["found"].endswith(": a riser")


async def test_a_halt_is_a_fault(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        await world.add_rollout(**halted("u1"))
        ended = await world.run("doctor", "-o", "json")
        assert ended.code == ExitCode.FAULT_FOUND
        pool = by_subject(ended)[f"pool {POOL}"]
        assert (pool["verdict"], pool["found"].partition(":")[0]) == ("fault", "halted")


def kubeconfig(folder: Path, server: str) -> str:
    file = folder / "config"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
        f"clusters: [{{name: a, cluster: {{server: '{server}'}}}}]\n"
        "users: [{name: a, user: {token: a}}]\n"
    )
    return str(file)


async def test_a_cluster_and_a_bus_that_are_away_are_two_faults(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "http://127.0.0.1:1")
    ended = await doctor(config, "--nats", "nats://127.0.0.1:1")
    assert (ended.code, ended.err) == (ExitCode.FAULT_FOUND, "")
    lines = [line for line in ended.out.splitlines() if not line.startswith(" ")]
    assert [line.split(":")[0].split(None, 1) for line in lines] == [
        ["fault", "Kubernetes"],
        ["fault", "NATS"],
    ]
    found, remedy = ended.out[ended.out.index("NATS: ") :].splitlines()
    assert found.startswith("NATS: no connection to NATS at nats://127.0.0.1:1 as ")
    assert remedy.split(":")[0].strip() == "do"
    assert "see that its pods run, and that --nats or SLUICE_NATS_URL is reachable" in remedy


async def test_a_server_that_is_no_api_server_and_an_address_that_is_none_are_faults(
    tmp_path: Path,
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="<html>sign in</html>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/version", answer)
    async with TestServer(app) as portal:
        for server, why in (
            (str(portal.make_url("/")), "does not answer as an API server of Kubernetes"),
            ("http://[::1", "which names no host, or no port"),
        ):
            ended = await doctor(kubeconfig(tmp_path, server))
            assert (ended.code, ended.err) == (ExitCode.FAULT_FOUND, "")
            assert why in ended.out.splitlines()[0]
