"""The command-line options of the demo."""

import os
import subprocess
import sys

import pytest

from demo.environment import KILLABLE
from demo.options import Options, parse_options
from libs.contracts.identities import CLUSTER_WRITERS, COMPONENTS, Writer


def test_default_options() -> None:
    assert parse_options([]) == Options(
        nodes=12, seed=0, speed=1.0, kill="", real=False, once=False, no_tty=False
    )


def test_all_options_are_parsed() -> None:
    arguments = [
        "--nodes",
        "2",
        "--seed",
        "7",
        "--kill",
        "driver-cluster",
        "--speed",
        "2.5",
        "--real",
        "--once",
        "--no-tty",
    ]
    assert parse_options(arguments) == Options(
        nodes=2, seed=7, speed=2.5, kill="driver-cluster", real=True, once=True, no_tty=True
    )


def test_every_service_and_agent_can_be_killed() -> None:
    absent = {Writer.CTL, Writer.SIGN_IN, Writer.DRA}
    assert set(KILLABLE) == {*CLUSTER_WRITERS, *COMPONENTS} - absent
    for writer in KILLABLE:
        assert parse_options(["--kill", writer]).kill == writer


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--nodes", "0"], "'0' is not a number from 1 to 24"),
        (["--nodes", "25"], "'25' is not a number from 1 to 24"),
        (["--nodes", "x"], "'x' is not a number from 1 to 24"),
        (["--speed", "0"], "'0' is not a number from 0.1 to 10"),
        (["--speed", "fast"], "'fast' is not a number from 0.1 to 10"),
        (["--kill", "node-1"], "choose from 'scheduler', 'discovery-cluster'"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_invalid_options_are_refused(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["", "<&-"])
def test_output_without_room_is_one_line(closed: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'"$@" > /dev/full {closed}', "sh", sys.executable, "-m", "demo", "--no-tty"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == "\nThe demo failed: OSError: [Errno 28] No space left on device\n"
