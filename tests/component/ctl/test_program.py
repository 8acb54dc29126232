"""The program itself: what it imports, its help, and its name for kubectl."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.ctl.world import World, make_world, rollout_status, run_command

HEAVY = (
    "aiohttp", "kubernetes_asyncio", "nats", "nkeys", "prometheus_client", "rich", "structlog",
    "yaml",
)  # fmt: skip
"""Packages that take tens of milliseconds to import. structlog imports rich."""
PROGRAM = f"""
import sys
from libs.ctl.command import main
code = main(sys.argv[1:])
heavy = [name for name in {HEAVY!r} if name in sys.modules]
print(*heavy, *(name for name in sys.modules if name == "libs.ctl.watch"), file=sys.stderr)
sys.exit(code)
"""
VERBS = ["status", "why", "plan", "events", "watch", "gpus", "web", "version", "upgrade"]
STEERING = ["pause", "resume", "freeze", "release", "retry", "skip", "unskip", "adopt", "forget"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with make_world(tmp_path) as made:
        await made.add_rollout(**rollout_status())
        yield made


def imported(*arguments: str, **environ: str) -> set[str]:
    """Run the program, which must end well; return the heavy packages that it imported."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_help_and_version_import_no_heavy_package() -> None:
    assert imported("status", "--help") == set()
    assert imported("version", "-o", "json") == set()


async def test_a_verb_imports_only_what_it_needs(world: World) -> None:
    kubernetes = {"aiohttp", "yaml"}
    environ = {"KUBECONFIG": world.environ["KUBECONFIG"]}
    paused = await asyncio.to_thread(imported, "upgrade", "pause", **environ)
    assert paused == kubernetes
    status = await asyncio.to_thread(imported, "status", **environ)
    assert status == kubernetes | {"rich"}


@pytest.mark.parametrize("verb", [*VERBS, *(f"upgrade {each}" for each in STEERING)])
def test_each_help_has_an_example_that_fits_40_columns(verb: str) -> None:
    ended = run_command(*verb.split(), "--help", COLUMNS="40")
    assert ended.code == 0
    if verb != "upgrade":
        assert f"\n  sluice {verb}" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 60


def test_the_help_lists_all_verbs_and_exit_codes() -> None:
    ended = run_command("--help", COLUMNS="80")
    for verb in VERBS:
        assert f"\n  {verb} " in ended.out
    assert "6 refused" in " ".join(ended.out.split())


@pytest.mark.parametrize(
    "arguments", [("statux",), ("status", "--nope"), ("why",), ("status", "-o", "xml")]
)
def test_wrong_arguments_end_with_2(arguments: tuple[str, ...]) -> None:
    ended = run_command(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("sluice: ")
    assert ended.err.count("\n") == 1


def test_the_short_option_for_help_is_there_for_each_verb() -> None:
    assert run_command("-h") == run_command("--help")
    assert run_command("upgrade", "start", "-h") == run_command("upgrade", "start", "--help")


def in_shell(
    redirection: str, *arguments: str, **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Run the program as a shell does that redirects its output."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "-m", "libs.ctl", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.getcwd(),
            "HOME": "/nonexistent",
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("output", [(), ("-o", "json"), ("-o", "yaml")])
def test_output_without_room_is_one_line_and_a_closed_one_is_left_out(
    output: tuple[str, ...],
) -> None:
    full = in_shell("> /dev/full", "version", *output)
    assert (full.returncode, full.stdout) == (1, "")
    assert full.stderr == "sluice: the output cannot be written: No space left on device\n"
    closed = in_shell(">&-", "version", *output)
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, "", "")
    assert in_shell("| true", "version", *output).stderr == ""


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full"])
def test_a_failure_that_cannot_be_told_still_has_its_exit_code(redirection: str) -> None:
    failed = in_shell(redirection, "status")
    assert (failed.returncode, failed.stdout, failed.stderr) == (3, "", "")


def test_what_the_encoding_of_the_terminal_lacks_is_a_question_mark() -> None:
    failed = in_shell("", "status", "--kubeconfig", "/ü…", PYTHONIOENCODING="ascii")
    assert (failed.returncode, "kubeconfig /??: " in failed.stderr) == (3, True)


def test_an_argument_that_is_no_text_is_one_line() -> None:
    asked = ("why", "\udcff", "--kubeconfig", "/none", "--nats", "\udcfe://x")
    failed = in_shell("", *asked)
    assert (failed.returncode, failed.stderr.count("\n")) == (3, 1), failed.stderr


def test_a_nats_server_that_is_away_is_told_without_numbers() -> None:
    failed = in_shell("", "events", "--nats", "nats://127.0.0.1:1", "--nkey-seed-file", "")
    assert failed.returncode == 3
    assert "within 3 s: connection refused: nothing listens there; check the" in failed.stderr


@pytest.mark.parametrize("plugin", ["false", "no-such-plugin"])
def test_a_plugin_that_fails_is_one_line(plugin: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: a, user: {exec: {apiVersion: client.authentication.k8s.io/v1,"
        f" command: '{plugin}', interactiveMode: Never}}}}}}]\n"
    )
    failed = in_shell("", "status", "--kubeconfig", str(config))
    assert (failed.returncode, failed.stderr.count("\n")) == (3, 1), failed.stderr
    assert f"the plugin '{plugin}'" in failed.stderr


def test_kubectl_finds_the_command_as_its_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-sluice"])
    assert run_command("status", "--help").out.startswith("Usage: kubectl sluice status")
