"""Commands to the program of one agent, and their results."""

import asyncio
from collections.abc import Mapping
from typing import Any

from libs.bus.reports import ReportCache
from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import Command, Idle, Order, Quiesce
from libs.contracts.identities import Writer
from libs.contracts.reports import Result, StateKind
from libs.runtime.clock import SystemClock
from tests.builders.fake_machine import BOOT
from tests.component.programs import Programs

NODE = {"node": "a", "node_uid": "uid-1"}
"""The node of the agent, also its settings."""


class CommandSender:
    """The scheduler, as one agent sees it."""

    def __init__(self, programs: Programs, writer: Writer, node: Mapping[str, Any] = NODE) -> None:
        self._programs = programs
        self._writer = writer
        self._node = node
        self._op = 0

    async def send(self, body: Quiesce | Idle) -> Result:
        """Send a command, and return the result that the agent reports."""
        clock = SystemClock()
        self._op += 1
        order = Order(1, self._op)
        command = Command.of(
            body, boot_id=BOOT, epoch=1, order=order, deadline=clock.now() + 60.0, **self._node
        )
        slot = subjects.Command(cluster="default", node=self._node["node"], component=self._writer)
        async with self._programs.connect(Writer.SCHEDULER) as bus:
            await SlotWriter(bus=bus, clock=clock).write(slot, command)
            async with ReportCache(bus=bus, clock=clock, cluster="default") as reports:
                while True:
                    found = reports.get(self._node["node"], self._writer, StateKind.RESULT)
                    result = None if found is None else found.open()
                    if isinstance(result, Result) and result.order == order:
                        return result
                    await asyncio.sleep(0.05)
