"""The telemetry agent's program names the pods of GPUs, as its kubelet lists them."""

import re
import signal
import time
from pathlib import Path
from typing import Any

from tests.component.gpus.machine import StandInMachine
from tests.component.gpus.test_agents import Agent, agent_on
from tests.component.podresources.kubelet import Kubelet, answer_with, pod
from tests.support import eventually

_ROW = re.compile(r'^DCGM_FI_DEV_GPU_TEMP{gpu="(\d)".*?(?:,(container=.*))?} \d+$', re.MULTILINE)


async def rows(agent: Agent) -> list[tuple[str, str]]:
    """Return the labels of pods on the page, by number of the GPU."""
    return _ROW.findall(await agent.get("exporter", "metrics"))


def labels(pod: str, *more: str) -> str:
    return ",".join(('container="cuda"', 'namespace="team-a"', f'pod="{pod}"', *more))


async def test_samples_name_the_pods_of_their_gpus(
    bench: StandInMachine, kubelet: Kubelet, tmp_path: Path
) -> None:
    first, second, third, *_ = (gpu.uuid for gpu in bench.stand_in.gpus)
    kubelet.answer = answer_with(
        pod("train", first, second),
        pod("web-1", f"{third}::1", resource="nvidia.com/gpu.shared"),
        pod("web-0", f"{third}::0", resource="nvidia.com/gpu.shared"),
    )
    named = {"0": labels("train"), "1": labels("train"), "2": labels("web-1")}
    async with agent_on(bench, tmp_path, pod_resources=str(kubelet.socket)) as agent:

        async def are_named() -> bool:
            return await rows(agent) == [(str(gpu), named.get(str(gpu), "")) for gpu in range(8)]

        await eventually(are_named, within=60, every=0.1)
        named.clear()
        kubelet.answer = answer_with()
        await eventually(are_named, within=60, every=0.1)
        await agent.child.end(signal.SIGTERM, code=0)


async def test_an_agent_ends_while_its_kubelet_is_silent(
    bench: StandInMachine, kubelet: Kubelet, tmp_path: Path
) -> None:
    def answer(context: Any) -> bytes:
        while context.is_active():
            time.sleep(0.01)
        return b""

    kubelet.answer = answer
    async with agent_on(bench, tmp_path, pod_resources=str(kubelet.socket)) as agent:
        await agent.measures(8)
        await eventually(lambda: len(kubelet.requests) > 0, within=60)
        await agent.child.end(signal.SIGTERM, code=0)
