"""CUDA on simulated machines, which returns what their owner sets."""

from collections.abc import Sequence

from libs.host.cuda.port import Computation, CudaProblem


class MemoryCuda:
    """Each GPU computes right, unless it was told to fail."""

    def __init__(self) -> None:
        self.problems: dict[str, CudaProblem] = {}
        """By UUID."""

    def compute(self, uuids: Sequence[str]) -> tuple[Computation, ...]:
        return tuple(Computation(uuid=uuid, problem=self.problems.get(uuid)) for uuid in uuids)

    def close(self) -> None:
        """Do nothing: no computation takes time."""
