"""Describe for the query `why` the clocks that differ from the leader's time."""

from libs.contracts.identities import Writer
from services.scheduler.inputs import CLOCK_TOLERANCE, Inputs


def clock_texts(inputs: Inputs, node: str) -> str:
    """Return whose clock is wrong, that of the leader's machine or of this node; empty: neither."""
    beat = inputs.heartbeats.last(node, Writer.DRIVER)
    texts = (
        _text("the leader's machine", inputs.clock.machine_ahead),
        "" if beat is None else _text("this node", beat.clock_ahead),
    )
    return "; ".join(filter(None, texts))


def _text(whose: str, ahead: float) -> str:
    if abs(ahead) <= CLOCK_TOLERANCE:
        return ""
    way = "ahead of" if ahead > 0 else "behind"
    by = "the time that the leader goes by, and no limit moves with it"
    return f"the clock of {whose} is {abs(ahead):.0f} s {way} {by}"
