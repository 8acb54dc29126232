"""State that all parts of one machine share, and the incidents recorded there."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from libs.contracts.facts import Gpu
from libs.host import modules
from libs.host.gpus.memory_mig import MemoryMig
from libs.runtime.clock import Clock
from libs.testing.errors import SimError
from libs.testing.machines.host_tree import CachedTree, DiskTree, HostTree
from libs.testing.machines.kernel import SimulatedKernel
from libs.testing.nvml.products import PRODUCTS
from libs.testing.stage.worlds import MachineModel

if TYPE_CHECKING:
    from libs.contracts.gpus import GpuProblem
    from libs.host.gate import GateAnswer
    from libs.host.tree import Tree


class IncidentKind(StrEnum):
    TWO_DRIVERS = "two drivers"
    """A driver container started while that of another pod ran."""
    OVER_ANOTHER = "over another"
    """A driver container started to replace modules that another pod had loaded."""
    NOT_ADMITTED = "not admitted"
    """A driver container started in a boot in which its pod did not pass the gate."""
    UNDER_A_HOLDER = "under a holder"
    """The driver was unloaded while a process had one of its devices open."""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """An event that must never happen on a machine."""

    time: float
    kind: IncidentKind
    description: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.description}"


class InstalledDriver(msgspec.Struct, frozen=True, kw_only=True):
    """The driver in the kernel, and the pod that loaded it."""

    version: str
    digest: str = ""
    label: str = ""
    pod_uid: str = ""


class MachineState:
    def __init__(
        self,
        *,
        name: str,
        gpus: tuple[Gpu, ...],
        host_tree: HostTree,
        kernel: SimulatedKernel,
        model: MachineModel,
        clock: Clock,
        free: int,
        cache_reads: bool = False,
    ) -> None:
        """`free`: free bytes on the disk. `cache_reads`: see `SimulatedMachine`."""
        self.name = name
        self.gpus = gpus
        self.mig = _mig(gpus, kernel)
        self.host_tree = host_tree
        self.tree: Tree = DiskTree(host_tree.root, free=free)
        if cache_reads:
            self.tree = tree = CachedTree(self.tree)
            host_tree.on_write = tree.invalidate
        self.kernel = kernel
        kernel.on_driver_unloaded = self.mig.unload
        self.model = model
        self.clock = clock
        self.boot_id = ""
        self.incidents: list[Incident] = []
        self.admitted: set[str] = set()
        """Uids of pods that passed the gate in this boot."""
        self.gate_answers: list[GateAnswer] = []
        """The answers with which pods passed the gate, in all boots."""
        self.drivers: dict[str, str] = {}
        """Labels of running driver containers, by pod uid."""
        self.on_division: Callable[[], object] = lambda: None
        """Called after each change of how a GPU is divided."""
        self.on_log: Callable[[str, str], object] = lambda _container, _line: None
        """Called with each line that a driver's container writes, and the container's id."""
        self.broken_gpus: set[int] = set()
        """Indices of GPUs that do not answer in this boot."""
        self.refusal = ""
        """The kernel's record about modules of a driver, which it refuses; empty: it does not."""
        self.library_version = ""
        """The version of the driver's library; empty: that of the modules."""
        self.library_problem: GpuProblem | None = None
        """Why the validator cannot open the driver's library."""
        self._installed: InstalledDriver | None = None
        self._attempts = Counter[str]()

    def note_division(self, gpus: Iterable[Gpu]) -> None:
        """Make the device files of the MIG devices, and tell of the change."""
        lines = list[str]()
        for gpu in gpus:
            for mig in gpu.migs:
                instance = f"gpu{gpu.minor}/gi{mig.gpu_instance}"
                number = 2048 * gpu.minor + 10 * mig.gpu_instance
                lines.append(f"{instance}/access {number}\n")
                own = number + 1 + mig.compute_instance
                lines.append(f"{instance}/ci{mig.compute_instance}/access {own}\n")
                for each in (number, own):
                    self.host_tree.put(f"/dev/nvidia-caps/nvidia-cap{each}")
        self.host_tree.put("/proc/driver/nvidia-caps/mig-minors", "".join(lines))
        self.on_division()

    def set_boot(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self.admitted.clear()
        self.broken_gpus.clear()
        self.mig.reboot()

    def check_boot(self, boot_id: str) -> None:
        """Check that a container starts in the machine's current boot."""
        if boot_id != self.boot_id:
            raise SimError(
                f"the kubelet of {self.name} started a container in boot {boot_id}, but its machine"
                f" is in boot {self.boot_id}: join the machine to its fleet, and reboot the"
                " machine, not its kubelet"
            )

    def next_attempt(self, what: str) -> int:
        """Return the number of this attempt, from 0 on."""
        self._attempts[what] += 1
        return self._attempts[what] - 1

    def record_incident(self, kind: IncidentKind, what: str) -> None:
        self.incidents.append(
            Incident(time=self.clock.now(), kind=kind, description=f"{self.name}: {what}")
        )

    @property
    def installed(self) -> InstalledDriver | None:
        """The driver in the kernel, or None."""
        return self._installed if self.kernel.is_loaded(modules.DRIVER) else None

    def install(self, driver: InstalledDriver) -> None:
        """Load the driver's modules; loaded ones stay as they are."""
        loaded = self.kernel.version(modules.DRIVER)
        self._installed = msgspec.structs.replace(driver, version=loaded or driver.version)
        for name in (modules.DRIVER, "nvidia_uvm", "nvidia_modeset"):
            uses = () if name == modules.DRIVER else (modules.DRIVER,)
            self.kernel.load(name, version=self._installed.version, uses=uses)


def _mig(gpus: Sequence[Gpu], kernel: SimulatedKernel) -> MemoryMig:
    """Return how the GPUs that have MIG are divided: not yet."""
    capable = {gpu.uuid: gpu.index for gpu in gpus if gpu.mig_capable}
    products = (product for gpu in gpus for product in PRODUCTS if product.name == gpu.name)
    product = next(products, None)
    return MemoryMig(
        capable,
        () if product is None else product.mig,
        # The agent that changes a GPU has it open too.
        is_used=lambda uuid: kernel.count_users(capable[uuid]) > 1,
        persists=product is not None and product.mig_mode_needs_reset,
    )
