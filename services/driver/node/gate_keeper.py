"""Open the gate outside of ops, for the proven driver only (docs/states.md#gate-3).

The proven driver is the one that an `idle` names, read from the slot since this process started.
While the slot could not be read at all, it is the one that was last proven here.
"""

from typing import Final

from libs.bus.commands.receiver import CommandReceiver
from libs.contracts.commands import Idle, Proven
from libs.contracts.message import MalformedMessage
from libs.host import gate
from libs.host.gate import GateAnswer, GateRequest
from libs.host.machine import Machine
from libs.host.tree import Unreadable
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.driver.node.inspection import Inspection, inspect_machine
from services.driver.node.last_proven import REPLACING, LastProven
from services.driver.node.swap import admit

INTERVAL: Final = 1.0
"""Seconds between two checks of the gate."""
SLOT_WAIT: Final = 15.0
"""Seconds after the start of the agent in which only the slot counts."""

_log = logger()


class GateKeeper:
    def __init__(
        self,
        *,
        machine: Machine,
        commands: CommandReceiver,
        last_proven: LastProven,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._commands = commands
        self._last_proven = last_proven
        self._clock = clock
        self._started = clock.monotonic()
        self.shut_reason = ""
        """Why a waiting pod is not admitted; empty if no pod waits."""

    async def run(self) -> None:
        while True:
            await self.check()
            await self._clock.sleep(INTERVAL)

    async def check(self) -> None:
        """Check the gate once, and open it if a pod of the proven driver waits."""
        try:
            await self._keep_proven()
            await self._check(self._proven(), by_disk=self._counts_disk())
        except Unreadable as error:
            self.shut_reason = f"the machine cannot be inspected: {error}"

    async def proven(self) -> Proven | None:
        """Return the driver that may be loaded now without a command; None: none may."""
        return await self._last_proven.read() if self._counts_disk() else self._proven()

    async def _keep_proven(self) -> None:
        """Let the disk say what the `idle` in the slot says."""
        idle = self._idle()
        if idle is None or self._last_proven.holds(idle.proven):
            return
        async with self._commands.slot_lock:  # no other command begins meanwhile
            idle = self._idle()
            if idle is not None:
                await self._last_proven.keep(idle.proven)

    def _counts_disk(self) -> bool:
        """Return whether this process could not read its slot so far, and waited for it.

        While an op of this boot has not ended, only the slot can say how it continues.
        """
        if self._commands.has_read_slot or self._clock.monotonic() - self._started < SLOT_WAIT:
            return False
        begun = self._commands.begun_in_this_boot
        return begun is None or begun.result is not None

    async def _check(self, proven: Proven | None, *, by_disk: bool) -> None:
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
        if self._op_admits():
            self.shut_reason = ""
            return
        if by_disk:
            proven = await self._last_proven.read()
        self.shut_reason = self._why_shut(inspection, request, proven, by_disk=by_disk)
        if self.shut_reason:
            return
        async with self._commands.slot_lock:  # no other command begins while the gate opens
            if by_disk == self._commands.has_read_slot or (
                not by_disk and self._proven() != proven
            ):
                return
            answer = GateAnswer(pod_uid=request.pod_uid, label=request.label, at=self._clock.now())
            await self._machine.offload.run(lambda: admit(self._machine, answer, inspection))
        if by_disk:
            _log.warning(
                "the gate is open to the driver that was last proven here, without a command",
                pod=request.pod_uid,
                driver=request.label,
            )

    def _idle(self) -> Idle | None:
        current = self._commands.current
        if current is None:
            return None
        try:
            body = current.open()
        except MalformedMessage:
            return None
        return body if isinstance(body, Idle) else None

    def _proven(self) -> Proven | None:
        idle = self._idle()
        return None if idle is None else idle.proven

    def _op_admits(self) -> bool:
        """Return whether the slot holds a command that admits pods itself."""
        current = self._commands.current
        return current is not None and current.kind in REPLACING

    def _why_shut(
        self,
        inspection: Inspection,
        request: GateRequest,
        proven: Proven | None,
        *,
        by_disk: bool,
    ) -> str:
        """Return why the gate stays shut; empty if it may open."""
        if self._commands.current is None and not (by_disk and proven is not None):
            empty = "it is empty" if self._commands.has_read_slot else "NATS has not answered yet"
            disk = "; nothing is on the disk that was proven on this machine" if by_disk else ""
            reason = self._commands.last_error or empty
            return f"the slot of this agent cannot be read: {reason}{disk}"
        if proven is None:
            return "no driver is validated on this node: it needs an upgrade"
        lingering = inspection.lingering()
        return _mismatch(inspection.kernel, request, proven, by_disk=by_disk) or (
            f"containers of pod {', '.join(lingering)} are still on the machine"
            if lingering
            else ""
        )


def _mismatch(kernel: str, request: GateRequest, proven: Proven, *, by_disk: bool) -> str:
    """Return why the waiting driver is not the proven one; empty if it is.

    By the slot, a digest that is not named may be any: pods and slots of earlier releases have
    none. By the disk it is another driver.
    """
    if request.label != proven.label:
        return f"the waiting pod has driver {request.label}, but {proven.label} is validated"
    if kernel != proven.kernel:
        return f"kernel {kernel} runs, but the driver is validated with {proven.kernel}"
    wanted, found = proven.install_digest, request.install_digest
    is_known = bool(wanted and found)
    if (wanted == found and is_known) or not (is_known or by_disk):
        return ""
    return (
        f"the waiting pod installs {found or 'what it does not name'},"
        f" but {wanted or 'what is not known'} is validated"
    )
