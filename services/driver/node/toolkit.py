"""Keep the machine's CDI specs current: what a container gets that asks for a GPU.

The GPUs are read from NVML only if something has changed that can be seen without it, and NVML is
closed at once, because an open library keeps the driver in the kernel. While an op changes the
driver or the GPUs there are no specs, and NVML stays closed.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from msgspec.structs import replace

from libs.contracts.facts import Cdi, Gpu
from libs.host import device_nodes
from libs.host.cdi import device_files, driver_root, extras, published
from libs.host.cdi.driver_root import DriverFiles, NoDriverFiles
from libs.host.cdi.generate import Generated, generate
from libs.host.cdi.spec import Spec, common_digest
from libs.host.gpus.port import GpusUnavailable
from libs.host.machine import Machine
from libs.host.tree import Unreadable
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from libs.runtime.pauses import Pauses
from services.driver.node.toolkit_traces import KINDS, DriverRun, Traces, driver_run, traces

_log = logger()

INTERVAL: Final = 5.0
"""Seconds between two looks for changes."""
RETRY: Final = 30.0
"""Seconds until specs that could not be made are tried again, if nothing changes."""


class Toolkit:
    """The specs of one machine."""

    def __init__(
        self,
        *,
        machine: Machine,
        clock: Clock,
        root: str,
        architecture: str,
        enabled: bool,
        runtime_problem: Callable[[], str] = lambda: "",
    ) -> None:
        """`root` is the root of a driver container on the machine.

        `runtime_problem` says why the container runtime reads no specs: it would start containers
        without their GPUs, so there are no specs then.
        """
        self._machine = machine
        self._clock = clock
        self._roots = (root, "/")
        self._architecture = architecture
        self._enabled = enabled
        self._runtime_problem = runtime_problem
        self._lock = asyncio.Lock()
        self._withdrawals = Pauses()
        self._seen: Traces | None = None
        """What was there after the last attempt to make the specs."""
        self._node_problem = ""
        """Why device files could not be made when that was tried last."""
        self._made_for: DriverRun | None = None
        """The driver whose specs are published."""
        self._retry_at: float | None = None
        """When to try again; None: the last attempt succeeded."""
        self.cdi: Cdi | None = None
        """What the specs give; None where the policy switches them off."""

    async def run(self) -> None:
        while True:
            await self.refresh()
            await self._clock.sleep(INTERVAL)

    @asynccontextmanager
    async def withdrawn(self) -> AsyncGenerator[None]:
        """Remove the specs, and keep NVML closed until the end."""
        with self._withdrawals.hold():
            await self._machine.offload.run(self._close)  # which ends a read that takes long
            async with self._lock:
                await self._machine.offload.run(self._withdraw)
            yield

    async def refresh(self) -> None:
        """Make the specs again if something has changed of what they are made of."""
        async with self._lock:
            if self._withdrawals:
                return
            cdi = await self._machine.offload.run(self._refreshed)
        if cdi is not None and cdi != self.cdi:
            _log.info("the CDI specs changed", devices=len(cdi.devices), why=cdi.why)
        self.cdi = cdi

    def _refreshed(self) -> Cdi | None:
        self._make_device_files()  # all agents need them, not the specs alone
        if not self._enabled:
            self._remove()
            return None
        tree, found = self._machine.tree, None
        problem = self._runtime_problem()
        if problem:
            self._remove()
            self._seen = None
            return Cdi(why=problem)
        try:
            found = traces(tree, self._roots)
            if self.cdi is not None and found == self._seen and not self._is_retry_due():
                return self.cdi
            gpus, cdi = self._read_and_publish(found)
            self._made_for = found.driver
            # Nothing that can be seen without NVML changes when a GPU answers again.
            is_whole = all(gpu.problem is None for gpu in gpus)
            self._retry_at = None if is_whole else self._clock.monotonic() + RETRY
            # What has changed since `found` is not in the specs: the next look has to see it.
            own = traces(tree, self._roots)
            self._seen = replace(
                own, driver=found.driver, devices=found.devices, instances=found.instances
            )
        except (NoDriverFiles, GpusUnavailable, Unreadable) as error:
            cdi = self._failed(error, found)
        return cdi

    def _make_device_files(self) -> None:
        problem = ""
        try:
            if made := device_nodes.make(self._machine.tree):
                _log.info("device files of the driver are made", files=made)
        except OSError as error:
            problem = str(error)
            if problem != self._node_problem:
                _log.warning("device files of the driver cannot be made", why=problem)
        self._node_problem = problem

    def _is_retry_due(self) -> bool:
        return self._retry_at is not None and self._clock.monotonic() >= self._retry_at

    def _read_and_publish(self, found: Traces) -> tuple[tuple[Gpu, ...], Cdi]:
        """Read the GPUs, and publish their specs; raise if they cannot be made."""
        tree = self._machine.tree
        if found.missing:
            self._remove()
        if found.driver is None:
            raise NoDriverFiles("no NVIDIA driver is loaded")
        files = self._files(found.driver.version)
        devices = device_files.find(tree, files.root)
        if device_files.CONTROL not in devices.paths:
            raise NoDriverFiles(
                f"the driver is loaded, but {device_files.CONTROL} is missing on this machine:"
                " run nvidia-modprobe there, or restart the driver's pod"
            )
        gpus = self._gpus()
        made = generate(gpus, devices, files, architecture=self._architecture)
        if driver_run(tree) != found.driver:
            raise NoDriverFiles("the driver changed while its GPUs were read")
        return gpus, self._publish(made, extras.find(tree, files.root), found.conflicts)

    def _files(self, version: str) -> DriverFiles:
        """Return the driver's files, from the first root that has those of this version."""
        problems: list[str] = []
        for root in self._roots:
            try:
                return driver_root.find(self._machine.tree, root, version)
            except NoDriverFiles as error:
                problems.append(str(error))
        raise NoDriverFiles("; ".join(dict.fromkeys(problems)))

    def _gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs; raise `GpusUnavailable` where that would take devices out of the specs.

        How a GPU is divided is not known if it could not be described. A container that starts then
        must get what it was promised, so the specs stay as long as the driver is the same.
        """
        gpus = self._machine.gpus
        try:
            gpus.open()
            found = gpus.describe()
        finally:
            gpus.close()
        unknown = next((gpu for gpu in found if gpu.problem is not None and not gpu.uuid), None)
        if unknown is not None and self._made_for is not None and self.cdi and self.cdi.devices:
            raise GpusUnavailable(unknown.problem, f"GPU {unknown.index}")
        return found

    def _publish(
        self, made: Generated, extra: Mapping[str, Spec], conflicts: tuple[str, ...]
    ) -> Cdi:
        tree = self._machine.tree
        specs = {published.MANAGEMENT_KIND: made.management, **extra, published.GPU_KIND: made.gpus}
        for kind in KINDS:
            path, spec = published.file_of(kind), specs.get(kind)
            if spec is None:
                published.remove(tree, path)
            else:
                published.put(tree, path, spec)
        problems = list(made.problems)
        if conflicts:
            problems.insert(
                0,
                f"{', '.join(conflicts)} defines {published.GPU_KIND} too, so the container runtime"
                " resolves no GPU: remove it, and switch off what writes it",
            )
        elif made.gpus is None and not problems:
            problems.append("the driver shows no GPU that a container could have")
        devices = () if made.gpus is None or conflicts else made.gpus.devices
        names = (each.name for each in devices if each.name.startswith(("GPU-", "MIG-")))
        digest = "" if made.gpus is None or conflicts else common_digest(made.gpus)
        return Cdi(devices=tuple(names), why="; ".join(problems), digest=digest)

    def _failed(self, error: Exception, found: Traces | None) -> Cdi:
        """Return the problem; the specs stay if NVML alone failed, and the driver is the same."""
        self._retry_at = self._clock.monotonic() + RETRY
        tree = self._machine.tree
        kept = Cdi()
        try:
            same = self._made_for is not None and driver_run(tree) == self._made_for
            if isinstance(error, GpusUnavailable) and same:
                kept = self.cdi or kept
            else:
                self._remove()
            own = traces(tree, self._roots)
            self._seen = found and replace(found, specs=own.specs, missing=own.missing)
        except Unreadable:
            self._seen = None
        return replace(kept, why=str(error))

    def _withdraw(self) -> None:
        self._close()
        self._remove()
        self._seen = None
        if self.cdi is not None:
            self.cdi = Cdi(why="the driver or the GPUs are being changed")

    def _close(self) -> None:
        with suppress(GpusUnavailable):  # the kernel then says that the driver is in use
            self._machine.gpus.close()

    def _remove(self) -> None:
        self._made_for = None
        for kind in KINDS:
            published.remove(self._machine.tree, published.file_of(kind))
