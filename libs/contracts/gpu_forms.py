"""What can be true of a GPU: the forms of its names, and how a value is held against them. Pure.

Two sources may tell what is not true: the driver's library NVML, and the agent of a node that
somebody has taken over. Each is checked where its word enters, against the same forms: the process
of NVML checks what the library returned (`libs.host.gpus.clean`), and each service of the cluster
checks what agents report. If the borders had forms of their own, one of them would let pass what
breaks another.
"""

import re
from typing import Final

from libs.contracts.numbers import LIMIT
from libs.contracts.words import printable

UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
LABEL_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,58}[0-9A-Za-z]")
"""A UUID that can be the value of a label."""
MIG_UUID: Final = re.compile(r"MIG-[0-9A-Za-z/-]{1,90}")
PCI: Final = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
VERSION: Final = re.compile(r"[0-9A-Za-z.+-]{1,40}")
MAX_NAME: Final = 96
"""Characters of a product's name; also the size of NVML's own buffers."""


def has_form(text: str, form: re.Pattern[str]) -> bool:
    """Return whether a text has this form, or is empty, which says that it is not known."""
    return not text or form.fullmatch(text) is not None


class Complaints:
    """What is wrong with the values of one source, such as a GPU."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        """By name of the value."""
        self.count = 0
        """Values that were left out, also several of one name."""

    def add(self, name: str, value: object, *, count: int = 1) -> None:
        self.found[name] = repr(value)[:120]
        self.count += count

    def integer(
        self, name: str, value: float | None, *, low: int = 0, high: int = LIMIT
    ) -> int | None:
        """Return an integer within its bounds, or None."""
        if value is None:
            return None
        # NaN is within no bounds.
        if not low <= value <= high:
            self.add(name, value)
            return None
        return int(value)

    def text(self, name: str, value: bytes | None) -> str:
        """Return a text that can be printed on one line."""
        if value is None:
            return ""
        decoded = value.decode(errors="replace")
        cleaned = printable(decoded, "")[:MAX_NAME]
        if cleaned.encode() != value:
            self.add(name, value)
        return cleaned

    def word(self, name: str, value: bytes | str | None, form: re.Pattern[str]) -> str:
        """Return a text of this form, or an empty one.

        An empty text of a message says that the value is not known; NVML never returns one.
        """
        if value is None or value == "":
            return ""
        decoded = value.decode(errors="replace") if isinstance(value, bytes) else value
        if form.fullmatch(decoded):
            return decoded
        self.add(name, value)
        return ""
