"""The fleet, the policy and the people of both columns, and the factor that scales their time."""

from pathlib import Path
from typing import Any, Final

import msgspec

from bench.incumbent.world import CALM, TROUBLED, ScaledWorld
from demo.admin import POLICY

OLD = "570.86.15"
KUBELETS: Final = "system:kubelets"
INCUMBENT: Final = "incumbent"
"""User and group of the incumbent's controller at the API server."""

FACTOR: Final = 10.0
REQUEUE: Final = 120.0
"""Seconds from one pass of the incumbent to the next, before scaling."""

SEED: Final = 7
MAX_UNAVAILABLE: Final = "25%"
FAILURE_THRESHOLD: Final = "10%"
"""Ours only: with the default, 5 % of 20 nodes, the first failed node halts the rollout."""
_BUSY: Final = 0.6
_OFF: Final = ("toolkit", "devicePlugin", "dcgm", "dcgmExporter", "gfd")
"""Operands that neither column runs."""
HORIZON: Final = 3 * 3600.0
"""When a column ends that makes no progress, before scaling."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One upgrade of the fleet."""

    title: str
    before: str
    target: str
    troubled: bool
    """Whether the new driver never loads on the bad node, and people cordon nodes."""


STAGES: Final = (
    Stage(title="nothing goes wrong", before=OLD, target="580.95.05", troubled=False),
    Stage(
        title="a driver that never loads on one node, two cordons of a person",
        before="580.95.05",
        target="580.105.08",
        troubled=True,
    ),
)
"""What every column plays, in this order."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    nodes: int
    factor: float = FACTOR

    @property
    def names(self) -> list[str]:
        """The nodes in the order of the API server."""
        return [f"node-{number:05d}" for number in range(self.nodes)]

    @property
    def parallel(self) -> int:
        """The policy's `maxParallelUpgrades`."""
        return max(1, self.nodes // 5)

    def within(self, seconds: float) -> float:
        """Return how long something may take on this fleet that takes less on 20 nodes."""
        return seconds * max(1.0, self.nodes / 20)

    @property
    def bad_node(self) -> str:
        """The node on which the new driver never loads."""
        return self.names[self.nodes // 3]

    @property
    def cordoned_before(self) -> str:
        """The node that a person cordons before the change of the driver."""
        return self.names[self.nodes // 2]

    def is_busy(self, name: str) -> bool:
        """Whether a node has work, as three of five have, spread evenly over the list."""
        number = self.names.index(name)
        return int((number + 1) * _BUSY) > int(number * _BUSY)

    def world(self, folder: Path) -> ScaledWorld:
        """Return the world; `folder` is what the processes of a column share."""
        return ScaledWorld(
            seed=SEED, factor=self.factor, bad_node=self.bad_node, stage=stage_file(folder)
        )


def stage_file(folder: Path) -> Path:
    """Exists from the first change of the driver on, with `CALM` or `TROUBLED` as its content."""
    return folder / "stage"


def begin(stage: Stage, folder: Path) -> None:
    """Let the world's durations apply from now on."""
    stage_file(folder).write_text(TROUBLED if stage.troubled else CALM)


def cluster_policy(plan: Plan) -> dict[str, Any]:
    """Return the policy of both columns, with the upgrade policy as Helm's values write it."""
    deletion = {"force": False, "timeoutSeconds": 300, "deleteEmptyDir": False}
    upgrade = {
        "autoUpgrade": True,
        "maxParallelUpgrades": plan.parallel,
        "maxUnavailable": MAX_UNAVAILABLE,
        "waitForCompletion": {"podSelector": "", "timeoutSeconds": 0},
        "podDeletion": deletion,
        "drain": {"enable": False, "podSelector": "", **deletion},
    }
    driver = {"repository": "nvcr.example/nvidia", "image": "driver", "version": OLD}
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            **{section: {} for section in ("operator", "daemonsets", "nodeStatusExporter")},
            **{section: {"enabled": False} for section in _OFF},
            "driver": {**driver, "upgradePolicy": upgrade},
        },
    }
