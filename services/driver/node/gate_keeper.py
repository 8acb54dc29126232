"""Open the gate outside of ops, for the proven driver only.

The proven driver is the one that an `idle` names, read from the slot since this process started
(docs/states.md#gate-3). While the slot cannot be read, the gate stays shut.
"""

from typing import Final

from libs.bus.commands.receiver import CommandReceiver
from libs.contracts.commands import CommandKind, Idle, Proven
from libs.contracts.message import MalformedMessage
from libs.host import gate
from libs.host.gate import GateAnswer, GateRequest
from libs.host.machine import Machine
from libs.host.tree import Unreadable
from libs.runtime.clock import Clock
from services.driver.node.inspection import Inspection, inspect_machine
from services.driver.node.swap import admit

INTERVAL: Final = 1.0
"""Seconds between two checks of the gate."""


class GateKeeper:
    def __init__(self, *, machine: Machine, commands: CommandReceiver, clock: Clock) -> None:
        self._machine = machine
        self._commands = commands
        self._clock = clock
        self.shut_reason = ""
        """Why a waiting pod is not admitted; empty if no pod waits."""

    async def run(self) -> None:
        while True:
            await self.check()
            await self._clock.sleep(INTERVAL)

    async def check(self) -> None:
        """Check the gate once, and open it if a pod of the proven driver waits."""
        try:
            await self._check(self._proven())
        except Unreadable as error:
            self.shut_reason = f"the machine cannot be inspected: {error}"

    async def _check(self, proven: Proven | None) -> None:
        tree = self._machine.tree
        # Pods seldom wait, and an inspection is expensive: read the gate's folder first.
        if (
            await self._machine.offload.run(
                lambda: gate.waiting_request(gate.list_requests(tree), gate.list_answers(tree))
            )
            is None
        ):
            self.shut_reason = ""
            return
        inspection = await self._machine.offload.run(lambda: inspect_machine(tree))
        request = gate.waiting_request(inspection.requests, inspection.answers)
        if request is None:
            return
        self.shut_reason = "" if self._op_admits() else self._why_shut(inspection, request, proven)
        if self.shut_reason or self._op_admits():
            return
        async with self._commands.slot_lock:  # no other command begins while the gate opens
            if self._proven() != proven:
                return
            answer = GateAnswer(pod_uid=request.pod_uid, label=request.label, at=self._clock.now())
            await self._machine.offload.run(lambda: admit(self._machine, answer, inspection))

    def _proven(self) -> Proven | None:
        current = self._commands.current
        if current is None:
            return None
        try:
            body = current.open()
        except MalformedMessage:
            return None
        return body.proven if isinstance(body, Idle) else None

    def _op_admits(self) -> bool:
        """Return whether the slot holds a command that admits pods itself."""
        current = self._commands.current
        return current is not None and current.kind in (CommandKind.SWAP, CommandKind.INSTALL)

    def _why_shut(self, inspection: Inspection, request: GateRequest, proven: Proven | None) -> str:
        """Return why the gate stays shut; empty if it may open."""
        if self._commands.current is None:
            reason = self._commands.last_error or "it is empty"
            return f"the slot of this agent cannot be read: {reason}"
        if proven is None:
            return "no driver is validated on this node: it needs an upgrade"
        if request.label != proven.label:
            return f"the waiting pod has driver {request.label}, but {proven.label} is validated"
        if inspection.kernel != proven.kernel:
            return (
                f"kernel {inspection.kernel} runs, but the driver is validated with {proven.kernel}"
            )
        lingering = inspection.lingering()
        if lingering:
            return f"containers of pod {', '.join(lingering)} are still on the machine"
        return ""
