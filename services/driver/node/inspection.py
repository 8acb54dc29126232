"""An inspection of a machine, with the rules of the gate (docs/states.md#gate)."""

from collections.abc import Mapping

import msgspec

from libs.contracts.reports import Holder
from libs.contracts.words import first_few
from libs.host import driver_files, gate, holders, host_driver, modules, system
from libs.host.gate import GateAnswer, GateRequest
from libs.host.modules import Module
from libs.host.tree import Tree


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A machine at one moment."""

    kernel: str
    modules: Mapping[str, Module]
    requests: tuple[GateRequest, ...] = ()
    answers: tuple[GateAnswer, ...] = ()
    live_pods: frozenset[str] = frozenset()
    """Uids of admitted pods that have a container on the machine."""
    holders: tuple[Holder, ...] = ()
    preinstalled: bool = False
    """Whether the loaded driver came with the machine."""
    ready: bool = False
    """Whether the driver container has written its ready file."""

    @property
    def driver(self) -> Module | None:
        """The driver's main module, if it is loaded."""
        return self.modules.get(modules.DRIVER)

    def running(self, label: str, *, besides: str = "") -> GateAnswer | None:
        """Return the admitted pod with this label that counts as the running driver.

        It counts, with or without a container, until a newer pod waits with the same label: then
        the admitted pod is gone.
        """
        for answer in reversed(self.answers):
            if answer.label != label or answer.pod_uid == besides:
                continue
            newer = self.waiting(label)
            replaced = newer is not None and newer.started > answer.at
            if answer.pod_uid in self.live_pods or not replaced:
                return answer
        return None

    def waiting(self, label: str) -> GateRequest | None:
        """Return the latest request with this label that is not admitted."""
        admitted = {answer.pod_uid for answer in self.answers}
        requests = (
            request
            for request in self.requests
            if request.label == label and request.pod_uid not in admitted
        )
        return max(requests, key=lambda each: (each.started, each.pod_uid), default=None)

    def lingering(self, kept: str = "") -> tuple[str, ...]:
        """Return the admitted pods, except `kept`, that still have a container on the machine."""
        return tuple(sorted(self.live_pods - {kept}))


def inspect_machine(tree: Tree) -> Inspection:
    """Inspect the machine. Blocks: the inspection reads all processes."""
    answers = gate.list_answers(tree)
    kernel = system.kernel(tree)
    return Inspection(
        kernel=kernel.release if kernel else "",
        modules=modules.loaded(tree),
        requests=gate.list_requests(tree),
        answers=answers,
        live_pods=frozenset(
            answer.pod_uid for answer in answers if holders.containers(tree, answer.pod_uid)
        ),
        holders=holders.holders(tree),
        preinstalled=host_driver.is_loaded(tree),
        ready=tree.exists(driver_files.READY),
    )


def describe_holders(found: tuple[Holder, ...], limit: int = 5) -> str:
    """Describe processes by name, pid and pod."""
    words = [
        f"{each.comm or '?'} (pid {each.pid}{f', pod {each.pod_uid}' if each.pod_uid else ''})"
        for each in found
    ]
    return first_few(words, limit) or "no process found"
