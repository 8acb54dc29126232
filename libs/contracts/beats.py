"""Alive, and with what it can do. Silence is measured by the receiver's clock."""

from libs.contracts.message import Message

PERIOD = 60.0
"""Seconds between beats, before jitter."""

SILENT_AFTER = 3 * PERIOD
"""A component without a beat for so long is silent."""


class Beat(Message, frozen=True, kw_only=True):
    """Alive, with the kinds of command and check it knows and the highest order it has seen."""

    node: str
    node_uid: str
    boot_id: str
    component: str
    release: str = ""
    """The version of Sluice that it runs."""
    knows: tuple[str, ...] = ()
    epoch: int = 0
    token: int = 0
    op: int = 0
