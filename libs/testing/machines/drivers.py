"""The containers of a driver pod: its gate, its driver, and those that load one module more.

They do what the vendor's do, as far as anybody on the machine can see it. A driver that stops
leaves its modules and its root behind: whether they may go is not for a container to know. One that
finds the modules of the same installation keeps them. One that starts again in its pod does not
pass the gate (docs/states.md#gate). No probe is played: ready is what works, when the world says
so.
"""

import re
from typing import Final

from libs.contracts.node import DRIVER_LABEL
from libs.host import driver_files, gate, modules
from libs.host.gate import GateRequest
from libs.policy.render.rendered import INSTALL_ANNOTATION
from libs.testing.cluster.kubelet.container_process import ContainerInstance, ProcessEvents
from libs.testing.cluster.views import Pod
from libs.testing.machines.incidents import IncidentKind
from libs.testing.machines.kernel import CONTROL, device
from libs.testing.machines.processes import SimulatedProcess, workload_of
from libs.testing.machines.state import InstalledDriver, MachineState

GATE: Final = "gate"
DRIVER: Final = "nvidia-driver-ctr"
EXTRA_MODULES: Final = {
    "nvidia-peermem-ctr": "nvidia_peermem",
    "nvidia-fs-ctr": "nvidia_fs",
    "nvidia-gdrcopy-ctr": "gdrdrv",
}
"""Containers that load one module more, and which."""

POLL_INTERVAL: Final = 0.5
"""Seconds between two looks at the gate, or for the driver that a module needs."""

_VERSION = re.compile(r"\d{3,}\.\d+(\.\d+)?")
_BRANCH = re.compile(r"\d{3,}")


class GateProcess(SimulatedProcess):
    """Asks, and ends when it is answered."""

    comm = "sluice-gate"

    async def run(self, instance: ContainerInstance) -> int:
        """Until an answer names its pod and its label."""
        site, pod = self.state, instance.pod
        label = pod.metadata.labels.get(DRIVER_LABEL, "")
        asking = GateRequest(pod_uid=pod.metadata.uid, label=label, started=site.clock.now())
        gate.put_request(site.tree, asking)
        site.end_writes()
        while not gate.is_open(site.tree, asking):
            await self.wait(POLL_INTERVAL)
        site.admitted.add(asking.pod_uid)
        return 0


class DriverProcess(SimulatedProcess):
    """Builds, loads, and stays for as long as its container does."""

    comm = "nvidia-driver"

    def __init__(self, state: MachineState) -> None:
        super().__init__(state)
        self._daemon = 0
        self._locked_by = ""
        """The uid of its pod, once it has the lock that only one driver has."""

    def begin(self, instance: ContainerInstance, voice: ProcessEvents) -> None:
        """The container has started."""
        site, meta = self.state, instance.pod.metadata
        site.check_boot(instance.boot_id)
        if meta.uid not in site.admitted:
            site.record_incident(
                IncidentKind.NOT_ADMITTED, f"{meta.key} started its driver behind a shut gate"
            )
        others = [label for uid, label in site.drivers.items() if uid != meta.uid]
        for label in others:
            said = f"{meta.key} started its driver while that of {label or 'no label'} runs"
            site.record_incident(IncidentKind.TWO_DRIVERS, said)
        if not others:
            self._locked_by = meta.uid
            site.drivers[meta.uid] = meta.labels.get(DRIVER_LABEL, "")
        super().begin(instance, voice)

    async def run(self, instance: ContainerInstance) -> int:
        """Until it fails, crashes or is stopped."""
        if not self._locked_by:
            return 1
        site, pod = self.state, instance.pod
        who = (instance.node, workload_of(pod), instance.container, instance.attempt)
        wanted = _installation(pod, instance.container)
        site.host_tree.put(driver_files.PID, f"{self.pid}\n")
        if self._is_in(wanted):
            site.install(wanted)
        elif code := await self._install(wanted, pod):
            return code
        self._serve(instance)
        await self.wait(site.model.ready(*who).seconds)
        site.host_tree.put(driver_files.READY, _ready_file(pod))
        self.report_ready(True)
        ending = site.model.run(*who)
        await self.wait(ending.after)
        return ending.exit_code

    def stop(self, instance: ContainerInstance) -> None:
        """First it takes back its word, then it lets go of the devices."""
        self.abort()
        self.state.host_tree.remove(driver_files.READY)
        self.state.kernel.end(self._daemon)
        super().stop(instance)

    def cleanup(self) -> None:
        """Its daemon goes with it, and so does its lock."""
        super().cleanup()
        self.state.kernel.end(self._daemon)
        if self._locked_by:
            self.state.drivers.pop(self._locked_by, None)

    def _is_in(self, wanted: InstalledDriver) -> bool:
        site = self.state
        said = driver_files.installed_digest(site.tree)
        return site.installed is not None and bool(wanted.digest) and said == wanted.digest

    async def _install(self, wanted: InstalledDriver, pod: Pod) -> int:
        """Its exit code, if that was not possible."""
        site = self.state
        there = site.installed
        if there is not None:
            if there.pod_uid != wanted.pod_uid:
                what = f"the modules of {there.label or there.version}"
                site.record_incident(
                    IncidentKind.OVER_ANOTHER, f"{pod.metadata.key} is to replace {what}"
                )
            if site.kernel.unload_all():
                return 1
        site.kernel.unmount_below(driver_files.ROOT)
        attempt = site.next_attempt(f"load {wanted.label}")
        ending = site.model.load(site.name, wanted.label, attempt)
        await self.wait(ending.after)
        if ending.exit_code or site.kernel.is_loaded(modules.NOUVEAU):
            return ending.exit_code or 1
        site.install(wanted)
        site.host_tree.put(driver_files.STATE, f"{wanted.digest}\n")
        return 0

    def _serve(self, instance: ContainerInstance) -> None:
        """Its file system is shown to the machine, and its daemon holds the devices."""
        site = self.state
        site.kernel.unmount_below(driver_files.ROOT)
        site.kernel.mount(driver_files.ROOT)
        version = site.kernel.version(modules.DRIVER)
        for path in (
            "usr/bin/nvidia-smi",
            f"usr/src/nvidia-{version}/LICENSE",
            f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}",
            "dev/nvidiactl",
        ):
            site.host_tree.put(f"{driver_files.ROOT}/{path}")
        library = f"{driver_files.ROOT}/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
        site.host_tree.link(library, f"libnvidia-ml.so.{version}")
        self._daemon = site.kernel.start(
            "nvidia-persistenced",
            pod_uid=instance.pod.metadata.uid,
            container_id=instance.container_id,
        )
        site.kernel.open(self._daemon, (CONTROL, *map(device, range(len(site.gpus)))))


class ExtraModuleProcess(SimulatedProcess):
    """Loads one module more when the driver is there, and stays."""

    comm = "bash"

    def __init__(self, state: MachineState, module: str) -> None:
        super().__init__(state)
        self._module = module

    async def run(self, instance: ContainerInstance) -> int:
        """Until it crashes or is stopped."""
        site = self.state
        who = (instance.node, workload_of(instance.pod), instance.container, instance.attempt)
        while site.installed is None or not site.tree.exists(driver_files.READY):
            await self.wait(POLL_INTERVAL)
        version = site.kernel.version(modules.DRIVER)
        site.kernel.load(self._module, version=version, uses=(modules.DRIVER,))
        await self.wait(site.model.ready(*who).seconds)
        self.report_ready(True)
        ending = site.model.run(*who)
        await self.wait(ending.after)
        return ending.exit_code


def driver_process(state: MachineState, pod: Pod, container: str) -> SimulatedProcess | None:
    """Who lives in this container of a driver pod, if it is one."""
    if container == DRIVER:
        return DriverProcess(state)
    if DRIVER_LABEL not in pod.metadata.labels:
        return None
    if container == GATE:
        return GateProcess(state)
    return (
        ExtraModuleProcess(state, EXTRA_MODULES[container]) if container in EXTRA_MODULES else None
    )


def version_of(image: str) -> str:
    """Which driver is in an image, as far as its name tells."""
    name, _, digest = image.rpartition("/")[2].partition("@sha256:")
    tag = name.partition(":")[2]
    if found := _VERSION.match(tag):
        return found[0]
    if found := _BRANCH.match(tag):
        return f"{found[0]}.0"  # precompiled: the tag has the branch, and the kernel's release
    return f"580.{int(digest[:8] or '0', 16) % 1000}"


def _installation(pod: Pod, container: str) -> InstalledDriver:
    meta = pod.metadata
    images = {each.name: each.image for each in pod.spec.containers}
    return InstalledDriver(
        version=version_of(images[container]),
        digest=meta.annotations.get(INSTALL_ANNOTATION, ""),
        label=meta.labels.get(DRIVER_LABEL, ""),
        pod_uid=meta.uid,
    )


def _ready_file(pod: Pod) -> str:
    there = {each.name for each in pod.spec.containers}
    said = {
        "GDRCOPY_ENABLED": "nvidia-gdrcopy-ctr" in there,
        "GDS_ENABLED": "nvidia-fs-ctr" in there,
        "GPU_DIRECT_RDMA_ENABLED": "nvidia-peermem-ctr" in there,
    }
    return "".join(f"{name}: {str(value).lower()}\n" for name, value in said.items())
