"""Questions to the driver agent that change nothing: what stands in the way, and who holds on."""

from collections.abc import Iterator
from typing import Final

from libs.contracts.commands import Check, CheckBody, PreflightCheck
from libs.contracts.reports import Finding, Holder, Holders, Preflight
from libs.host import modules, system
from libs.host.machine import Machine
from libs.host.tree import Tree
from services.driver.node.inspection import describe_holders, inspect_machine

FREE: Final = 2 * 1024**3
"""Bytes that must be free where a driver is unpacked."""

UNPACKED: Final = "/var/lib"
"""Below it the container runtime keeps what a driver container writes."""


class Checks:
    """Answers checks about one machine."""

    def __init__(self, *, machine: Machine) -> None:
        self._machine = machine

    async def preflight(self, check: Check, asked: CheckBody) -> Preflight:
        """Could this driver be brought up here?"""
        if not isinstance(asked, PreflightCheck):
            raise TypeError(f"check {check.id} is no preflight")
        found = await self._machine.offload.do(lambda: tuple(self._findings(asked)))
        return Preflight(check=check.id, label=asked.label, findings=found)

    async def holders(self, check: Check, _asked: CheckBody) -> Holders:
        """Who holds the devices now?"""
        seen = await self._machine.offload.do(lambda: inspect_machine(self._machine.tree))
        return Holders(check=check.id, holders=seen.holders)

    def _findings(self, asked: PreflightCheck) -> Iterator[Finding]:
        tree = self._machine.tree
        seen = inspect_machine(tree)
        if modules.NOUVEAU in seen.modules:
            yield Finding(
                code="nouveau",
                message="the kernel's own driver nouveau is loaded; no other can be beside it",
                remedy="blacklist nouveau on this machine and reboot it",
            )
        kernel = system.kernel(tree)
        if kernel is not None and kernel.secure_boot and seen.driver is None:
            yield Finding(
                code="secure-boot",
                message="Secure Boot is on, and no driver has been loaded here that it accepts",
                remedy="enrol the key that signs the driver's modules, or turn Secure Boot off;"
                " where the modules are signed, request without-preflight",
            )
        yield from _disk(tree)
        going = {*asked.removes_pods, *(answer.pod_uid for answer in seen.answered)}
        staying = [one for one in seen.holders if one.pod_uid not in going]
        yield from map(_holding, staying)


def _disk(tree: Tree) -> Iterator[Finding]:
    free = tree.free_bytes(UNPACKED)
    # A machine without such a folder unpacks elsewhere.
    if free is not None and free < FREE:
        yield Finding(
            code="disk",
            message=f"{free // 1024**2} MiB are free at {UNPACKED}; a driver needs"
            f" {FREE // 1024**2}",
            remedy="make room on this machine: old images and logs, most likely",
        )


def _holding(holder: Holder) -> Finding:
    """Of a process that the plan does not end."""
    devices = ", ".join(holder.devices)
    if holder.pod_uid:
        return Finding(
            code="pod",
            message=f"{describe_holders((holder,))} has {devices} open, and the plan does"
            f" not remove its pod",
            remedy="end the pod, or let the upgrade policy evict it",
        )
    return Finding(
        code="process",
        message=f"{describe_holders((holder,))} of the machine itself has {devices} open",
        remedy=f"end process {holder.pid} on the machine",
    )
