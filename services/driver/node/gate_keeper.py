"""The gate outside of any op: it opens for what is proven, and for nothing else.

Proven is what an `idle` says that was read from the slot since this process began
(docs/states.md#gate-3). An agent that cannot read its slot keeps the gate shut and says so.
"""

from typing import Final

from libs.bus.commands.receiver import CommandReceiver
from libs.contracts.commands import Idle, Proven
from libs.contracts.message import MalformedMessage
from libs.host import gate
from libs.host.gate import GateAnswer, GateRequest
from libs.host.machine import Machine
from libs.host.tree import Tree
from libs.runtime.clock import Clock
from services.driver.node.inspection import Inspection, inspect_machine
from services.driver.node.swap import admit

INTERVAL: Final = 1.0
"""Seconds between two looks."""


class GateKeeper:
    """Keeps the gate of one machine while no op does."""

    def __init__(self, *, machine: Machine, desk: CommandReceiver, clock: Clock) -> None:
        self._machine = machine
        self._desk = desk
        self._clock = clock
        self.shut_reason = ""
        """Why somebody who stands at the gate is not let in; empty if nobody does."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.check()
            await self._clock.sleep(INTERVAL)

    async def check(self) -> None:
        """Look once, and open if it may be."""
        proven = self._proven()
        tree = self._machine.tree
        if await self._machine.offload.do(lambda: _at_gate(tree)) is None:
            self.shut_reason = ""
            return
        seen = await self._machine.offload.do(lambda: inspect_machine(tree))
        asking = gate.waiting_request(seen.asked, seen.answered)
        if asking is None:
            return
        self.shut_reason = "" if self._working() else _shut(seen, asking, proven, self._desk)
        if self.shut_reason or self._working():
            return
        async with self._desk.slot_lock:  # no other order is taken up while it opens
            if self._proven() != proven:
                return
            answer = GateAnswer(pod_uid=asking.pod_uid, label=asking.label, at=self._clock.now())
            await self._machine.offload.do(lambda: admit(self._machine, answer, seen))

    def _proven(self) -> Proven | None:
        current = self._desk.current
        if current is None:
            return None
        try:
            body = current.open()
        except MalformedMessage:
            return None
        return body.proven if isinstance(body, Idle) else None

    def _working(self) -> bool:
        """Whether the slot holds a command that lets pods in by itself."""
        current = self._desk.current
        return current is not None and current.kind in ("swap", "install")


def _at_gate(tree: Tree) -> GateRequest | None:
    """A look at the gate alone: hardly ever does anybody stand there, and a whole look is dear."""
    return gate.waiting_request(gate.list_requests(tree), gate.list_answers(tree))


def _shut(
    seen: Inspection, asking: GateRequest, proven: Proven | None, desk: CommandReceiver
) -> str:
    """Why the gate stays shut, for a person; empty: it may be opened."""
    if desk.current is None:
        return f"the slot of this agent cannot be read: {desk.last_error or 'it is empty'}"
    if proven is None:
        return "nothing is proven on this node: it needs an upgrade"
    if asking.label != proven.label:
        return f"the pod asks with label {asking.label}, and {proven.label} is proven"
    if seen.kernel != proven.kernel:
        return f"kernel {seen.kernel} runs, and the driver is proven under {proven.kernel}"
    lingering = seen.lingering()
    if lingering:
        return f"containers of pod {', '.join(lingering)} are still on the machine"
    return ""
