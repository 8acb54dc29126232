"""The checks of the driver agent: obstacles to a driver, and processes that hold the devices."""

from collections.abc import Iterator
from typing import Final

from libs.contracts.commands import Check, CheckBody, PreflightCheck
from libs.contracts.diagnoses import MEANINGS, Diagnosis
from libs.contracts.facts import Kernel
from libs.contracts.reports import NO_ACTION_NEEDED, Finding, Holder, Holders, Preflight
from libs.host import holders, host_driver, modules, pci, system
from libs.host.artefacts import installation, kernel_modules, store
from libs.host.artefacts.members import ArtefactError
from libs.host.artefacts.store import Index
from libs.host.files import CorruptUndoLog
from libs.host.machine import Machine
from libs.host.tree import Tree, Unreadable
from services.driver.node.artefacts import ArtefactKeeper
from services.driver.node.inspection import describe_holders, inspect_machine
from services.driver.node.install import ARTEFACT

FREE: Final = 2 * 1024**3
"""Bytes that a driver needs to be unpacked."""

_DISK: Final = "disk"

UNPACKED: Final = "/var/lib"
"""The container runtime keeps the driver container's files below it."""


class Checks:
    def __init__(self, *, machine: Machine, artefacts: ArtefactKeeper) -> None:
        self._machine = machine
        self._artefacts = artefacts

    async def preflight(self, check: Check, request: CheckBody) -> Preflight:
        """Return the findings that would keep a driver from starting."""
        if not isinstance(request, PreflightCheck):
            raise TypeError(f"check {check.id} is no preflight")
        try:
            findings = await self._machine.offload.run(lambda: tuple(self._findings(request)))
        except Unreadable as error:
            findings = (
                Finding(
                    code="unreadable",
                    message=f"the machine cannot be inspected: {error}",
                    remedy="repair the file on this machine, or reboot it",
                ),
            )
        # A machine that is short of disk space is not filled further.
        if request.artefact_digest and not any(each.code == _DISK for each in findings):
            findings += await self._artefact_findings(request.artefact_digest)
        return Preflight(check=check.id, label=request.label, findings=findings)

    async def _artefact_findings(self, digest: str) -> tuple[Finding, ...]:
        """Bring the artefact, and return why it could not be installed."""
        run, tree = self._machine.offload.run, self._machine.tree
        try:
            index = await self._artefacts.bring_soon(digest)
            if index is None:
                return (_UNPACKING,)
            found = await run(lambda: _installation_findings(tree, digest, index))
        except (ArtefactError, CorruptUndoLog, OSError) as error:
            return (
                Finding(
                    code=ARTEFACT,
                    message=f"the driver's artefact cannot be used: {error}",
                    remedy="correct ConfigMap sluice-driver-artefacts, or the files that it names"
                    " on this machine",
                ),
            )
        return found

    async def holders(self, check: Check, _request: CheckBody) -> Holders:
        """List the processes that have the devices open."""
        found = await self._machine.offload.run(lambda: holders.holders(self._machine.tree))
        return Holders(check=check.id, holders=found)

    def _findings(self, request: PreflightCheck) -> Iterator[Finding]:
        tree = self._machine.tree
        inspection = inspect_machine(tree)
        if modules.NOUVEAU in inspection.modules:
            message, remedy = MEANINGS[Diagnosis.NOUVEAU]
            yield Finding(code=Diagnosis.NOUVEAU.value, message=message, remedy=remedy)
        if inspection.preinstalled:
            yield Finding(
                code=host_driver.CODE, message=host_driver.MESSAGE, remedy=host_driver.REMEDY
            )
        kernel = system.kernel(tree)
        if kernel is not None and kernel.secure_boot and inspection.driver is None:
            yield _SECURE_BOOT
        if request.artefact_digest and pci.has_switches(tree):
            yield _FABRIC_MANAGER
        if not _is_unpacked(tree, request.artefact_digest):
            yield from _disk_findings(tree)
        removed = {*request.removes_pods, *(answer.pod_uid for answer in inspection.answers)}
        for holder in inspection.holders:
            if holder.pod_uid not in removed:
                yield _holder_finding(tree, holder)


_SECURE_BOOT: Final = Finding(
    code=Diagnosis.SECURE_BOOT.value,
    message="Secure Boot is on, and no driver that it accepts is loaded",
    remedy="enrol the key that signs the driver's modules, or turn Secure Boot off;"
    " where the modules are signed, request without-preflight",
)

_FABRIC_MANAGER: Final = Finding(
    code=Diagnosis.FABRIC_MANAGER.value,
    message="this machine has NVSwitches, whose GPUs compute only beside a fabric manager of the"
    " driver's version, and Sluice starts none for a driver on the host",
    remedy="run the driver in a container, which starts it, or bring both with the machine's image"
    " and label the node nvidia.com/gpu.deploy.driver=pre-installed; where other means start it,"
    " request without-preflight",
)

_UNPACKING: Final = Finding(
    code=ARTEFACT,
    message="the driver's artefact is being verified and unpacked on this machine",
    remedy=f"{NO_ACTION_NEEDED}: the check is repeated",
)


def _is_unpacked(tree: Tree, artefact: str) -> bool:
    return bool(artefact) and store.read_index(tree, artefact) is not None


def _installation_findings(tree: Tree, artefact: str, index: Index) -> tuple[Finding, ...]:
    kernel, installed = system.kernel(tree), installation.installed(tree)
    found = installation.problems(
        tree,
        index,
        kernel.release if kernel else "",
        placed=installed is not None
        and installed.artefact == artefact
        and modules.DRIVER not in modules.loaded(tree),
    )
    findings = tuple(Finding(code=e.code, message=e.message, remedy=e.remedy) for e in found)
    return (*findings, *_unsigned_findings(index, kernel))


def _unsigned_findings(index: Index, kernel: Kernel | None) -> Iterator[Finding]:
    """Name modules that Secure Boot refuses whatever keys are enrolled."""
    if kernel is None or not kernel.secure_boot:
        return
    if names := kernel_modules.unsigned(index, kernel.release):
        yield Finding(
            code=Diagnosis.SECURE_BOOT.value,
            message=f"Secure Boot is on, and the artefact's {', '.join(names)} for kernel"
            f" {kernel.release} have no signature",
            remedy="sign them with a key that is enrolled on this machine, or turn Secure Boot off",
        )


def _disk_findings(tree: Tree) -> Iterator[Finding]:
    free = tree.free_bytes(UNPACKED)
    # Without that folder, the machine unpacks elsewhere.
    if free is not None and free < FREE:
        yield Finding(
            code=_DISK,
            message=f"{free // 1024**2} MiB are free in {UNPACKED}; a driver needs"
            f" {FREE // 1024**2}",
            remedy="free disk space on this machine, for example by deleting old images and logs",
        )


def _holder_finding(tree: Tree, holder: Holder) -> Finding:
    devices = ", ".join(holder.devices)
    if holder.pod_uid:
        return Finding(
            code="pod",
            message=f"{describe_holders((holder,))} has {devices} open, and the upgrade does"
            f" not remove its pod",
            remedy="end the pod, or let the upgrade policy evict it",
        )
    # A daemon of the machine's own driver packages: ended alone, it would be started again.
    unit = holders.unit_of(tree, holder.pid)
    service = f"stop and disable {unit}, which it belongs to, or " if unit else ""
    return Finding(
        code="process",
        message=f"{describe_holders((holder,))} has {devices} open and is in no pod",
        remedy=f"{service}end process {holder.pid} on the machine",
    )
