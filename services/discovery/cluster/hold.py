"""Whether this role may write now: not while a GPU Operator is active, or while that is unknown."""

from collections.abc import Callable


class Hold:
    """Set by the controller that watches for a GPU Operator, and obeyed by every controller."""

    def __init__(self) -> None:
        self.reason = "not known yet"
        """Why nothing may be written; empty if it may."""
        self._watchers: list[Callable[[], None]] = []

    def set(self, reason: str) -> None:
        before, self.reason = self.reason, reason
        if bool(before) != bool(reason):
            for watcher in tuple(self._watchers):
                watcher()

    def on_change(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` when a hold begins or ends, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)
