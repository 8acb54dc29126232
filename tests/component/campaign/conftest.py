"""Print the number of campaign seeds that ran."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ran = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if "campaign/test_campaign.py::test_every_seed" in report.nodeid
    ]
    if ran:
        terminalreporter.write_line(
            f"Campaign: {len(ran)} seeds of the whole system;"
            " `python -m tools.soak campaign` runs more"
        )
