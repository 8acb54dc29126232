"""The containers of a driver pod: gate, driver, and containers that load one more module.

They act on the machine like the vendor's. A driver that stops leaves its modules and its root
behind, and one that finds the modules of the same installation keeps them. A container restarted in
its pod does not pass the gate again (docs/states.md#gate). Probes are not simulated: the driver is
ready at the time given by the world's model.
"""

import re
from typing import Final

from libs.contracts.node import DRIVER_LABEL
from libs.host import driver_files, gate, modules
from libs.host.gate import GateRequest
from libs.policy.render.rendered import INSTALL_ANNOTATION
from libs.testing.cluster.kubelet.container import ContainerInstance, ProcessEvents
from libs.testing.cluster.views import Pod
from libs.testing.machines.base_files import put_libraries
from libs.testing.machines.faults import log_refusal
from libs.testing.machines.kernel import CONTROL, PERSISTENCE_DAEMON, device
from libs.testing.machines.processes import SimulatedProcess, workload_of
from libs.testing.machines.state import IncidentKind, InstalledDriver, MachineState

GATE: Final = "gate"
DRIVER: Final = "nvidia-driver-ctr"
EXTRA_MODULES: Final = {
    "nvidia-peermem-ctr": "nvidia_peermem",
    "nvidia-fs-ctr": "nvidia_fs",
    "nvidia-gdrcopy-ctr": "gdrdrv",
}
"""The module that each container loads."""

POLL_INTERVAL: Final = 0.5
"""Seconds between two checks of the gate, or for the driver."""

_VERSION = re.compile(r"\d{3,}\.\d+(\.\d+)?")
_BRANCH = re.compile(r"\d{3,}")


class GateProcess(SimulatedProcess):
    """Writes the pod's request and exits once the gate is open to it."""

    comm = "sluice-gate"

    async def run(self, instance: ContainerInstance) -> int:
        state, pod = self.state, instance.pod
        label = pod.metadata.labels.get(DRIVER_LABEL, "")
        request = GateRequest(pod_uid=pod.metadata.uid, label=label, started=state.clock.now())
        gate.put_request(state.tree, request)
        while not gate.is_open(state.tree, request):
            await self.wait(POLL_INTERVAL)
        state.admitted.add(request.pod_uid)
        state.gate_answers += [
            answer for answer in gate.list_answers(state.tree) if answer.pod_uid == request.pod_uid
        ]
        return 0


class DriverProcess(SimulatedProcess):
    """Loads the driver and runs until its container ends."""

    comm = "nvidia-driver"

    def __init__(self, state: MachineState) -> None:
        super().__init__(state)
        self._daemon = 0
        self._locked_by = ""
        """The pod's uid while this process has the lock, which only one driver can have."""
        self._container_id = ""

    def begin(self, instance: ContainerInstance, events: ProcessEvents, /) -> None:
        state, meta = self.state, instance.pod.metadata
        self._container_id = instance.container_id
        state.check_boot(instance.boot_id)
        if meta.uid not in state.admitted:
            message = f"{meta.key} started its driver before the gate opened"
            state.record_incident(IncidentKind.NOT_ADMITTED, message)
        others = [label for uid, label in state.drivers.items() if uid != meta.uid]
        for label in others:
            message = f"{meta.key} started its driver while that of {label or 'no label'} runs"
            state.record_incident(IncidentKind.TWO_DRIVERS, message)
        if not others:
            self._locked_by = meta.uid
            state.drivers[meta.uid] = meta.labels.get(DRIVER_LABEL, "")
        super().begin(instance, events)

    async def run(self, instance: ContainerInstance) -> int:
        if not self._locked_by:
            return 1
        state, pod = self.state, instance.pod
        key = (instance.node, workload_of(pod), instance.container, instance.attempt)
        driver = _installation(pod, instance.container)
        self._log(f"Starting NVIDIA driver {driver.version}")
        state.host_tree.put(driver_files.PID, f"{self.pid}\n")
        if self._is_installed(driver):
            state.install(driver)
        elif code := await self._install(driver, pod):
            return code
        self._serve(instance)
        await self.wait(state.model.ready(*key).seconds)
        state.host_tree.put(driver_files.READY, _ready_file(pod))
        self.report_ready(True)
        ending = state.model.run(*key)
        await self.wait(ending.after)
        return ending.exit_code

    def stop(self, instance: ContainerInstance) -> None:
        """Remove the ready file, then close the devices."""
        self.abort()
        self.state.host_tree.remove(driver_files.READY)
        self.state.kernel.end(self._daemon)
        super().stop(instance)

    def cleanup(self) -> None:
        """End the daemon and release the lock."""
        super().cleanup()
        self.state.kernel.end(self._daemon)
        if self._locked_by:
            self.state.drivers.pop(self._locked_by, None)

    def _is_installed(self, driver: InstalledDriver) -> bool:
        state = self.state
        digest = driver_files.installed_digest(state.tree)
        return state.installed is not None and bool(driver.digest) and digest == driver.digest

    async def _install(self, driver: InstalledDriver, pod: Pod) -> int:
        """Unload other modules and load these; return the exit code."""
        state = self.state
        loaded = state.installed
        if loaded is not None:
            if loaded.pod_uid != driver.pod_uid:
                what = f"the modules of {loaded.label or loaded.version}"
                state.record_incident(
                    IncidentKind.OVER_ANOTHER, f"{pod.metadata.key} is to replace {what}"
                )
            if state.kernel.unload_all():
                return 1
        state.kernel.unmount_below(driver_files.ROOT)
        attempt = state.next_attempt(f"load {driver.label}")
        ending = state.model.load(state.name, driver.label, attempt)
        self._log(f"Building kernel modules for {state.kernel.release}")
        await self.wait(ending.after)
        if state.refusal:
            log_refusal(state)
        if ending.exit_code or state.refusal or state.kernel.is_loaded(modules.NOUVEAU):
            self._log("modprobe: ERROR: could not insert 'nvidia': Exec format error")
            self._log(f"Could not load driver {driver.version}; giving up")
            return ending.exit_code or 1
        self._log(f"Loaded driver {driver.version}")
        state.install(driver)
        state.host_tree.put(driver_files.STATE, f"{driver.digest}\n")
        return 0

    def _log(self, line: str) -> None:
        self.report_line(line)
        self.state.on_log(self._container_id, line)

    def _serve(self, instance: ContainerInstance) -> None:
        """Mount the driver's root and start the daemon, which holds the devices."""
        state = self.state
        state.kernel.unmount_below(driver_files.ROOT)
        state.kernel.mount(driver_files.ROOT)
        version = state.kernel.version(modules.DRIVER)
        for path in (
            "usr/bin/nvidia-smi",
            f"usr/src/nvidia-{version}/LICENSE",
            "dev/nvidiactl",
        ):
            state.host_tree.put(f"{driver_files.ROOT}/{path}")
        put_libraries(state.host_tree, driver_files.ROOT, version)
        self._daemon = state.kernel.start(
            PERSISTENCE_DAEMON,
            pod_uid=instance.pod.metadata.uid,
            container_id=instance.container_id,
        )
        state.kernel.open(self._daemon, (CONTROL, *map(device, range(len(state.gpus)))))


class ExtraModuleProcess(SimulatedProcess):
    """Loads one more module once the driver is ready, and keeps running."""

    comm = "bash"

    def __init__(self, state: MachineState, module: str) -> None:
        super().__init__(state)
        self._module = module

    async def run(self, instance: ContainerInstance) -> int:
        state = self.state
        key = (instance.node, workload_of(instance.pod), instance.container, instance.attempt)
        while state.installed is None or not state.tree.exists(driver_files.READY):
            await self.wait(POLL_INTERVAL)
        version = state.kernel.version(modules.DRIVER)
        state.kernel.load(self._module, version=version, uses=(modules.DRIVER,))
        await self.wait(state.model.ready(*key).seconds)
        self.report_ready(True)
        ending = state.model.run(*key)
        await self.wait(ending.after)
        return ending.exit_code


def driver_process(state: MachineState, pod: Pod, container: str) -> SimulatedProcess | None:
    """Return the process of a container of a driver pod; None for other containers."""
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
    """Derive the driver version from an image name."""
    name, _, digest = image.rpartition("/")[2].partition("@sha256:")
    tag = name.partition(":")[2]
    if found := _VERSION.match(tag):
        return found[0]
    if found := _BRANCH.match(tag):
        return f"{found[0]}.0"  # precompiled: the tag has the branch, and the kernel's release
    return f"580.{int(digest[:8] or '0', 16) % 1000}"


def _installation(pod: Pod, container: str) -> InstalledDriver:
    meta = pod.metadata
    images = {spec.name: spec.image for spec in pod.spec.containers}
    return InstalledDriver(
        version=version_of(images[container]),
        digest=meta.annotations.get(INSTALL_ANNOTATION, ""),
        label=meta.labels.get(DRIVER_LABEL, ""),
        pod_uid=meta.uid,
    )


def _ready_file(pod: Pod) -> str:
    containers = {container.name for container in pod.spec.containers}
    features = {
        "GDRCOPY_ENABLED": "nvidia-gdrcopy-ctr" in containers,
        "GDS_ENABLED": "nvidia-fs-ctr" in containers,
        "GPU_DIRECT_RDMA_ENABLED": "nvidia-peermem-ctr" in containers,
    }
    return "".join(f"{name}: {str(value).lower()}\n" for name, value in features.items())
