"""What the driver agent sees of its machine in one look, and what follows from it at the gate.

The rules are those of docs/states.md#gate. A look blocks; what follows from it is pure.
"""

from collections.abc import Mapping

import msgspec

from libs.contracts.reports import Holder
from libs.host import driver_files, gate, holders, modules, system
from libs.host.gate import GateAnswer, GateRequest
from libs.host.modules import Module
from libs.host.tree import Tree


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A machine at one moment."""

    kernel: str
    modules: Mapping[str, Module]
    asked: tuple[GateRequest, ...] = ()
    answered: tuple[GateAnswer, ...] = ()
    living: frozenset[str] = frozenset()
    """Uids of pods that were let in, and of which a container is on the machine."""
    holders: tuple[Holder, ...] = ()
    ready: bool = False
    """The driver container says that it is up."""

    @property
    def driver(self) -> Module | None:
        """The driver's main module, if it is loaded."""
        return self.modules.get(modules.DRIVER)

    def running(self, label: str, *, besides: str = "") -> GateAnswer | None:
        """The pod that was let in with this label and counts as the running driver.

        It does so whatever its container does, until somebody newer stands at the gate with the
        same label: then its pod is gone.
        """
        for answer in reversed(self.answered):
            if answer.label != label or answer.pod_uid == besides:
                continue
            newer = self.waiting(label)
            overtaken = newer is not None and newer.started > answer.at
            if answer.pod_uid in self.living or not overtaken:
                return answer
        return None

    def waiting(self, label: str) -> GateRequest | None:
        """The latest who asks for this label and was not let in."""
        let_in = {answer.pod_uid for answer in self.answered}
        asking = (one for one in self.asked if one.label == label and one.pod_uid not in let_in)
        return max(asking, key=lambda one: (one.started, one.pod_uid), default=None)

    def lingering(self, keeping: str = "") -> tuple[str, ...]:
        """Pods that were let in and still have a container here, but for the one that is kept."""
        return tuple(sorted(self.living - {keeping}))


def inspect_machine(tree: Tree) -> Inspection:
    """Blocks."""
    answered = gate.list_answers(tree)
    kernel = system.kernel(tree)
    return Inspection(
        kernel=kernel.release if kernel else "",
        modules=modules.loaded(tree),
        asked=gate.list_requests(tree),
        answered=answered,
        living=frozenset(
            answer.pod_uid for answer in answered if holders.containers(tree, answer.pod_uid)
        ),
        holders=holders.holders(tree),
        ready=tree.exists(driver_files.READY),
    )


def describe_holders(found: tuple[Holder, ...], most: int = 5) -> str:
    """Processes as a person finds them again."""
    words = [
        f"{one.comm or '?'} (pid {one.pid}{f', pod {one.pod_uid}' if one.pod_uid else ''})"
        for one in found[:most]
    ]
    rest = len(found) - most
    return ", ".join(words) + (f" and {rest} more" if rest > 0 else "") if words else "nobody seen"
