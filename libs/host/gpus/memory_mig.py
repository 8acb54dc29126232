"""How the GPUs of a simulated machine are divided, by the driver's rules."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from libs.contracts.facts import Gpu, Mig
from libs.host.gpus.division import (
    Activation,
    DivisionRefused,
    GpuDivision,
    GpuInstance,
    InstanceProfile,
    RefusalReason,
)

_MEMORY_SLICES = 8


class MemoryMig:
    """The MIG of one machine's GPUs, all of one product; several `MemoryGpus` may share it."""

    def __init__(
        self,
        uuids: Iterable[str],
        profiles: Sequence[InstanceProfile],
        *,
        is_used: Callable[[str], bool],
        persists: bool = False,
    ) -> None:
        """`persists`: a change of the mode takes effect at a reset, and outlives the driver."""
        self._is_used = is_used
        self._persists = persists
        self._gpus = {
            uuid: GpuDivision(uuid=uuid, mig=False, pending=False, profiles=tuple(profiles))
            for uuid in uuids
        }
        self.activation = Activation.RESET_REQUIRED if persists else Activation.DONE
        """What becomes of a change of the mode of a GPU that is free."""
        self.is_permitted = True

    def division(self, uuid: str) -> GpuDivision:
        if uuid not in self._gpus:
            raise DivisionRefused(RefusalReason.NOT_CAPABLE)
        return self._gpus[uuid]

    def set_mode(self, uuid: str, *, on: bool) -> Activation:
        gpu = self._changeable(uuid)
        status = self.activation
        if on == gpu.mig:
            status = Activation.DONE
        elif self._is_used(uuid) or gpu.instances:
            status = Activation.IN_USE
        mig = on if status is Activation.DONE else gpu.mig
        self._gpus[uuid] = replace(gpu, mig=mig, pending=on)
        return status

    def create(
        self, uuid: str, profile: InstanceProfile, *, start: int, compute: Sequence[int]
    ) -> None:
        gpu = self._changeable(uuid)
        taken = {place for each in gpu.instances for place in _places(each.start, each.size)}
        if not gpu.mig or profile not in gpu.profiles or sum(compute) > profile.slices:
            raise DivisionRefused(RefusalReason.NOT_CAPABLE)
        if start not in profile.starts or taken & {*_places(start, profile.size)}:
            raise DivisionRefused(RefusalReason.NO_ROOM)
        created = GpuInstance(
            # As real drivers do, give the same number to the same place.
            id=16 * profile.size + start,
            profile=profile.name,
            start=start,
            size=profile.size,
            compute=tuple(sorted(compute, reverse=True)),
        )
        instances = sorted((*gpu.instances, created), key=lambda each: each.start)
        self._gpus[uuid] = replace(gpu, instances=tuple(instances))

    def destroy(self, uuid: str, number: int) -> None:
        gpu = self._changeable(uuid)
        left = tuple(each for each in gpu.instances if each.id != number)
        if len(left) == len(gpu.instances):
            raise DivisionRefused(RefusalReason.REFUSED)
        if self._is_used(uuid):
            raise DivisionRefused(RefusalReason.IN_USE)
        self._gpus[uuid] = replace(gpu, instances=left)

    def unload(self) -> None:
        """Drop what does not outlive the driver."""
        for uuid, gpu in self._gpus.items():
            mig, pending = (gpu.mig, gpu.pending) if self._persists else (False, False)
            self._gpus[uuid] = replace(gpu, mig=mig, pending=pending, instances=())

    def reboot(self) -> None:
        """Unload, and reset the GPUs: their modes that are pending take effect."""
        self.unload()
        self._gpus = {uuid: replace(gpu, mig=gpu.pending) for uuid, gpu in self._gpus.items()}

    def describe(self, gpu: Gpu) -> Gpu:
        """Return the description of a GPU with its MIG devices."""
        found = self._gpus.get(gpu.uuid)
        if found is None:
            return gpu
        return replace(
            gpu,
            mig_capable=True,
            mig_mode=found.mig,
            mig_pending=found.pending,
            migs=tuple(mig for each in found.instances for mig in _devices(gpu, found, each)),
        )

    def _changeable(self, uuid: str) -> GpuDivision:
        gpu = self.division(uuid)
        if not self.is_permitted:
            raise DivisionRefused(RefusalReason.NO_PERMISSION)
        return gpu


def _places(start: int, size: int) -> range:
    return range(start, start + size)


def _devices(gpu: Gpu, division: GpuDivision, instance: GpuInstance) -> Iterable[Mig]:
    profile = next(each for each in division.profiles if each.name == instance.profile)
    for number, slices in enumerate(instance.compute):
        part = "" if slices == profile.slices else f"{slices}c."
        yield Mig(
            uuid=f"MIG-{gpu.uuid.removeprefix('GPU-')}-{instance.id}-{number}",
            profile=f"{part}{profile.name}",
            gpu_instance=instance.id,
            compute_instance=number,
            memory_mib=gpu.memory_mib * profile.size // _MEMORY_SLICES,
            gpu_slices=profile.slices,
            compute_slices=slices,
        )
