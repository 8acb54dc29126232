"""One simulated machine: files, kernel, agents and boots."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from libs.contracts.facts import Gpu
from libs.host import gate
from libs.host.cuda.memory import MemoryCuda
from libs.host.gate import GateAnswer, GateRequest
from libs.host.machine import Machine as HostMachine
from libs.host.machine import Offload
from libs.runtime.env import Env
from libs.testing.cluster.kubelet.container import ContainerProcess
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.kubelet.kubelet import SimulatedKubelet, new_boot_id
from libs.testing.cluster.views import Pod
from libs.testing.errors import SimError
from libs.testing.machines import drivers, processes
from libs.testing.machines.agent_process import SimulatedAgentProcess, SimulatedLinux
from libs.testing.machines.base_files import PLAIN, System, create_base_files
from libs.testing.machines.base_files import gpus as hardware
from libs.testing.machines.devices import DeviceConnection, SimulatedDevices
from libs.testing.machines.faults import MachineFaults
from libs.testing.machines.gpu_library import AgentGpus, GpuReadings, ValidatorGpus
from libs.testing.machines.host_tree import HostTree
from libs.testing.machines.kernel import CONTROL, MEMORY, SimulatedKernel, device
from libs.testing.machines.state import Incident, InstalledDriver, MachineState
from libs.testing.stage.worlds import MachineModel

if TYPE_CHECKING:
    from libs.host.runtimes.port import ContainerRuntime

DISK = "/var/lib"
"""The folder that `break_disk` makes unusable; it has the agents' journals."""


class SimulatedMachine:
    """Powered on from the start. `root` is its own folder; existing content of its disk stays."""

    def __init__(
        self,
        root: Path,
        *,
        name: str,
        model: MachineModel,
        env: Env,
        gpus: int = 8,
        system: System = PLAIN,
        cache_reads: bool = False,
    ) -> None:
        """`cache_reads`: read files once until they change; requires that only the machine and its
        agents write below `root`, on one thread.
        """
        self.name = name
        self.system = system
        self.cuda = MemoryCuda()
        self._ids = env.ids
        self._kubelet: SimulatedKubelet | None = None
        self._agents: list[tuple[SimulatedAgentProcess, AgentGpus]] = []
        self._connections: dict[SimulatedAgentProcess, DeviceConnection] = {}
        self.devices = SimulatedDevices()
        self.runtime: ContainerRuntime | None = None
        """What the driver agent finds as its container runtime."""
        self._on = False
        host_tree = HostTree(root)
        gpu_list = hardware(name, gpus, system.gpu)
        self._state = MachineState(
            name=name,
            gpus=gpu_list,
            host_tree=host_tree,
            kernel=SimulatedKernel(host_tree, gpus=gpu_list, clock=env.clock),
            model=model,
            clock=env.clock,
            free=system.free_gib * 1024**3,
            cache_reads=cache_reads,
        )
        self._readings = GpuReadings(
            env=env,
            busy_gpus=self._state.kernel.busy_gpus,
        )
        create_base_files(self._state.host_tree, name=name, system=system, gpus=self._state.gpus)
        self._boot(new_boot_id(env.ids), system.kernel)

    @property
    def root(self) -> Path:
        return self._state.host_tree.root

    @property
    def faults(self) -> MachineFaults:
        return MachineFaults(self._state)

    @property
    def boot_id(self) -> str:
        return self._state.boot_id

    @property
    def is_on(self) -> bool:
        return self._on

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The recorded incidents, in order: events that must never happen."""
        return tuple(self._state.incidents)

    @property
    def driver(self) -> InstalledDriver | None:
        return self._state.installed

    @property
    def divided(self) -> tuple[Gpu, ...]:
        """The GPUs, divided as they are now."""
        return tuple(map(self._state.mig.describe, self._state.gpus))

    def on_division(self, changed: Callable[[], object]) -> None:
        """Call this after each change of how a GPU is divided, instead of what was called."""
        self._state.on_division = changed

    def on_log(self, write: Callable[[str, str], object]) -> None:
        """Call this with the id and each line of a driver's container."""
        self._state.on_log = write

    @property
    def gate_answers(self) -> tuple[GateAnswer, ...]:
        """The answers with which pods passed the gate, in order."""
        return tuple(self._state.gate_answers)

    @property
    def gate_request(self) -> GateRequest | None:
        """The request of the pod that waits at the gate, if any."""
        tree = self._state.tree
        return gate.waiting_request(gate.list_requests(tree), gate.list_answers(tree))

    def join(
        self, fleet: KubeletFleet, *, labels: Mapping[str, str] | None = None
    ) -> SimulatedKubelet:
        """Add a kubelet of the fleet to this machine; both reboot together."""
        hardware = Hardware(
            gpus=len(self._state.gpus), kernel=self._state.kernel.release, labels=dict(labels or {})
        )
        self._kubelet = kubelet = fleet.add(self.name, hardware)
        kubelet.device_counts = lambda: self.devices.counts
        self.devices.on_change = kubelet.report_node
        self._state.kernel.name_boot(self._kubelet.boot_id)
        self._state.set_boot(self._kubelet.boot_id)
        return self._kubelet

    def process_for(self, pod: Pod, container: str) -> ContainerProcess | None:
        """Return the process of a driver pod's container, or of one with GPUs."""
        return drivers.driver_process(self._state, pod, container) or processes.gpu_process(
            self._state, pod, container
        )

    def host(
        self,
        offload: Offload,
        *,
        comm: str = "sluice",
        pod_uid: str = "",
        container_id: str = "",
        changes: bool = False,
        proves: bool = False,
    ) -> HostMachine:
        """Start an agent process, and return the machine as it sees it until the next boot.

        `changes` adds the kernel port. With `proves` (the validator) describing the GPUs takes as
        long as the model's validation, and ends like it. The time passes inside `offload.do`.
        """
        if not self._on:
            raise SimError(f"{self.name} is off: power it on before starting an agent")
        state = self._state
        agent = SimulatedAgentProcess(
            state, offload, comm=comm, pod_uid=pod_uid, container_id=container_id
        )
        library_class = ValidatorGpus if proves else AgentGpus
        library = library_class(state, agent, samples=self._readings.of)
        self._agents.append((agent, library))
        linux = SimulatedLinux(state, agent) if changes else None
        connection = self._connections[agent] = DeviceConnection(self.devices)
        return HostMachine(
            tree=state.tree,
            offload=agent,
            gpus=library,
            linux=linux,
            cuda=self.cuda if proves else None,
            runtime=self.runtime if changes else None,
            devices=connection,
        )

    def kill(self, host: HostMachine) -> None:
        """Kill the agent of this host: its devices are closed, and its calls fail."""
        for agent, library in [each for each in self._agents if each[0] is host.offload]:
            agent.end()
            self._agents.remove((agent, library))
            self._connections.pop(agent).end()

    def start_process(self, *indices: int, comm: str = "Xorg") -> int:
        """Start a process of the machine itself that computes on these GPUs; return its pid."""
        kernel = self._state.kernel
        pid = kernel.start(comm)
        if not kernel.open(pid, (CONTROL, MEMORY, *map(device, indices))):
            kernel.end(pid)
            raise ValueError(
                f"{comm} cannot use the GPUs of {self.name}: no driver is loaded there"
            )
        return pid

    def end_process(self, pid: int) -> None:
        self._state.kernel.end(pid)

    def power_off(self) -> None:
        """Kill everything on the machine and clear its memory."""
        if not self._on:
            return
        self._on = False
        if self._kubelet is not None:
            self._kubelet.power_off()
        for agent, _ in self._agents:
            agent.end()
        self._agents.clear()
        self._connections.clear()
        self.devices.boot()
        self._state.kernel.halt()

    def power_on(self, *, kernel: str = "") -> None:
        """Boot, possibly another kernel from now on."""
        if self._on:
            return
        release = kernel or self._state.kernel.release
        if self._kubelet is None:
            self._boot(new_boot_id(self._ids), release)
            return
        self._kubelet.power_on(kernel=release)
        self._boot(self._kubelet.boot_id, release)

    async def reboot(self, *, kernel: str = "") -> bool:
        """Power off, and on again after the boot; return False if the boot never ends."""
        self.power_off()
        boot = self._state.model.boot(self.name, self._state.next_attempt("boot"))
        if boot.seconds is None:
            return False
        await self._state.clock.sleep(boot.seconds)
        self.power_on(kernel=kernel)
        return True

    def set_clock(self, ahead: int) -> None:
        """Set the clock ahead by these seconds: the kernel then names a later time of boot."""
        self._state.kernel.set_clock(ahead)

    def break_gpu(self, index: int) -> None:
        """Make a GPU hang until the next boot, and report XID 79."""
        self._state.broken_gpus.add(index)
        self.report(index, 79)

    def repair_gpu(self, index: int) -> None:
        """Let a broken GPU answer again."""
        self._state.broken_gpus.discard(index)

    def report(self, index: int, xid: int) -> None:
        """Report an XID to every open library."""
        for _, library in self._agents:
            if library.is_open:
                library.fail(self._state.gpus[index].uuid, xid)

    def break_disk(self) -> None:
        """Make /var/lib unreadable and unwritable until `repair_disk`, also over boots."""
        self._state.host_tree.break_below(DISK)

    def repair_disk(self) -> None:
        """Restore the disk's content."""
        self._state.host_tree.repair_below(DISK)

    def _boot(self, boot_id: str, release: str) -> None:
        state = self._state
        self._on = True
        state.kernel.boot(boot_id=boot_id, release=release, nouveau=self.system.nouveau)
        state.set_boot(boot_id)
        if self.system.driver:
            state.install(InstalledDriver(version=self.system.driver))
