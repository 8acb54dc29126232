"""Arguments and settings of a program."""

import pytest

from tests.component.runtime.example_process import Launch


def test_wrong_settings_are_reported_together_and_exit_2(launch: Launch):
    program = launch(SLUICE_BEHAVIOUR="dance", SLUICE_DRAIN="soon", SLUICE_LOGLEVEL="info")
    assert program.end() == 2
    assert program.lines == [
        "SLUICE_DRAIN='soon' (environment): expected a duration such as 30s, 5m or 1h30m",
        (
            "SLUICE_BEHAVIOUR='dance' (environment): expected one of block, crash, hang, lost,"
            " return, serve, stuck"
        ),
        "SLUICE_LOGLEVEL (environment) is not a setting: did you mean SLUICE_LOG_LEVEL?",
    ]


def test_print_config_lists_settings_and_starts_nothing(launch: Launch):
    program = launch("both", "--print-config", SLUICE_LOG_LEVEL="warning")
    assert program.end() == 0
    assert [" ".join(line.split()) for line in program.out.splitlines()] == [
        "SLUICE_LOG_FORMAT=auto # default",
        "SLUICE_LOG_LEVEL=warning # environment",
        "SLUICE_METRICS_HOST=127.0.0.1 # environment",
        "SLUICE_METRICS_PORT=0 # environment",
        "SLUICE_PROBES_HOST=127.0.0.1 # environment",
        "SLUICE_PROBES_PORT=0 # environment",
        "SLUICE_DRAIN=25s # default",
        "SLUICE_BEHAVIOUR=serve # default",
    ]
    assert program.lines == []


def test_settings_are_not_read_for_another_role(launch: Launch):
    program = launch("chore", SLUICE_BEHAVIOUR="dance")
    assert program.end() == 7
    assert program.lines == []


@pytest.mark.parametrize(
    ("role", "called"), [("calm", "example-calm"), ("example", "example"), ("both", "odd")]
)
def test_a_role_is_named_by_service_and_role(launch: Launch, role: str, called: str):
    program = launch(role)
    program.until("phase entered", phase="ready", service=called)
    program.signal()
    assert program.end() == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("odd",), "unknown role odd: expected one of both, calm, chore, example"),
        (
            ("--print-config",),
            "unknown role --print-config: expected one of both, calm, chore, example",
        ),
        (("",), "no role given: expected one of both, calm, chore, example"),
    ],
)
def test_a_missing_or_unknown_role_lists_the_roles(
    launch: Launch, arguments: tuple[str, ...], why: str
):
    program = launch(*arguments)
    assert program.end() == 2
    assert program.lines == [why]


@pytest.mark.parametrize(
    ("arguments", "unknown"),
    [
        (("both", "--port", "80"), "--port"),
        (("both", "--print-config", "80"), "80"),
        (("chore", "--print-config"), "--print-config"),
    ],
)
def test_an_unknown_argument_is_refused(launch: Launch, arguments: tuple[str, ...], unknown: str):
    program = launch(*arguments)
    assert program.end() == 2
    assert program.lines == [
        (
            f"unknown argument {unknown}: settings come from SLUICE_* variables and the file that"
            " SLUICE_CONFIG names; --print-config shows those of a service"
        )
    ]
