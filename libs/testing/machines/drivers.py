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
from libs.host.gate import Asking
from libs.policy.rendering.rendered import INSTALL_ANNOTATION
from libs.testing.cluster.kinds import Pod
from libs.testing.cluster.kubelet.occupants import Instance, Voice
from libs.testing.machines.incidents import Never
from libs.testing.machines.kernel import CONTROL, device
from libs.testing.machines.residents import Resident, workload
from libs.testing.machines.site import Installed, Site

GATE: Final = "gate"
DRIVER: Final = "nvidia-driver-ctr"
BESIDE: Final = {
    "nvidia-peermem-ctr": "nvidia_peermem",
    "nvidia-fs-ctr": "nvidia_fs",
    "nvidia-gdrcopy-ctr": "gdrdrv",
}
"""Containers that load one module more, and which."""

LOOKS_EVERY: Final = 0.5
"""Seconds between two looks at the gate, or for the driver that a module needs."""

_VERSION = re.compile(r"\d{3,}\.\d+(\.\d+)?")
_BRANCH = re.compile(r"\d{3,}")


class Gate(Resident):
    """Asks, and ends when it is answered."""

    comm = "sluice-gate"

    async def live(self, instance: Instance) -> int:
        """Until an answer names its pod and its label."""
        site, pod = self.site, instance.pod
        label = pod.metadata.labels.get(DRIVER_LABEL, "")
        asking = Asking(pod_uid=pod.metadata.uid, label=label, started=site.clock.now())
        gate.ask(site.tree, asking)
        site.settle()
        while not gate.is_open(site.tree, asking):
            await self.wait(LOOKS_EVERY)
        site.admitted.add(asking.pod_uid)
        return 0


class Driver(Resident):
    """Builds, loads, and stays for as long as its container does."""

    comm = "nvidia-driver"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._daemon = 0
        self._locked_by = ""
        """The uid of its pod, once it has the lock that only one driver has."""

    def begin(self, instance: Instance, voice: Voice) -> None:
        """The container has started."""
        site, meta = self.site, instance.pod.metadata
        site.check_boot(instance.boot_id)
        if meta.uid not in site.admitted:
            site.happened(Never.NOT_ADMITTED, f"{meta.key} started its driver behind a shut gate")
        others = [label for uid, label in site.drivers.items() if uid != meta.uid]
        for label in others:
            said = f"{meta.key} started its driver while that of {label or 'no label'} runs"
            site.happened(Never.TWO_DRIVERS, said)
        if not others:
            self._locked_by = meta.uid
            site.drivers[meta.uid] = meta.labels.get(DRIVER_LABEL, "")
        super().begin(instance, voice)

    async def live(self, instance: Instance) -> int:
        """Until it fails, crashes or is stopped."""
        if not self._locked_by:
            return 1
        site, pod = self.site, instance.pod
        who = (instance.node, workload(pod), instance.container, instance.attempt)
        wanted = _installation(pod, instance.container)
        site.ground.put(driver_files.PID, f"{self.pid}\n")
        if self._is_in(wanted):
            site.install(wanted)
        elif code := await self._install(wanted, pod):
            return code
        self._serve(instance)
        await self.wait(site.model.ready(*who).seconds)
        site.ground.put(driver_files.READY, _ready_file(pod))
        self.ready(True)
        ending = site.model.run(*who)
        await self.wait(ending.after)
        return ending.exit_code

    def stop(self, instance: Instance) -> None:
        """First it takes back its word, then it lets go of the devices."""
        self.give_up()
        self.site.ground.drop(driver_files.READY)
        self.site.kernel.end(self._daemon)
        super().stop(instance)

    def vanish(self) -> None:
        """Its daemon goes with it, and so does its lock."""
        super().vanish()
        self.site.kernel.end(self._daemon)
        if self._locked_by:
            self.site.drivers.pop(self._locked_by, None)

    def _is_in(self, wanted: Installed) -> bool:
        site = self.site
        said = driver_files.installed_digest(site.tree)
        return site.installed is not None and bool(wanted.digest) and said == wanted.digest

    async def _install(self, wanted: Installed, pod: Pod) -> int:
        """Its exit code, if that was not possible."""
        site = self.site
        there = site.installed
        if there is not None:
            if there.pod_uid != wanted.pod_uid:
                what = f"the modules of {there.label or there.version}"
                site.happened(Never.OVER_ANOTHER, f"{pod.metadata.key} is to replace {what}")
            if site.kernel.unload_all():
                return 1
        site.kernel.unmount_below(driver_files.ROOT)
        attempt = site.attempt(f"load {wanted.label}")
        ending = site.model.load(site.name, wanted.label, attempt)
        await self.wait(ending.after)
        if ending.exit_code or site.kernel.has(modules.NOUVEAU):
            return ending.exit_code or 1
        site.install(wanted)
        site.ground.put(driver_files.STATE, f"{wanted.digest}\n")
        return 0

    def _serve(self, instance: Instance) -> None:
        """Its file system is shown to the machine, and its daemon holds the devices."""
        site = self.site
        site.kernel.unmount_below(driver_files.ROOT)
        site.kernel.mount(driver_files.ROOT)
        version = site.kernel.version(modules.DRIVER)
        for path in (
            "usr/bin/nvidia-smi",
            f"usr/src/nvidia-{version}/LICENSE",
            f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}",
            "dev/nvidiactl",
        ):
            site.ground.put(f"{driver_files.ROOT}/{path}")
        library = f"{driver_files.ROOT}/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
        site.ground.link(library, f"libnvidia-ml.so.{version}")
        self._daemon = site.kernel.start(
            "nvidia-persistenced",
            pod_uid=instance.pod.metadata.uid,
            container_id=instance.container_id,
        )
        site.kernel.open(self._daemon, (CONTROL, *map(device, range(len(site.gpus)))))


class Beside(Resident):
    """Loads one module more when the driver is there, and stays."""

    comm = "bash"

    def __init__(self, site: Site, module: str) -> None:
        super().__init__(site)
        self._module = module

    async def live(self, instance: Instance) -> int:
        """Until it crashes or is stopped."""
        site = self.site
        who = (instance.node, workload(instance.pod), instance.container, instance.attempt)
        while site.installed is None or not site.tree.exists(driver_files.READY):
            await self.wait(LOOKS_EVERY)
        version = site.kernel.version(modules.DRIVER)
        site.kernel.load(self._module, version=version, uses=(modules.DRIVER,))
        await self.wait(site.model.ready(*who).seconds)
        self.ready(True)
        ending = site.model.run(*who)
        await self.wait(ending.after)
        return ending.exit_code


def resident(site: Site, pod: Pod, container: str) -> Resident | None:
    """Who lives in this container of a driver pod, if it is one."""
    if container == DRIVER:
        return Driver(site)
    if DRIVER_LABEL not in pod.metadata.labels:
        return None
    if container == GATE:
        return Gate(site)
    return Beside(site, BESIDE[container]) if container in BESIDE else None


def version_of(image: str) -> str:
    """Which driver is in an image, as far as its name tells."""
    name, _, digest = image.rpartition("/")[2].partition("@sha256:")
    tag = name.partition(":")[2]
    if found := _VERSION.match(tag):
        return found[0]
    if found := _BRANCH.match(tag):
        return f"{found[0]}.0"  # precompiled: the tag has the branch, and the kernel's release
    return f"580.{int(digest[:8] or '0', 16) % 1000}"


def _installation(pod: Pod, container: str) -> Installed:
    meta = pod.metadata
    images = {each.name: each.image for each in pod.spec.containers}
    return Installed(
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
