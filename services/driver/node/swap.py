"""`swap`: unload the old driver, admit the pod with the wanted label, wait until its driver is up.

One op with four sub-steps. It may start again at any point, in this process or a later one: its
progress shows on the machine (docs/states.md#gate-2). It never forces anything.
"""

from collections.abc import Callable
from typing import Final

from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.contracts.commands import Swap
from libs.host import driver_files, gate
from libs.host.gate import GateAnswer
from libs.host.machine import Machine
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from services.driver.node.artefacts import ArtefactKeeper
from services.driver.node.inspection import Inspection
from services.driver.node.removal import INSPECT_INTERVAL, OldDriver

POLL_INTERVAL: Final = 0.25
"""Seconds between two reads of a single file or folder."""


class SwapHandler:
    def __init__(
        self,
        *,
        machine: Machine,
        old_driver: OldDriver,
        artefacts: ArtefactKeeper,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._artefacts = artefacts
        self._clock = clock
        self._old = old_driver

    async def __call__(self, op: Op) -> OpDone | OpFailed:
        swap = op.body
        if not isinstance(swap, Swap):
            return OpFailed("defect", f"{op.command.kind} is no swap")
        result = None
        while result is None:
            result = await self._try_swap(op, swap)
        return result

    async def _try_swap(self, op: Op, swap: Swap) -> OpDone | OpFailed | None:
        """Return None if the admitted pod ended before its driver was up, and another waits."""
        inspection = await self._old.wait_for_pods(
            op, kept_label=swap.label, old_pod_uid=swap.old_pod_uid
        )
        if isinstance(inspection, OpFailed):
            return inspection
        if not (swap.label and inspection.running(swap.label, besides=swap.old_pod_uid)):
            if not swap.keep:
                failed = await self._old.remove(op, inspection)
                if failed is not None:
                    return failed
            if not swap.label:
                await self._artefacts.keep_only(lambda: ())
                return OpDone("the driver is gone")
            await self._admit_new_pod(op, swap)
        return await self._wait_for_driver(op, swap)

    async def _admit_new_pod(self, op: Op, swap: Swap) -> None:
        """Wait for a pod that requests admission with the wanted label, and open the gate."""
        while True:
            inspection = await self._old.inspect(op)
            request = inspection.waiting(swap.label)
            if request is not None and request.pod_uid != swap.old_pod_uid:
                break
            op.raise_if_superseded()
            op.progress("gate", f"waiting for the new driver pod ({swap.label}) to reach the gate")
            await self._pause(
                lambda tree, before=inspection.requests: gate.list_requests(tree) != before
            )
        await op.checkpoint("gate")
        answer = GateAnswer(pod_uid=request.pod_uid, label=request.label, at=self._clock.now())

        def open_gate() -> None:
            driver_files.forget_readiness(self._machine.tree)
            admit(self._machine, answer, inspection)

        await self._machine.offload.run(open_gate)

    async def _wait_for_driver(self, op: Op, swap: Swap) -> OpDone | None:
        """Wait until the driver container is ready and its module is loaded."""
        while True:
            inspection = await self._old.inspect(op)
            if inspection.running(swap.label, besides=swap.old_pod_uid) is None:
                return None
            if inspection.ready and inspection.driver is not None:
                return OpDone(
                    f"driver {inspection.driver.version or 'without a version'} is loaded"
                )
            op.raise_if_superseded()
            state = (
                "the driver is loaded, but not ready yet"
                if inspection.driver
                else "the driver is not loaded yet"
            )
            op.progress("driver-start", state)
            await self._pause(
                lambda tree, before=inspection.ready: tree.exists(driver_files.READY) != before
            )

    async def _pause(self, changed: Callable[[Tree], bool]) -> None:
        """Sleep until the next inspection, which goes through all processes of the machine.

        End early if `changed`, which reads a file or two, returns true.
        """
        until = self._clock.monotonic() + INSPECT_INTERVAL
        while self._clock.monotonic() < until:
            await self._clock.sleep(POLL_INTERVAL)
            try:
                if await self._machine.offload.run(lambda: changed(self._machine.tree)):
                    return
            except Unreadable:
                return


def admit(machine: Machine, answer: GateAnswer, inspection: Inspection) -> None:
    """Open the gate to a pod, and remove earlier pods without containers from it."""
    gate.put_answer(machine.tree, answer)
    for earlier in inspection.answers:
        if earlier.pod_uid != answer.pod_uid and earlier.pod_uid not in inspection.live_pods:
            gate.remove_pod(machine.tree, earlier.pod_uid)
