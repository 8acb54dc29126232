"""Text in XML and HTML: names of nodes and pods are not ours, and may be anything. Pure."""

from html import escape

from libs.ctl.text import printable


def marked(text: str) -> str:
    """Return a text that is one in XML and HTML, in elements and in attributes."""
    return escape(printable(text), quote=True)


def number(value: float) -> str:
    """Return a coordinate, in tenths."""
    return f"{value:.1f}".removesuffix(".0")
