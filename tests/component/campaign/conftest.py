"""Print the number of campaign seeds that ran."""

import pytest

from tests.summary import TALLY

SEEDS = "seeds of the campaign, the whole system; `python -m tools.soak campaign` runs more"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "campaign/test_campaign.py::test_every_seed" in item.nodeid:
            item.user_properties.append((TALLY, SEEDS))
