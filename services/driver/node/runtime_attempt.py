"""What must be known of a runtime's restart after a restart of the agent.

The file is on the machine, below `/run`: with a reboot the runtime starts again anyway.
"""

import hashlib
from typing import Final

import msgspec

from libs.host.runtimes.configuration import Plan
from libs.host.tree import Tree, read_json

PATH: Final = "/run/sluice/runtime.json"
UNDO: Final = "undo"
"""In the place of a plan's fingerprint: our files have been taken back."""
WITHIN: Final = 60.0
"""Seconds in which a runtime is back after a restart, and knows what its files say."""


class RuntimeAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A restart of the runtime, from before it."""

    plan: str
    pid: int
    """The process that ends."""
    unit: str
    at: float
    failed: str = ""
    """Why the files of this plan have been taken back; empty if they have not."""

    def is_late(self, now: float) -> bool:
        return not self.at <= now < self.at + WITHIN


def load(tree: Tree) -> RuntimeAttempt | None:
    """Return the last attempt of this boot; None where the file is missing or malformed."""
    return read_json(tree, PATH, RuntimeAttempt)


def save(tree: Tree, attempt: RuntimeAttempt) -> None:
    tree.write(PATH, msgspec.json.encode(attempt))


def clear(tree: Tree) -> None:
    tree.remove(PATH)


def fingerprint(plan: Plan) -> str:
    """Return what tells a plan from another one."""
    return hashlib.sha256(msgspec.json.encode(dict(plan), order="sorted")).hexdigest()
