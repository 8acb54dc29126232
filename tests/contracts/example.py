"""What an example is: a message, and the body that is in it, if it is an envelope."""

from typing import Any, NamedTuple


class Example(NamedTuple):
    """What the bytes of a golden file must turn into."""

    message: Any
    body: Any = None
