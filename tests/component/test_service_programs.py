"""The programs of the services: their settings on the command line, and what each role imports."""

import asyncio
import os
import sys

import pytest

ROLES = [
    (service, role)
    for service in ("discovery", "driver", "telemetry", "validator")
    for role in ("agent", "cluster")
]
IMAGES = {
    f"SLUICE_IMAGES_{service.upper()}": "r.example/i:1"
    for service, role in ROLES
    if role == "agent"
}
NAMESPACE = {"SLUICE_NAMESPACE": "here", "SLUICE_NATS_CLUSTER": "east"}
OTHER_ROLE = {"agent": "cluster", "cluster": "node"}


async def run_python(*arguments: str, **environ: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", *arguments),
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **environ},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


@pytest.mark.parametrize(("service", "role"), ROLES)
async def test_print_config_shows_the_settings_of_a_role(service: str, role: str) -> None:
    environ = {"SLUICE_NODE": "a", "SLUICE_NATS_CLUSTER": "east"} if role == "agent" else NAMESPACE
    if (service, role) == ("driver", "cluster"):
        environ = NAMESPACE | IMAGES
    out = await run_python("-m", f"services.{service}", role, "--print-config", **environ)
    lines = {line.split("#")[0].strip() for line in out.splitlines()}
    assert {f"{name}={value}" for name, value in environ.items()} <= lines


@pytest.mark.parametrize(("service", "role"), ROLES)
async def test_a_role_imports_neither_the_other_role_nor_its_libraries(
    service: str, role: str
) -> None:
    code = (
        f"import sys; from services.{service} import __main__ as program;"
        f"program.{role}_role(); print(*sys.modules, sep='\\n')"
    )
    modules = set((await run_python("-c", code)).splitlines())
    assert f"services.{service}.{OTHER_ROLE[role]}" not in modules
    assert f"services.{service}.{'node' if role == 'agent' else 'cluster'}" in modules
    if role == "agent":
        assert not {"libs.kube", "kubernetes_asyncio"} & modules


async def test_the_gate_of_a_driver_pod_imports_neither_bus_nor_kubernetes() -> None:
    code = (
        "import sys; from services.driver import __main__ as program;"
        "program.gate_role(); print(*sys.modules, sep='\\n')"
    )
    modules = set((await run_python("-c", code)).splitlines())
    assert not {"libs.bus", "nats", "libs.kube", "services.driver.cluster"} & modules
