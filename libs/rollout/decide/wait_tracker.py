"""The wait of every node: its own, or that of its queue.

The reason of a queue thus changes in one place. `since` is kept while the code stays the same.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from libs.contracts.waits import WaitCode
from libs.rollout.allocate import CandidateQueue
from libs.rollout.decision import Wait


class WaitTracker(Mapping[str, Wait]):
    """By node name: every node that waits and has no step."""

    def __init__(self) -> None:
        self.codes: dict[str, WaitCode] = {}
        """The last wait code of each node, also of those with a step."""
        self._since: dict[str, float] = {}
        self._own: dict[str, Wait] = {}
        self._over: dict[str, Wait] = {}
        self._lines: dict[str, CandidateQueue] = {}
        self._shown: dict[str, None] = {}

    def __getitem__(self, name: str) -> Wait:
        if name not in self._shown:
            raise KeyError(name)
        wait = self._over.get(name) or self._own.get(name)
        if wait is None:
            return self._lines[name].wait(self._since[name])
        return self._dated(name, wait)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shown)

    def __len__(self) -> int:
        return len(self._shown)

    def __contains__(self, name: object) -> bool:
        return name in self._shown

    def remember(self, name: str, wait: Wait) -> None:
        """Restore the wait that a node had before this process started."""
        if name not in self.codes:
            self.codes[name], self._since[name] = wait.code, wait.since

    def put(self, name: str, own: Wait | None, line: CandidateQueue | None) -> None:
        if own is not None:
            self._own[name] = own
        elif name in self._own:
            del self._own[name]
        if line is not None:
            self._lines[name] = line
        elif name in self._lines:
            del self._lines[name]

    def set_overrides(self, over: dict[str, Wait]) -> set[str]:
        """Replace the waits that take precedence; return nodes whose wait may have changed."""
        names = self._over.keys() - over.keys()
        self._over = over
        for name, wait in over.items():
            if name not in self._shown or self.codes.get(name) is not wait.code:
                names.add(name)
        return names

    def forget(self, name: str) -> None:
        for known in (self.codes, self._since, self._own, self._lines):
            known.pop(name, None)
        self._shown.pop(name, None)

    def update(self, name: str, at: float) -> Wait | None:
        """Publish whether the node waits; return the wait if its code changed."""
        code = self._code(name)
        if code is None:
            self._shown.pop(name, None)
            return None
        self._shown[name] = None
        return self[name] if self._told(name, code, at) else None

    def hide(self, name: str) -> None:
        """Hide the wait: a write to the node is not answered yet."""
        self._shown.pop(name, None)

    def wait_beside_step(self, name: str, wait: Wait | None, at: float) -> Wait | None:
        """Return the wait that goes with a step, with its right `since`."""
        self._shown.pop(name, None)
        if wait is None:
            self.clear(name)
            return None
        self._told(name, wait.code, at)
        return self._dated(name, wait)

    def clear(self, name: str) -> bool:
        """Forget the wait; return whether there was one."""
        self._since.pop(name, None)
        return self.codes.pop(name, None) is not None

    def _code(self, name: str) -> WaitCode | None:
        wait = self._over.get(name) or self._own.get(name)
        if wait is not None:
            return wait.code
        line = self._lines.get(name)
        return None if line is None or line.blocked_by is None else line.blocked_by.code

    def _told(self, name: str, code: WaitCode, at: float) -> bool:
        if self.codes.get(name) is code:
            return False
        self.codes[name], self._since[name] = code, at
        return True

    def _dated(self, name: str, wait: Wait) -> Wait:
        since = self._since[name]
        return wait if wait.since == since else replace(wait, since=since)
