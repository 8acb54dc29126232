"""Log what is wrong with NVML's answers, each kind once in a run of its process."""

from collections.abc import Mapping

from libs.runtime.logs import logger

_log = logger()


class ToldOnce:
    def __init__(self) -> None:
        self._told = set[tuple[str, str]]()

    def log(self, source: str, complaints: Mapping[str, str]) -> None:
        """Log the values that cannot be true, which `complaints` has by name."""
        for name, value in complaints.items():
            if self._is_new(source, name):
                _log.warning(
                    "NVML returned a value that cannot be true",
                    source=source,
                    name=name,
                    value=value,
                )

    def log_unread(self, index: int, unread: Mapping[str, int]) -> None:
        """Log the values of a GPU that NVML cannot read now, with its error for each."""
        for name, code in unread.items():
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
