"""Log what is wrong with NVML's answers, each kind once in a run of its process."""

from libs.host.gpus.clean import Complaints
from libs.host.gpus.protocol import RawGpu
from libs.runtime.logs import logger

_log = logger()


class ToldOnce:
    def __init__(self) -> None:
        self._told = set[tuple[str, str]]()

    def log(self, complaints: Complaints) -> None:
        """Log the values that cannot be true."""
        for name, value in complaints.found.items():
            if self._is_new(complaints.source, name):
                _log.warning(
                    "NVML returned a value that cannot be true",
                    source=complaints.source,
                    name=name,
                    value=value,
                )

    def log_unread(self, index: int, raw: RawGpu) -> None:
        """Log the values of a GPU that NVML cannot read now."""
        for name, code in raw.unread.items():
            if self._is_new(f"GPU {index}", f"unread {name}"):
                _log.warning(
                    "NVML cannot read a value of a GPU: what it said last counts, if it did",
                    gpu=index,
                    name=name,
                    error=code,
                )

    def _is_new(self, source: str, name: str) -> bool:
        is_new = (source, name) not in self._told
        self._told.add((source, name))
        return is_new
