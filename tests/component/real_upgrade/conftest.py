"""The real control plane's binaries, or why there are none."""

import os

import pytest

from libs.testing.realkube.binaries import Binaries, find_binaries

SEARCH = find_binaries(os.environ)


@pytest.fixture
def binaries() -> Binaries:
    """Each test starts a control plane of its own: its audit log is of that test alone."""
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.explanation)
    return SEARCH.binaries
