"""What all that lives on one machine shares: kernel, files, world, and who was let in."""

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from libs.contracts.facts import Gpu
from libs.forecast.world import WorldModel
from libs.host import modules
from libs.runtime.clock import Clock
from libs.testing.errors import SimError
from libs.testing.machines.cached_tree import CachedTree, DiskTree
from libs.testing.machines.host_tree import HostTree
from libs.testing.machines.incidents import Incident, IncidentKind
from libs.testing.machines.kernel import SimulatedKernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from libs.host.tree import Tree


class InstalledDriver(msgspec.Struct, frozen=True, kw_only=True):
    """The driver that is in the kernel, and who put it there."""

    version: str
    digest: str = ""
    label: str = ""
    pod_uid: str = ""


class MachineState:
    """One machine's; a boot clears what is not on a disk."""

    def __init__(
        self,
        *,
        name: str,
        gpus: tuple[Gpu, ...],
        host_tree: HostTree,
        kernel: SimulatedKernel,
        model: WorldModel,
        clock: Clock,
        free: int,
        cache_reads: bool = False,
    ) -> None:
        """`free`: bytes on its disk. `remembers`: files are read once until they change, as
        `remembering` allows.
        """
        self.name = name
        self.gpus = gpus
        self.host_tree = host_tree
        self.tree: Tree = DiskTree(host_tree.root, free=free)
        self.end_writes: Callable[[], None] = _nothing
        """Called when whoever was shown a place of the tree has written there."""
        if cache_reads:
            self.tree = tree = CachedTree(self.tree)
            host_tree.on_write, self.end_writes = tree.invalidate, tree.end_writes
        self.kernel = kernel
        self.model = model
        self.clock = clock
        self.boot_id = ""
        self.incidents: list[Incident] = []
        self.admitted: set[str] = set()
        """Pods whose gate was answered in this boot."""
        self.drivers: dict[str, str] = {}
        """Labels of the driver containers that run, by the uid of their pod."""
        self.broken: set[int] = set()
        """GPUs that do not answer, by index."""
        self._installed: InstalledDriver | None = None
        self._attempts = Counter[str]()

    def set_boot(self, boot_id: str) -> None:
        """Another boot."""
        self.boot_id = boot_id
        self.admitted.clear()
        self.broken.clear()

    def check_boot(self, boot_id: str) -> None:
        """Whoever starts something here knows in which boot."""
        if boot_id != self.boot_id:
            raise SimError(
                f"the kubelet of {self.name} started a container in boot {boot_id}, but its machine"
                f" is in boot {self.boot_id}: join the machine to its fleet, and reboot the"
                " machine, not its kubelet"
            )

    def next_attempt(self, what: str) -> int:
        """The number of this attempt, from 0 on."""
        self._attempts[what] += 1
        return self._attempts[what] - 1

    def record_incident(self, kind: IncidentKind, what: str) -> None:
        """What must never happen did."""
        self.incidents.append(Incident(at=self.clock.now(), kind=kind, what=f"{self.name}: {what}"))

    @property
    def installed(self) -> InstalledDriver | None:
        """None while no driver is in the kernel."""
        return self._installed if self.kernel.is_loaded(modules.DRIVER) else None

    def install(self, driver: InstalledDriver) -> None:
        """Its modules are in the kernel from now on; what is loaded already stays as it is."""
        there = self.kernel.version(modules.DRIVER)
        self._installed = msgspec.structs.replace(driver, version=there or driver.version)
        for name in (modules.DRIVER, "nvidia_uvm", "nvidia_modeset"):
            uses = () if name == modules.DRIVER else (modules.DRIVER,)
            self.kernel.load(name, version=self._installed.version, uses=uses)


def _nothing() -> None:
    """Every look is a new one."""
