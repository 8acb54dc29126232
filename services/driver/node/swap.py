"""`swap`: the old driver goes, the pod with the wanted label is let in, and its driver comes up.

One op with four sub-steps. It may be begun again at any point, in this process or a later one: what
has been done shows on the machine (docs/states.md#gate-2). It never forces anything.
"""

from collections.abc import Callable
from typing import Final

from libs.bus.commands.op import Op, OpDone, OpFailed
from libs.contracts.commands import Swap
from libs.host import driver_files, gate, modules
from libs.host.gate import GateAnswer
from libs.host.linux import InUse, Linux, Refused
from libs.host.machine import Machine
from libs.host.tree import Tree
from libs.runtime.clock import Clock
from services.driver.node.inspection import Inspection, describe_holders, inspect_machine

INSPECT_INTERVAL: Final = 1.0
"""Seconds between two looks at what an op waits for."""
POLL_INTERVAL: Final = 0.25
"""Seconds between two glances at what somebody else on the machine writes for us."""


class SwapHandler:
    """Carries `swap` out on one machine."""

    def __init__(self, *, machine: Machine, linux: Linux, clock: Clock, root: str) -> None:
        self._machine = machine
        self._linux = linux
        self._clock = clock
        self._root = root

    async def __call__(self, op: Op) -> OpDone | OpFailed:
        """A handler of the desk."""
        swap = op.body
        if not isinstance(swap, Swap):
            return OpFailed("defect", f"{op.command.kind} is no swap")
        ended = None
        while ended is None:
            ended = await self._round(op, swap)
        return ended

    async def _round(self, op: Op, swap: Swap) -> OpDone | OpFailed | None:
        """None: the pod that was let in went before its driver was up, and another asks."""
        seen = await self._without_the_old(op, swap)
        if isinstance(seen, OpFailed):
            return seen
        if not (swap.label and seen.running(swap.label, besides=swap.old_pod_uid)):
            failed = await self._cleared(op, swap)
            if failed is not None:
                return failed
            if not swap.label:
                return OpDone("the driver is gone")
            await self._let_in(op, swap)
        return await self._started(op, swap)

    async def _look(self) -> Inspection:
        return await self._machine.offload.do(lambda: inspect_machine(self._machine.tree))

    async def _without_the_old(self, op: Op, swap: Swap) -> Inspection | OpFailed:
        """Wait until no container of a pod that is not kept is on the machine."""
        while True:
            seen = await self._look()
            kept = seen.running(swap.label, besides=swap.old_pod_uid) if swap.label else None
            lingering = seen.lingering(kept.pod_uid if kept else "")
            if not lingering:
                return seen
            op.raise_if_superseded()
            pods = ", ".join(lingering)
            op.progress("old-driver", f"containers of pod {pods} are still on the machine")
            if self._late(op):
                return OpFailed("old-driver", f"containers of pod {pods} did not end in time")
            await self._clock.sleep(INSPECT_INTERVAL)

    async def _cleared(self, op: Op, swap: Swap) -> OpFailed | None:
        """Unload the old modules, unless they are to stay, and clear what the driver left."""
        if swap.keep:
            return None
        while (why := await self._unloaded(op)) is not None:
            op.raise_if_superseded()
            op.progress("unload", why)
            if self._late(op):
                return OpFailed("busy", why)
            await self._clock.sleep(INSPECT_INTERVAL)
        await op.checkpoint("clear")
        return await self._machine.offload.do(self._clear)

    async def _unloaded(self, op: Op) -> str | None:
        """Why the modules are still there; the kernel alone decides (docs/invariants.md#i5)."""
        seen = await self._look()
        if not any(name in seen.modules for name in modules.UNLOAD_ORDER):
            return None
        await op.checkpoint("unload")
        return await self._machine.offload.do(self._unload)

    def _unload(self) -> str | None:
        for name in modules.UNLOAD_ORDER:
            answer = self._linux.unload(name)
            if isinstance(answer, InUse | Refused):
                holding = inspect_machine(self._machine.tree).holders
                return f"{answer.why}; the devices are open in {describe_holders(holding)}"
        return None

    def _clear(self) -> OpFailed | None:
        why = self._linux.unmount_below(self._root)
        if why is not None:
            return OpFailed(
                "stale-root", f"{self._root} of the old driver cannot be unmounted: {why}"
            )
        driver_files.clear(self._machine.tree)
        return None

    async def _let_in(self, op: Op, swap: Swap) -> None:
        """Wait for the pod that asks with this label, and open the gate to it."""
        while True:
            seen = await self._look()
            asking = seen.waiting(swap.label)
            if asking is not None and asking.pod_uid != swap.old_pod_uid:
                break
            op.raise_if_superseded()
            op.progress("gate", f"waiting for the new driver pod ({swap.label}) to reach the gate")
            await self._pause(lambda tree, had=seen.asked: gate.list_requests(tree) != had)
        await op.checkpoint("gate")
        answer = GateAnswer(pod_uid=asking.pod_uid, label=asking.label, at=self._clock.now())
        await self._machine.offload.do(lambda: self._admit(answer, seen))

    def _admit(self, answer: GateAnswer, seen: Inspection) -> None:
        # What an earlier container said of itself, if it ended without taking it back.
        self._machine.tree.at(driver_files.READY).unlink(missing_ok=True)
        admit(self._machine, answer, seen)

    async def _started(self, op: Op, swap: Swap) -> OpDone | None:
        """Wait until the driver container says that it is up and its module is in the kernel."""
        while True:
            seen = await self._look()
            if seen.running(swap.label, besides=swap.old_pod_uid) is None:
                return None
            if seen.ready and seen.driver is not None:
                return OpDone(f"driver {seen.driver.version or 'without a version'} is loaded")
            op.raise_if_superseded()
            where = "loaded, not yet ready" if seen.driver else "the driver is not loaded yet"
            op.progress("driver-start", where)
            await self._pause(lambda tree, had=seen.ready: tree.exists(driver_files.READY) != had)

    async def _pause(self, news: Callable[[Tree], bool]) -> None:
        """Until the next look is due, or sooner where a glance says that it would see something.

        A look goes through all processes of the machine; a glance reads a file or two.
        """
        until = self._clock.monotonic() + INSPECT_INTERVAL
        while self._clock.monotonic() < until:
            await self._clock.sleep(POLL_INTERVAL)
            if await self._machine.offload.do(lambda: news(self._machine.tree)):
                return

    def _late(self, op: Op) -> bool:
        return self._clock.now() >= op.command.deadline


def admit(machine: Machine, answer: GateAnswer, seen: Inspection) -> None:
    """Open the gate to this pod; those before it, of which nothing is left, are forgotten."""
    gate.put_answer(machine.tree, answer)
    for earlier in seen.answered:
        if earlier.pod_uid != answer.pod_uid and earlier.pod_uid not in seen.living:
            gate.remove_pod(machine.tree, earlier.pod_uid)
