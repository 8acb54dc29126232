"""What the demo can be asked for, and what it refuses."""

import pytest

from sluice.demo.__main__ import Options, options


def test_without_a_word_it_is_three_machines_until_ctrl_c() -> None:
    assert options([]) == Options(nodes=3, seed=0, kill="", bad_driver=False, once=False)


def test_every_word_has_its_place() -> None:
    said = ["--nodes", "2", "--seed", "7", "--kill", "driver-cluster", "--bad-driver", "--once"]
    assert options(said) == Options(
        nodes=2, seed=7, kill="driver-cluster", bad_driver=True, once=True
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--nodes", "0"], "invalid choice"),
        (["--kill", "node-1"], "scheduler"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_what_it_does_not_know_is_refused(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        options(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
