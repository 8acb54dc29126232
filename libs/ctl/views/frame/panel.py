"""A panel of text in the place of the nodes: an answer, help or a question. Pure."""

from libs.ctl.text import plural
from libs.ctl.views.frame.text import Line, Span, fit, fold
from libs.ctl.watch.screen import Panel


def panel_lines(panel: Panel, *, width: int, room: int) -> list[Line]:
    """Return a panel's title, its lines from `top` on, and how many are not shown."""
    lines = [fit([Span(panel.title, "bold")], width)]
    texts = _panel_texts(panel, width)
    left = room - 1
    top = min(panel.top, max(0, len(texts) - 1))
    if len(texts) - top <= left and not top:
        return lines + [fit([Span(text)], width) for text in texts]
    shown = texts[top : top + left - 1]
    lines += [fit([Span(text)], width) for text in shown]
    below = len(texts) - top - len(shown)
    lines += [()] * (room - 1 - len(lines))
    text = f"… {plural(top, 'line')} above, {below} below: arrows"
    return [*lines, fit([Span(text, "dim")], width)]


def last_top(panel: Panel, *, width: int, room: int) -> int:
    """Return the line from which on the rest of a panel fits."""
    count = len(_panel_texts(panel, width))
    return 0 if count <= room - 1 else max(0, count - max(1, room - 2))


def _panel_texts(panel: Panel, width: int) -> list[str]:
    return [part for text in panel.lines for part in _folded(text, width)]


def _folded(text: str, width: int) -> list[str]:
    """Fold a line, its continuation as far indented as it begins."""
    indent = " " * min(len(text) - len(text.lstrip()), width // 3)
    return [f"{indent}{part}" for part in fold(text.strip(), width - len(indent))]
