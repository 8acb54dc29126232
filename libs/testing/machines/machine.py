"""One simulated machine: its tree, its kernel, what lives on it, and its way through boots."""

from collections.abc import Mapping
from pathlib import Path

from libs.forecast.world import WorldModel
from libs.host.machine import Machine as HostMachine
from libs.host.machine import Offload
from libs.runtime.env import Env
from libs.runtime.ids import Ids
from libs.testing.cluster.kubelet.container_process import (
    ContainerProcess,
    ProcessFactory,
    no_process,
)
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.kubelet.kubelet import SimulatedKubelet
from libs.testing.cluster.views import Pod
from libs.testing.errors import SimError
from libs.testing.machines import drivers, processes
from libs.testing.machines.agent_process import SimulatedAgentProcess, SimulatedLinux
from libs.testing.machines.base_files import create_base_files
from libs.testing.machines.gpu_library import AgentGpus, ValidatorGpus
from libs.testing.machines.gpu_readings import GpuReadings
from libs.testing.machines.host_tree import HostTree
from libs.testing.machines.incidents import Incident
from libs.testing.machines.kernel import CONTROL, MEMORY, SimulatedKernel, device
from libs.testing.machines.state import InstalledDriver, MachineState
from libs.testing.machines.system import PLAIN, System
from libs.testing.machines.system import gpus as hardware

DISK = "/var/lib"
"""What can be lost of a machine's disk: where agents keep their journals."""


class SimulatedMachine:
    """Up from the start. `root` is its own folder; what its disk had there before stays."""

    def __init__(
        self,
        root: Path,
        *,
        name: str,
        model: WorldModel,
        env: Env,
        gpus: int = 8,
        system: System = PLAIN,
        cache_reads: bool = False,
    ) -> None:
        """`remembers`: only the machine and its agents write below `root`, and on one thread; then
        a file is read once until it changes.
        """
        self.name = name
        self.system = system
        self._ids = env.ids
        self._kubelet: SimulatedKubelet | None = None
        self._seats: list[tuple[SimulatedAgentProcess, AgentGpus]] = []
        self._on = False
        ground = HostTree(root)
        there = hardware(name, gpus, system.gpu)
        self._site = MachineState(
            name=name,
            gpus=there,
            host_tree=ground,
            kernel=SimulatedKernel(ground, gpus=there, clock=env.clock),
            model=model,
            clock=env.clock,
            free=system.free_gib * 1024**3,
            cache_reads=cache_reads,
        )
        self._readings = GpuReadings(
            env=env,
            busy_gpus=self._site.kernel.busy_gpus,
            broken=lambda gpu: gpu.index in self._site.broken,
        )
        create_base_files(self._site.host_tree, name=name, system=system, gpus=self._site.gpus)
        self._boot(_boot_id(env.ids), system.kernel)

    # What is to be seen of it from above.

    @property
    def root(self) -> Path:
        """Its folder."""
        return self._site.host_tree.root

    @property
    def boot_id(self) -> str:
        """Of the present boot, or of the last one."""
        return self._site.boot_id

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """What must never happen, and did, in the order in which it happened."""
        return tuple(self._site.incidents)

    @property
    def driver(self) -> InstalledDriver | None:
        """What is in its kernel now."""
        return self._site.installed

    # Who lives on it.

    def join(
        self, fleet: KubeletFleet, *, labels: Mapping[str, str] | None = None
    ) -> SimulatedKubelet:
        """A kubelet of that fleet is this machine's; they go through boots together from now on."""
        hardware = Hardware(
            gpus=len(self._site.gpus), kernel=self._site.kernel.release, labels=dict(labels or {})
        )
        self._kubelet = fleet.add(self.name, hardware)
        self._site.kernel.name_boot(self._kubelet.boot_id)
        self._site.set_boot(self._kubelet.boot_id)
        return self._kubelet

    def process_for(self, pod: Pod, container: str) -> ContainerProcess | None:
        """Who lives in a container on this machine: of a driver pod, or one with GPUs."""
        return drivers.driver_process(self._site, pod, container) or processes.gpu_process(
            self._site, pod, container
        )

    def host(
        self,
        access: Offload,
        *,
        comm: str = "sluice",
        pod_uid: str = "",
        container_id: str = "",
        changes: bool = False,
        proves: bool = False,
    ) -> HostMachine:
        """The machine as one agent of ours is given it, for this boot: a process of that name.

        `changes`: it gets the kernel port too. `proves`: it is the validator, whose look at the
        GPUs takes as long as the world says of a validation, and ends so. In both cases the time
        passes inside `access.do` of what is given back, and nowhere else.
        """
        if not self._on:
            raise SimError(f"an agent was to live on {self.name}, which is off: power it on first")
        site = self._site
        seat = SimulatedAgentProcess(
            site, access, comm=comm, pod_uid=pod_uid, container_id=container_id
        )
        kind = ValidatorGpus if proves else AgentGpus
        library = kind(site, seat, samples=self._readings.of)
        self._seats.append((seat, library))
        linux = SimulatedLinux(site, seat) if changes else None
        return HostMachine(tree=site.tree, offload=seat, gpus=library, linux=linux)

    def kill(self, host: HostMachine) -> None:
        """The agent that was given it is gone: it holds nothing, and nothing of it arrives."""
        for seat, library in [each for each in self._seats if each[0] is host.offload]:
            seat.end()
            self._seats.remove((seat, library))

    def start_process(self, *indices: int, comm: str = "Xorg") -> int:
        """A process of the machine itself computes on these GPUs; gives its number."""
        kernel = self._site.kernel
        pid = kernel.start(comm)
        if not kernel.open(pid, (CONTROL, MEMORY, *map(device, indices))):
            kernel.end(pid)
            raise ValueError(
                f"{comm} was to use GPUs of {self.name}, but no driver is loaded there"
            )
        return pid

    def end_process(self, pid: int) -> None:
        """That process ends."""
        self._site.kernel.end(pid)

    # What happens to it.

    def power_off(self) -> None:
        """All that was in its memory is gone; who lived on it is killed."""
        if not self._on:
            return
        self._on = False
        if self._kubelet is not None:
            self._kubelet.power_off()
        for seat, _ in self._seats:
            seat.end()
        self._seats.clear()
        self._site.kernel.halt()

    def power_on(self, *, kernel: str = "") -> None:
        """It boots, perhaps another kernel from now on."""
        if self._on:
            return
        release = kernel or self._site.kernel.release
        if self._kubelet is None:
            self._boot(_boot_id(self._ids), release)
            return
        self._kubelet.power_on(kernel=release)
        self._boot(self._kubelet.boot_id, release)

    async def reboot(self, *, kernel: str = "") -> bool:
        """Off, and on again when it has booted; False where the world lets it never come back."""
        self.power_off()
        span = self._site.model.boot(self.name, self._site.next_attempt("boot"))
        if span.seconds is None:
            return False
        await self._site.clock.sleep(span.seconds)
        self.power_on(kernel=kernel)
        return True

    def break_gpu(self, index: int, xid: int = 79) -> None:
        """It reports this error, and does not answer any more in this boot."""
        self._site.broken.add(index)
        self.report(index, xid)

    def report(self, index: int, xid: int) -> None:
        """A GPU reports an error to whoever has the library open, and goes on."""
        for _, library in self._seats:
            if library.is_open:
                library.fail(self._site.gpus[index].uuid, xid)

    def break_disk(self) -> None:
        """Nothing below /var/lib can be read or written, until `find_disk`; also over boots."""
        self._site.host_tree.break_below(DISK)

    def repair_disk(self) -> None:
        """What was there is there again."""
        self._site.host_tree.repair_below(DISK)

    def _boot(self, boot_id: str, release: str) -> None:
        site = self._site
        self._on = True
        site.kernel.boot(boot_id=boot_id, release=release, nouveau=self.system.nouveau)
        site.set_boot(boot_id)
        if self.system.driver:
            site.install(InstalledDriver(version=self.system.driver))


def process_factory(
    machines: Mapping[str, SimulatedMachine], otherwise: ProcessFactory = no_process
) -> ProcessFactory:
    """For a fleet: each container's machine is asked, by the name of its node; then `otherwise`.

    Machines may be added to the mapping at any time.
    """

    def who(pod: Pod, container: str) -> ContainerProcess | None:
        machine = machines.get(pod.spec.node_name)
        found = machine.process_for(pod, container) if machine is not None else None
        return found if found is not None else otherwise(pod, container)

    return who


def _boot_id(ids: Ids) -> str:
    text = ids.new()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
