"""The programs of the services: settings, imports, and each program over NATS and HTTP."""

import asyncio
import functools
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.contracts import subjects
from libs.contracts.identities import Writer
from libs.contracts.message import encode
from libs.contracts.reports import Evidence, Report, ValidationStep
from libs.contracts.subjects import STATE
from libs.kube.resources import DAEMON_SETS, NODES
from libs.policy.crds import crd_manifests
from libs.testing.child_process import bytecode_environ
from services.discovery.cluster import role as discovery
from services.driver.cluster import role as driver
from services.validator.node.status_files import CUDA
from tests.builders.fake_machine import BOOT, FakeMachine
from tests.builders.machine_files import put, put_device
from tests.component.policy.strict_writes import apply
from tests.component.programs import NAMESPACE, Programs, address_of, run_programs
from tests.support import eventually
from tests.unit.policy.situations import cluster_policy

ROLES = [
    (service, role)
    for service in ("discovery", "driver", "telemetry", "validator")
    for role in ("agent", "cluster")
]
IMAGES = {f"images_{service}": "r.example/i:1" for service, role in ROLES if role == "agent"}
OTHER_ROLE = {"agent": "cluster", "cluster": "node"}


async def run_python(*arguments: str, **environ: str) -> tuple[int | None, str, str]:
    """Return exit code, output and errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", *arguments),
        env={"PATH": os.environ["PATH"], **bytecode_environ(), **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    return process.returncode, out.decode(), errors.decode()


async def run_program(service: str, role: str, **settings: str) -> tuple[int | None, set[str], str]:
    """Return exit code, the printed settings and errors."""
    environ = {f"SLUICE_{name.upper()}": value for name, value in settings.items()}
    code, out, errors = await run_python(
        "-m", f"services.{service}", role, "--print-config", **environ
    )
    return code, {line.split("#")[0].strip() for line in out.splitlines()}, errors


class Shown(NamedTuple):
    """What a role prints as its settings, and which modules it has imported by then."""

    settings: dict[str, str]
    code: int | None
    printed: set[str]
    modules: set[str]


of_one_run = pytest.mark.together("settings and imports of the services")
"""Tests that share the runs of the programs, and so a worker."""


@functools.cache
def shown_by(service: str, role: str) -> Shown:
    """Run the program of a role once for all tests."""
    settings = {"nats_cluster": "east", **({"node": "a"} if role == "agent" else {})}
    if role == "cluster":
        settings |= {"namespace": NAMESPACE, **(IMAGES if service == "driver" else {})}
    environ = {f"SLUICE_{name.upper()}": value for name, value in settings.items()}
    # -X importtime names each module on standard error, also of a program that exits by itself.
    code, out, errors = asyncio.run(
        run_python(
            *("-X", "importtime", "-m", f"services.{service}", role, "--print-config"), **environ
        )
    )
    printed = {line.split("#")[0].strip() for line in out.splitlines()}
    modules = {line.rpartition("|")[2].strip() for line in errors.splitlines()}
    return Shown(settings, code, printed, modules)


@of_one_run
@pytest.mark.parametrize(("service", "role"), ROLES)
def test_print_config_shows_the_settings_of_a_role(service: str, role: str) -> None:
    settings, code, printed, _ = shown_by(service, role)
    assert code == 0
    assert {f"SLUICE_{name.upper()}={value}" for name, value in settings.items()} <= printed
    if service == "telemetry":
        assert {"SLUICE_EXPORTER_PORT=9400", "SLUICE_HOSTNAME_LABEL=hostname"} <= printed


@pytest.mark.parametrize(
    ("role", "settings", "error"),
    [
        (
            "agent",
            {"node": "a", "hostname_label": "host"},
            "SLUICE_HOSTNAME_LABEL='host' (environment): expected one of",
        ),
        ("unknown", {}, "unknown role unknown: expected one of agent, cluster\n"),
    ],
)
async def test_a_wrong_setting_or_role_ends_the_program(
    role: str, settings: dict[str, str], error: str
) -> None:
    code, _, errors = await run_program("telemetry", role, **settings)
    assert code == 2
    assert error in errors


async def imported_by(service: str, role: str) -> set[str]:
    code = (
        f"import sys; from services.{service} import __main__ as program;"
        f"program.{role}_role(); print(*sys.modules, sep='\\n')"
    )
    return set((await run_python("-c", code))[1].splitlines())


@of_one_run
@pytest.mark.parametrize(("service", "role"), ROLES)
def test_a_role_imports_neither_the_other_role_nor_its_libraries(service: str, role: str) -> None:
    modules = shown_by(service, role).modules
    assert f"services.{service}.{OTHER_ROLE[role]}" not in modules
    assert f"services.{service}.{'node' if role == 'agent' else 'cluster'}" in modules
    if role == "agent":
        assert not {"libs.kube", "kubernetes_asyncio"} & modules


async def test_the_bus_of_an_agent_loads_no_library_for_http() -> None:
    code = "import libs.bus.nats.bus, sys; print('aiohttp' in sys.modules); import aiohttp"
    assert (await run_python("-c", code))[:2] == (0, "False\n")


_READS_OF_CERTIFICATES = """
import ssl, sys
reads = []
def note(frame, event, what):
    if event == "c_call" and what.__name__ == "set_default_verify_paths":
        reads.append(what)
sys.setprofile(note)
import libs.kube.http
print(len(reads))
ssl.create_default_context()
print(len(reads))
"""


async def test_the_systems_certificates_are_read_only_for_a_context_that_is_used() -> None:
    assert (await run_python("-c", _READS_OF_CERTIFICATES))[:2] == (0, "0\n1\n")


async def test_the_gate_of_a_driver_pod_imports_neither_bus_nor_kubernetes() -> None:
    modules = await imported_by("driver", "gate")
    assert "services.driver.node.gate_program" in modules
    assert not {"libs.bus", "nats", "libs.kube", "services.driver.cluster"} & modules


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Programs]:
    async with run_programs(tmp_path) as programs:
        yield programs


async def create_node(programs: Programs, **labels: str) -> str:
    body = {
        "metadata": {"name": "a", "labels": labels},
        "status": {"nodeInfo": {"bootID": BOOT}},
    }
    return (await programs.kube.create(NODES, body)).metadata.uid


async def test_facts_of_a_discovery_agent_become_labels(programs: Programs) -> None:
    machine = FakeMachine(programs.folder / "machine")
    put_device(machine.root, "0000:01:00.0")
    await programs.install(lease=discovery.LEASE)
    uid = await create_node(programs)
    # Both programs start before the streams exist.
    role = await programs.start_role("discovery")
    agent = await programs.start_agent("discovery", host=machine.root, node="a", node_uid=uid)
    await programs.create_streams()

    async def is_labelled() -> bool:
        labels = (await programs.kube.get(NODES, "a")).metadata.labels
        return labels.get("nvidia.com/gpu.present") == "true"

    await eventually(is_labelled, within=60, every=0.05)
    for child in (agent, role):
        await child.end(signal.SIGTERM, code=0)
    verbs = [
        revision.verb
        for revision in programs.server.journal.revisions
        if revision.user == "discovery-cluster" and revision.kind == "Node"
    ]
    assert verbs == ["apply"]


async def test_operands_do_not_wait_for_the_bus_but_readiness_does(programs: Programs) -> None:
    await programs.nats.stop()
    await programs.install(lease=driver.LEASE)
    policy = cluster_policy()
    del policy["metadata"]["uid"]
    for obj in (*crd_manifests().values(), policy):
        await apply(programs.server.transport(user="person"), obj)
    child = await programs.start_role("driver", **IMAGES)

    async def is_rendered() -> bool:
        page = await programs.kube.list_page(DAEMON_SETS, namespace=NAMESPACE)
        return "sluice-validator-agent" in {each.metadata.name for each in page.items}

    await eventually(is_rendered, within=60, every=0.05)
    assert "driver-cluster is waiting for NATS" in child.log
    assert "phase=ready" not in child.log
    await programs.nats.start()
    await programs.create_streams()
    await child.wait_for_log("phase=ready")
    assert "service=driver-cluster" in child.log
    await child.end(signal.SIGTERM, code=0)


async def test_evidence_of_a_validator_is_on_the_page_of_the_role(programs: Programs) -> None:
    uid = await create_node(programs, **{"nvidia.com/gpu.present": "true"})
    role = await programs.start_role("validator")
    await role.wait_for_log("phase=ready")
    await programs.create_streams()
    evidence = Evidence(
        epoch=1, token=1, op=1, passed=True, label="", node_uid=uid, boot_id=BOOT, kernel="5.15",
        steps=(ValidationStep(name="driver", passed=True),), at=1.0,
    )  # fmt: skip
    report = Report.of(
        evidence, node="a", node_uid=uid, boot_id=BOOT, component="validator", at=1.0
    )
    subject = subjects.State(cluster="default", node="a", component="validator", kind="evidence")
    async with programs.connect(Writer.VALIDATOR, node="a") as bus:
        await bus.store(STATE, str(subject), encode(report))
    url = await address_of(role, "metrics server")
    sample = 'gpu_operator_node_driver_validation{node="a"} 1.0'
    async with aiohttp.ClientSession() as session:

        async def is_shown() -> bool:
            async with session.get(f"{url}/metrics") as response:
                return sample in await response.text()

        await eventually(is_shown, within=60, every=0.1)
    await role.end(signal.SIGTERM, code=0)


async def test_a_telemetry_agent_without_a_driver_serves_pages_and_is_unready(
    programs: Programs,
) -> None:
    machine = FakeMachine(programs.folder / "machine")
    agent = await programs.start_agent(
        "telemetry",
        host=machine.root,
        node="a",
        node_uid="uid-1",
        exporter_host="127.0.0.1",
        exporter_port="0",
    )
    exporter, metrics, probes = [
        await address_of(agent, name) for name in ("exporter", "metrics server", "probe server")
    ]
    async with aiohttp.ClientSession() as session:

        async def get(url: str) -> tuple[int, str, str]:
            async with session.get(url) as response:
                return response.status, response.headers["Content-Type"], await response.text()

        status, content_type, text = await get(f"{exporter}/metrics")
        assert (status, text) == (200, "")
        assert content_type.startswith("text/plain; version=0.0.4")
        assert (await get(f"{exporter}/health"))[::2] == (200, "OK")

        async def is_unready() -> bool:
            status, _, text = await get(f"{probes}/readyz")
            return status == 503 and "gpus: no NVIDIA driver is loaded" in text

        await eventually(is_unready)
        status, _, text = await get(f"{metrics}/metrics")
        assert status == 200
        families = {family.name for family in text_string_to_metric_families(text)}
        assert {"sluice_telemetry_sweeps", "sluice_telemetry_unsent_batches"} <= families
    await agent.end(signal.SIGTERM, code=0)


async def test_a_validator_agent_serves_the_state_of_its_node(programs: Programs) -> None:
    machine = FakeMachine(programs.folder / "machine")
    put(machine.root, CUDA, "")
    agent = await programs.start_agent(
        "validator",
        host=machine.root,
        node="a",
        node_uid="uid-a",
        export_node_status="true",
        node_status_host="127.0.0.1",
        node_status_port="0",
    )
    page = await address_of(agent, "node status page")
    async with aiohttp.ClientSession() as session:

        async def is_shown() -> bool:
            async with session.get(f"{page}/metrics") as response:
                text = await response.text()
            return 'gpu_operator_node_cuda_ready{node="a"} 1.0' in text

        await eventually(is_shown)
    await agent.end(signal.SIGTERM, code=0)
