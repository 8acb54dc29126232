"""Lists of metrics in dcgm-exporter's CSV format."""

import pytest

from services.telemetry.fields import FIELDS, UNAVAILABLE
from services.telemetry.metric_list import DEFAULT_LIST, LineProblem, ParsedList, parse_list

GPU_TEMP = "DCGM_FI_DEV_GPU_TEMP"


def names(parsed: ParsedList) -> list[str]:
    return [metric.field.name for metric in parsed.metrics.metrics]


def problem(line: str) -> str:
    """Return the only problem of a list with this line; the line before it counts."""
    parsed = parse_list(f"DCGM_FI_DEV_SM_CLOCK, gauge, Clock.\n{line}\n")
    assert names(parsed) == ["DCGM_FI_DEV_SM_CLOCK"]
    (found,) = parsed.problems
    assert found.line == 2
    return found.reason


def test_a_list_names_metrics_with_its_own_types_and_help_texts() -> None:
    parsed = parse_list(
        "# Format: field, type, help\n"
        "\n"
        f"{GPU_TEMP}, gauge, How warm (in C).\n"
        "   # indented\n"
        'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL ,counter , "Errors, double-bit."\r\n'
        "DCGM_FI_DRIVER_VERSION, label, Driver Version\n"
        "DCGM_FI_DEV_PSTATE, label, As a label\n"
    )
    assert parsed.problems == ()
    assert [(each.field.name, each.type, each.help) for each in parsed.metrics.metrics] == [
        (GPU_TEMP, "gauge", "How warm (in C)."),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Errors, double-bit."),
    ]
    labels = [label.name for label in parsed.metrics.labels]
    assert labels == ["DCGM_FI_DEV_PSTATE", "DCGM_FI_DRIVER_VERSION"]


def test_the_default_list_of_dcgm_exporter_is_the_default() -> None:
    text = "".join(
        f"{each.field.name}, {each.type}, {each.help}\n" for each in DEFAULT_LIST.metrics
    )
    parsed = parse_list(text + "DCGM_FI_DRIVER_VERSION, label, Driver Version\n")
    assert parsed == ParsedList(metrics=DEFAULT_LIST)


LIST = "docs/metrics.md lists the fields that exist"
COUNT = (
    "parts instead of field, type and help: separate three parts by commas, and quote a help text"
    " that has commas itself"
)
TYPES = "write one of gauge, counter, histogram, summary, label"
PEERS = "the agent does not read which GPUs reach each other"
REASONS = {
    "DCGM_FI_DEV_X, gauge, x": f"the field 'DCGM_FI_DEV_X' is not known: correct its name; {LIST}",
    "DCGM_EXP_P2P_STATUS, gauge, x": (
        f"DCGM_EXP_P2P_STATUS cannot be measured: {PEERS}; remove the line"
    ),
    f"{GPU_TEMP}, gauge": f"it has 2 {COUNT}",
    f"{GPU_TEMP}, gauge, warm, and warmer": f"it has 4 {COUNT}",
    f"{GPU_TEMP}, Gauge, x": f"the type of {GPU_TEMP} is 'Gauge': {TYPES}",
    "DCGM_FI_DRIVER_VERSION, gauge, x": (
        "the type of DCGM_FI_DRIVER_VERSION is 'gauge', but its value is a text: write label"
    ),
    "DCGM_FI_DEV_SM_CLOCK, gauge, again": (
        "DCGM_FI_DEV_SM_CLOCK is in line 1, too: remove one of the lines"
    ),
}


@pytest.mark.parametrize("line", REASONS)
def test_a_line_that_cannot_be_used_is_left_out_with_the_reason(line: str) -> None:
    assert problem(line) == REASONS[line]


@pytest.mark.parametrize("line", ['"', '"a', "\0", "a" * 100_000, "x,\ud7ff,y", ",,", '"a"b, c, d'])
def test_any_line_is_parsed(line: str) -> None:
    assert len(problem(line)) < 300


def test_a_problem_names_its_line() -> None:
    assert str(LineProblem(line=7, reason="it is wrong")) == "line 7: it is wrong"


def test_no_field_is_both_available_and_not() -> None:
    assert FIELDS.keys() & UNAVAILABLE.keys() == set()
