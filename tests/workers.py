"""Which tests share a worker because they share processes, and how many workers there are."""

import os
import sys
from enum import Enum

import pytest

from libs.testing.realkube.binaries import find_binaries
from libs.testing.realnodes.ground import find_nodes

_MOST_FOR_CORES = 8
_MOST_FOR_UNITS = 4


class WorkerGroup(Enum):
    """Tests that mostly wait for a kubelet, a lease or a pod; each group occupies one worker.

    The one that takes the longest is the first.
    """

    NODES = "real nodes"
    """One pair for all of them, and then one for an upgrade: two at a time starve each other."""
    INSTALLATIONS = "installations on real nodes"
    """Nodes of their own for each."""
    UPGRADES = "upgrades on a real control plane"
    """One for each."""
    CONTROL_PLANE = "real control plane"
    """One for all of them."""

    def marker(self) -> pytest.MarkDecorator:
        return pytest.mark.xdist_group(self.value)


def for_units() -> int:
    """Return one for each core but one, which checks types meanwhile; 0 is this process."""
    others = min(os.cpu_count() or 1, _MOST_FOR_UNITS) - 1
    return others if others > 1 else 0


def for_all() -> int:
    """Return one for each core, and one for each group that can run."""
    kube = find_binaries(os.environ).binaries is not None
    nodes = find_nodes(os.environ).binaries is not None
    return min(os.cpu_count() or 1, _MOST_FOR_CORES) + 2 * kube + 2 * nodes


if __name__ == "__main__":
    sys.stdout.write(f"{for_units() if sys.argv[1:] == ['units'] else for_all()}\n")
