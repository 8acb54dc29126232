"""The program as people start it: what the cluster's role shows, and what each role was told."""

import random
import re
import signal
import sys
from pathlib import Path

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from libs.bus.nats.bus import connect
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Evidence, Report, ValidationStep
from libs.contracts.subjects import STATE, STREAMS
from libs.kube.client import Kube
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.child_process import ChildProcess
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from tests.support import eventually

PLAIN = {
    "SLUICE_HTTP_HOST": "127.0.0.1",
    "SLUICE_HTTP_PORT": "0",
    "SLUICE_LOG_FORMAT": "text",
    "PYTHONDONTWRITEBYTECODE": "1",
}
PROGRAM = (sys.executable, "-W", "error", "-m", "services.validator")
NODE = {
    "metadata": {"name": "a", "labels": {"nvidia.com/gpu.present": "true"}},
    "status": {"nodeInfo": {"bootID": "b"}},
}


def evidence(uid: str) -> bytes:
    """Of a node without a driver of ours."""
    step = ValidationStep(name="driver", passed=True)
    proof = Evidence(
        epoch=1, token=1, op=1, passed=True, label="", node_uid=uid, boot_id="b", kernel="5.15",
        steps=(step,), at=1.0,
    )  # fmt: skip
    return encode(
        Report.of(proof, node="a", node_uid=uid, boot_id="b", component="validator", at=1.0)
    )


async def test_what_a_validator_proved_is_on_the_page(tmp_path: Path) -> None:
    clock = SystemClock()
    server = ApiServer(clock=clock, ids=SeededIds(random.Random(2)), random=random.Random(1))
    kube = Kube(server.transport(user="person"), manager="kubectl", clock=clock)
    made = await kube.request("POST", "/api/v1/nodes", body=NODE)
    uid = msgspec.json.decode(made)["metadata"]["uid"]
    async with NatsServer() as nats, serve_http(server) as door, aiohttp.ClientSession() as session:
        told = {
            "SLUICE_NATS_URL": nats.url,
            "SLUICE_KUBECONFIG": str(door.kubeconfig(tmp_path, "validator")),
        }
        role = await ChildProcess.start("validator", *PROGRAM, "cluster", environ={**PLAIN, **told})
        try:
            await role.wait_for_log("phase=ready", "phase='ready'")
            (port,) = re.findall(r"http server started.* port=([0-9]+)", role.log)
            for writer, node in ((Writer.SCHEDULER, ""), (Writer.VALIDATOR, "a")):
                identity = Identity(writer=writer, node=node)
                joining = connect(
                    url=nats.url,
                    identity=identity,
                    env=make_env(clock=clock),
                )
                async with joining as bus:
                    if not node:
                        for stream in STREAMS:
                            await bus.ensure(stream)
                        continue
                    at = subjects.State(
                        cluster="default", node="a", component="validator", kind="evidence"
                    )
                    await bus.store(STATE, str(at), evidence(uid))

            async def shown() -> bool:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    text = await answer.text()
                values = {
                    sample.name: sample.value
                    for family in text_string_to_metric_families(text)
                    for sample in family.samples
                    if sample.labels.get("node") == "a"
                }
                return values.get("gpu_operator_node_driver_validation") == 1

            await eventually(shown, within=60, every=0.1)
            await role.end(signal.SIGTERM, code=0)
        finally:
            await role.destroy()
    await server.stop()
