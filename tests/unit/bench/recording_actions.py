"""Actions that record the calls of the rules and update the nodes."""

from typing import Any

from bench.recreation.nodes import Annotation, IncumbentNode, PassAborted
from libs.contracts.node import UpgradeState as State


class RecordingActions:
    """`lines` has one line per action; a write to the node `broken` ends the pass."""

    def __init__(self, *, now: float = 0.0, broken: str = "", jobs: bool = False) -> None:
        self.now = now
        self.lines: list[str] = []
        self._broken = broken
        self._jobs = jobs

    def read(self, count: int) -> None:
        """Do not record reads."""

    def label(self, node: IncumbentNode, state: State) -> None:
        self._note(node, str(state))
        node.state = state

    def annotate(self, node: IncumbentNode, key: Annotation, value: Any) -> None:
        self._note(node, f"{key}={value}")
        setattr(node, key, value)

    def cordon(self, node: IncumbentNode) -> None:
        self._note(node, "cordon")
        node.cordoned = True

    def uncordon(self, node: IncumbentNode) -> None:
        self._note(node, "uncordon")
        node.cordoned = False

    def jobs_run(self, node: IncumbentNode) -> bool:
        """Return the same for all nodes."""
        return self._jobs

    def evict(self, node: IncumbentNode) -> None:
        self._note(node, "evict")

    def delete_pod(self, node: IncumbentNode) -> None:
        self._note(node, "delete pod")

    def validators(self, node: IncumbentNode) -> list[bool]:
        return node.validators

    def _note(self, node: IncumbentNode, action: str) -> None:
        if node.name == self._broken:
            raise PassAborted(f"{action} of {node.name} was refused")
        self.lines.append(f"{node.name}: {action}")
