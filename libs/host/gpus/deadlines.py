"""How long GPUs are waited for, and for how long one has owed an answer. Pure.

A late answer says nothing of the GPU while the machine's CPUs are busy: this process, or the one
that uses NVML, may simply not have run. NVML itself waits for the driver's lock for seconds while
an application starts or ends. So seconds count against a GPU only as far as both processes ran.
"""

from collections.abc import Collection
from typing import Final

import msgspec

LONGEST_LOOK: Final = 5.0
"""Seconds that count between two looks, at most: where more passed, this process did not run."""
NOT_RUNNING: Final = 0.25
"""The share that counts of seconds in which the NVML process did not run. It is not zero, because a
call that hangs in the driver may hold what all threads of its process need."""


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds for which an agent waits for NVML's process, question by question."""

    open: float = 60.0
    """The time to open NVML: without persistence mode, that initializes one GPU after another."""
    first: float = 15.0
    """The time for the first answer of a GPU, which may have to be initialized."""
    answer: float = 3.0
    """The time for every other answer: a GPU that misses it is late, and asked a second time."""
    hung: float = 15.0
    """The time until a late GPU is hung: NVML itself waits for the driver's lock for seconds."""
    late: float = 0.25
    """The time for which the answers of the other GPUs wait for a late one; more would make gaps in
    their graphs."""
    running: float = 0.5
    """The time for the answer that the process runs, which asks no GPU: a process without CPU time
    says nothing about a GPU."""
    change: float = 60.0
    """The time for one change of how a GPU is divided, which may reset it."""
    kill: float = 1.5
    """The time until a killed process that waits in the driver counts as stuck there."""
    busy: float = 15.0
    """The time until any killed process counts as stuck: a busy machine takes a while to end it."""


class Patience:
    """For how many seconds each GPU has owed an answer, as far as they count against it."""

    def __init__(self) -> None:
        self._owed: dict[int, float] = {}
        self._looked_at = 0.0

    def look(self, owing: Collection[int], *, began: float, now: float, runs: bool) -> None:
        """Count the time since the last look; of a GPU that owes newly, that since `began`.

        `runs` says whether the NVML process showed in this look that it runs.
        """
        share = 1.0 if runs else NOT_RUNNING
        self._owed = {
            gpu: self._owed.get(gpu, 0.0)
            + share * min(now - (self._looked_at if gpu in self._owed else began), LONGEST_LOOK)
            for gpu in owing
        }
        self._looked_at = now

    def owed(self, gpu: int) -> float:
        """Return the seconds that count; 0 if the GPU owes nothing."""
        return self._owed.get(gpu, 0.0)
