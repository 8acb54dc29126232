"""Label selectors as people write them in one text: `app=train,tier in (a, b)`.

Says whether an API server would take one, so that no node is cordoned for a slip of the pen.
"""

import re
from typing import Final

_SPACE: Final = re.compile(r"[ \t\r\n]+")
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_KEY: Final = rf"(?:{_PART}(?:\.{_PART})*/)?{_NAME}"
_VALUES: Final = rf"\( ?(?:{_NAME})?(?: ?, ?(?:{_NAME})?)* ?\)"
_OF_KEY: Final = rf" ?(?:=|==|!=) ?(?:{_NAME})?| (?:in|notin) ?{_VALUES}| ?[<>] ?[0-9]+"
_REQUIREMENT: Final = rf" ?(?:! ?{_KEY}|{_KEY}(?:{_OF_KEY})?) ?"
_SELECTOR: Final = re.compile(rf" ?|{_REQUIREMENT}(?:,{_REQUIREMENT})*", re.ASCII)


def is_selector(text: str) -> bool:
    """Whether it is one; an empty text selects everything."""
    return _SELECTOR.fullmatch(_SPACE.sub(" ", text)) is not None
