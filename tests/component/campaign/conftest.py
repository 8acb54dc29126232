"""Says at the end how many seeds of the campaign were played."""

import pytest

PLAYED = pytest.StashKey[list[int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PLAYED] = []


@pytest.fixture
def played_seeds(request: pytest.FixtureRequest) -> list[int]:
    """To which each test adds what it has played."""
    return request.config.stash[PLAYED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seeds = terminalreporter.config.stash.get(PLAYED, [])
    if seeds:
        terminalreporter.write_line(
            f"Campaign: {len(seeds)} seeds of the whole system; `python -m tools.soak campaign`"
            " plays more"
        )
