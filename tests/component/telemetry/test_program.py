"""The program itself: its roles, their settings, and what the agent serves without a driver."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from libs.testing.nats import NatsServer
from tests.support import eventually
from tests.unit.host.builders import put


async def printed(role: str, **more: str) -> tuple[int, dict[str, str], str]:
    """What it says of its settings: exit code, settings, errors."""
    process = await _started(role, "--print-config", environ=more)
    out, errors = await process.communicate()
    assert process.returncode is not None
    pairs = [line.partition("#")[0].strip().partition("=") for line in out.decode().splitlines()]
    return process.returncode, {key: value for key, _, value in pairs}, errors.decode()


async def _started(*arguments: str, environ: Mapping[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.telemetry",
        *arguments,
        env={"PATH": os.environ["PATH"], **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_settings_of_both_roles() -> None:
    code, agent, _ = await printed("agent", SLUICE_NODE="a")
    assert code == 0
    assert agent["SLUICE_EXPORTER_PORT"] == "9400"
    assert agent["SLUICE_HOSTNAME_LABEL"] == "Hostname"
    told = {"SLUICE_NAMESPACE": "gpu-operator", "SLUICE_POD_NAME": "p"}
    code, cluster, _ = await printed("cluster", **told)
    assert code == 0
    assert cluster["SLUICE_HTTP_PORT"] == "8080"
    code, _, errors = await printed("agent", SLUICE_NODE="a", SLUICE_HOSTNAME_LABEL="host")
    assert code == 2
    assert "SLUICE_HOSTNAME_LABEL='host' (environment): expected one of" in errors
    code, _, errors = await printed("nobody")
    assert (code, errors) == (2, "unknown role nobody: expected one of agent, cluster\n")


@asynccontextmanager
async def running(root: Path, url: str) -> AsyncGenerator[dict[str, str]]:
    """The agent; where each of its servers listens."""
    put(root, "/proc/sys/kernel/random/boot_id", "boot-1")
    environ = {
        "SLUICE_NODE": "a.example",
        "SLUICE_NODE_UID": "uid-1",
        "SLUICE_HOST_ROOT": str(root),
        "SLUICE_STATE_DIR": str(root / "state"),
        "SLUICE_NATS_URL": url,
        "SLUICE_HTTP_HOST": "127.0.0.1",
        "SLUICE_HTTP_PORT": "0",
        "SLUICE_EXPORTER_HOST": "127.0.0.1",
        "SLUICE_EXPORTER_PORT": "0",
        "SLUICE_LOG_FORMAT": "json",
    }
    process = await _started("agent", environ=environ)
    assert process.stderr is not None
    try:
        found: dict[str, str] = {}
        async with asyncio.timeout(30):
            while len(found) < 2:
                line: dict[str, Any] = json.loads(await process.stderr.readline())
                if line.get("event", "").endswith(" started") and "port" in line:
                    found[line["event"]] = f"http://127.0.0.1:{line['port']}"
        yield found
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0


async def test_the_agent_starts_with_no_driver_and_serves_what_is_true(tmp_path: Path) -> None:
    async with (
        NatsServer() as server,
        running(tmp_path, server.url) as at,
        aiohttp.ClientSession() as session,
    ):

        async def get(url: str) -> tuple[int, str, str]:
            async with session.get(url) as answer:
                return answer.status, answer.headers["Content-Type"], await answer.text()

        exporter, process = at["exporter started"], at["http server started"]
        status, kind, text = await get(f"{exporter}/metrics")
        assert (status, text) == (200, "")
        assert kind.startswith("text/plain; version=0.0.4")
        assert (await get(f"{exporter}/health"))[::2] == (200, "OK")

        async def says_why() -> bool:
            status, _, text = await get(f"{process}/readyz")
            return status == 503 and "gpus: the GPUs of a real machine cannot be queried" in text

        await eventually(says_why)
        status, _, text = await get(f"{process}/metrics")
        assert status == 200
        names = {one.name for one in text_string_to_metric_families(text)}
        assert {"sluice_telemetry_sweeps", "sluice_telemetry_unsent_batches"} <= names
