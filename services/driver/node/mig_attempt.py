"""What an op `mig` must know after a restart of the agent: how the GPUs were divided before it.

The file is on the machine, below `/run`: a reboot ends the op, and takes the file with it.
"""

from typing import Final

import msgspec

from libs.contracts.commands import GpuGeometry, Order
from libs.host.tree import Tree, read_json

PATH: Final = "/run/sluice/mig.json"


class MigFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the GPUs could not be divided."""

    code: str
    message: str


class MigAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One op, from before its first change."""

    token: int
    op: int
    before: tuple[GpuGeometry, ...]
    failure: MigFailure | None = None
    """Once there is one, the op only restores what was before."""
    ended: bool = False

    def is_of(self, order: Order) -> bool:
        return (self.token, self.op) == order


def load(tree: Tree) -> MigAttempt | None:
    """Return the last attempt of this boot; None where the file is missing or malformed."""
    return read_json(tree, PATH, MigAttempt)


def save(tree: Tree, attempt: MigAttempt) -> None:
    tree.write(PATH, msgspec.json.encode(attempt))


def begin(last: MigAttempt | None, order: Order, before: tuple[GpuGeometry, ...]) -> MigAttempt:
    """Return the attempt of a new op.

    Where an earlier op was superseded halfway, what was before that one counts.
    """
    if last is not None and not last.ended:
        earlier = {each.uuid: each for each in last.before}
        before = tuple(earlier.get(each.uuid, each) for each in before)
    return MigAttempt(token=order.token, op=order.op, before=before)
