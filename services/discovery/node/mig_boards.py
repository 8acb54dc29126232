"""How the GPUs of a machine could be divided, as their driver says. Calls block."""

from collections.abc import Sequence
from typing import NamedTuple

from libs.contracts.facts import Gpu, MigBoard, MigKind
from libs.host.gpus.division import DivisionRefused
from libs.host.gpus.port import DriverLibrary, GpuHandle, GpusUnavailable


class _Read(NamedTuple):
    library: DriverLibrary
    mig_mode: bool
    kinds: tuple[MigKind, ...]


class MigBoards:
    """Asks each GPU once per driver and MIG mode: some drivers name nothing while MIG is off."""

    def __init__(self) -> None:
        self._read: dict[str, _Read] = {}
        """By UUID."""

    def read(
        self, hold: GpuHandle | None, gpus: Sequence[Gpu] | None
    ) -> tuple[MigBoard, ...] | None:
        """Return the boards; None while the GPUs cannot be read."""
        library = None if hold is None or gpus is None else hold.acquire()
        if hold is None or gpus is None or library is None:
            return None
        for gpu in gpus:
            if gpu.mig_capable and gpu.problem is None:
                self._ask(hold, library, gpu)
        boards: dict[tuple[MigKind, ...], list[int]] = {}
        for gpu in gpus:
            found = self._read.get(gpu.uuid)
            if found is not None and found.kinds:
                boards.setdefault(found.kinds, []).append(gpu.index)
        return tuple(MigBoard(gpus=tuple(each), kinds=kinds) for kinds, each in boards.items())

    def _ask(self, hold: GpuHandle, library: DriverLibrary, gpu: Gpu) -> None:
        known = self._read.get(gpu.uuid)
        if known is not None and known[:2] == (library, gpu.mig_mode):
            return
        try:
            profiles = hold.gpus.division(gpu.uuid).profiles
        except (DivisionRefused, GpusUnavailable):
            return  # the next scan of the machine asks again; that of the GPUs finds the reason
        kinds = tuple(
            MigKind(name=each.name, most=each.most, size=each.size, starts=each.starts)
            for each in profiles
        )
        self._read[gpu.uuid] = _Read(library, gpu.mig_mode, kinds)
