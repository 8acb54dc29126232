"""Heartbeats of components. Silence is measured by the receiver's clock."""

from libs.contracts.message import Message

PERIOD = 60.0
"""Seconds between beats, before jitter."""

SILENT_AFTER = 3 * PERIOD
"""Seconds without a beat after which a component counts as silent."""


class Beat(Message, frozen=True, kw_only=True):
    """A heartbeat: the command and check kinds a component knows, and the highest order it saw."""

    node: str
    node_uid: str
    boot_id: str
    component: str
    release: str = ""
    """The component's version of Sluice."""
    knows: tuple[str, ...] = ()
    epoch: int = 0
    token: int = 0
    op: int = 0
