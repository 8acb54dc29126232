"""What the demo can be asked for, and what it refuses."""

import pytest

from demo.cli import Options, parse_options
from demo.environment import KILLABLE
from libs.contracts.identities import CLUSTER_WRITERS, COMPONENTS, Writer


def test_without_a_word_it_is_three_machines_until_ctrl_c() -> None:
    assert parse_options([]) == Options(nodes=3, seed=0, kill="", bad_driver=False, once=False)


def test_every_word_has_its_place() -> None:
    said = ["--nodes", "2", "--seed", "7", "--kill", "driver-cluster", "--bad-driver", "--once"]
    assert parse_options(said) == Options(
        nodes=2, seed=7, kill="driver-cluster", bad_driver=True, once=True
    )


def test_each_service_of_the_cluster_and_each_agent_of_a_machine_can_be_killed() -> None:
    assert set(KILLABLE) == {*CLUSTER_WRITERS, *COMPONENTS} - {Writer.CTL, Writer.PLUGIN}
    for writer in KILLABLE:
        assert parse_options(["--kill", writer]).kill == writer


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--nodes", "0"], "invalid choice"),
        (["--nodes", "x"], "invalid int value: 'x'"),
        (["--kill", "node-1"], "choose from 'scheduler', 'discovery-cluster'"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_what_it_does_not_know_is_refused(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
