"""The driver agent's program as a plugin of a container runtime."""

import signal
from pathlib import Path

import aiohttp
import pytest

from tests.builders.fake_machine import FakeMachine
from tests.component.nri.runtime import PluginError, Runtime
from tests.component.programs import NAMESPACE, address_of, run_programs
from tests.support import eventually

KEY = "nvidia.cdi.k8s.io/container.main"
MANAGEMENT = "management.nvidia.com/gpu=all"


async def test_the_driver_agent_gives_devices_and_is_unready_without_a_runtime(
    runtime: Runtime, tmp_path: Path
) -> None:
    machine = FakeMachine(runtime.socket.parents[2])
    async with run_programs(tmp_path) as programs:
        await programs.create_streams()
        agent = await programs.start_agent(
            "driver",
            host=machine.root,
            node="a",
            node_uid="uid-1",
            change_this_machine="true",
            nri="true",
            nri_gpu_namespaces="team",
            nri_management_namespaces="monitoring,tools",
        )
        await runtime.synchronized.wait()
        for namespace in (NAMESPACE, "monitoring", "tools"):
            given = await runtime.create(namespace=namespace, annotations={KEY: MANAGEMENT})
            assert given == [MANAGEMENT]
        gpu = {KEY: "nvidia.com/gpu=0"}
        await eventually(lambda: "why=no NVIDIA driver is loaded" in quoted(agent.log), within=60)
        with pytest.raises(PluginError, match="no container can have now: no NVIDIA driver"):
            await runtime.create(namespace="team", annotations=gpu)
        with pytest.raises(PluginError, match="pods of the namespace tools may not have"):
            await runtime.create(namespace="tools", annotations=gpu)
        assert await runtime.create(namespace="team", env=("NVIDIA_VISIBLE_DEVICES=all",)) == []
        await agent.wait_for_log("phase=ready")
        probes = await address_of(agent, "probe server")
        async with aiohttp.ClientSession() as session:

            async def answer() -> str:
                async with session.get(f"{probes}/readyz") as response:
                    return await response.text()

            assert "NRI" not in await answer()
            await runtime.stop()

            async def is_unready() -> bool:
                return "NRI: the container runtime does not accept" in await answer()

            await eventually(is_unready, within=60, every=0.1)
            runtime.socket.unlink()
            await runtime.start()
        await runtime.synchronized.wait()
        await agent.end(signal.SIGTERM, code=0)


def quoted(log: str) -> str:
    return log.replace('"', "").replace("'", "")
