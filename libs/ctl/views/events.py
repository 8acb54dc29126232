"""Events as lines. Pure."""

from rich.text import Text

from libs.ctl.answers import EventLine
from libs.ctl.text import clock_time, printable


def event_line(event: EventLine) -> Text:
    """Return one event: when, where, by which service, and what happened."""
    node = event.node if event.node not in event.message else ""
    said = printable(": ".join(filter(None, (node, event.message))))
    text = Text(overflow="fold")
    text.append(clock_time(event.at), "dim")
    text.append(f"  {printable(event.writer)}  {said}")
    return text
