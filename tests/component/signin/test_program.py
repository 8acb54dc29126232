"""The program of sign-in: its settings, and its start without a server that it needs."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from libs.bus.callout import new_seeds
from libs.testing.apiserver.server import ApiServer
from tests.component.signin.world import ENVIRON, STARTED, World


async def run(environ: Mapping[str, str], *arguments: str) -> tuple[int | None, str]:
    """Return the exit code and the output of the program."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "services.signin", "server", *arguments),
        env={**ENVIRON, **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


def settings(folder: Path) -> dict[str, str]:
    signing, xkey = new_seeds()
    (folder / "signing").write_text(signing)
    (folder / "xkey").write_text(xkey)
    return {
        "SLUICE_NAMESPACE": "gpu-operator",
        "SLUICE_SIGNING_SEED_FILE": str(folder / "signing"),
        "SLUICE_XKEY_SEED_FILE": str(folder / "xkey"),
    }


async def test_the_configuration_is_shown_without_secrets(tmp_path: Path) -> None:
    environ = settings(tmp_path)
    code, output = await run(environ, "--print-config")
    assert code == 0
    for name, value in environ.items():
        assert f"{name}={value}" in output
    assert "SLUICE_TOKENS_JWKS_URL=" in output
    assert not [line for line in output.splitlines() if "=SA" in line or "=SX" in line]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("NEXT_SIGNING_SEED_FILE", "/next", "next_xkey_seed_file are a pair: set both or neither"),
        ("TOKENS_JWKS_URL", "http://keys.example", "'http://keys.example' is no https:// address"),
        ("NAMESPACE", "", "SLUICE_NAMESPACE is not set"),
    ],
)
async def test_settings_that_do_not_fit(tmp_path: Path, name: str, value: str, why: str) -> None:
    code, output = await run(settings(tmp_path) | {f"SLUICE_{name}": value})
    assert (code, why in output) == (2, True)


async def test_a_seed_file_that_holds_something_else(tmp_path: Path) -> None:
    environ = settings(tmp_path)
    (tmp_path / "xkey").write_text("SUAM-not-a-curve-key")
    code, output = await run(environ)
    assert code == 1
    assert "are not the seeds of a signing key (SA…) and a curve key (SX…)" in output
    assert "SUAM-not-a-curve-key" not in output


async def test_it_waits_for_the_api_server_before_it_answers(
    world: World, apiserver: ApiServer
) -> None:
    await apiserver.stop()
    child = await world.start(until="the keys of tokens cannot be read")
    assert STARTED not in child.log
    await apiserver.start()
    await child.wait_for_log(STARTED)
    assert child.log.index("keys of tokens read") < child.log.index(STARTED)
    await child.end(signal.SIGTERM, code=0)
