"""The real control plane's binaries, or the reason to skip."""

import os

import pytest

from libs.testing.realkube.binaries import Binaries, find_binaries

SEARCH = find_binaries(os.environ)


@pytest.fixture
def binaries() -> Binaries:
    """Each test starts a control plane of its own, because it reads the audit log."""
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.explanation)
    return SEARCH.binaries
