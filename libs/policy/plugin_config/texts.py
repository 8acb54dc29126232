"""Which texts of a ConfigMap are read as configurations of the device plugin. Pure.

Services read them on their event loop, each time that one has changed, and cannot know which are
configurations: the limits are what a loop can bear. The plugin itself reads its own file in a
thread, whatever its length.
"""

from collections.abc import Mapping
from typing import Final

MAX_TEXT: Final = 1 << 14
"""Characters of a text."""
MAX_TEXTS: Final = 1 << 17
"""Characters of all together."""
MAX_CONFIGS: Final = 256
"""Keys of a ConfigMap that are read as configurations: a foreign one may have any number."""


def readable_texts(data: Mapping[str, str]) -> dict[str, str]:
    """Return the texts within the limits, the first ones by name."""
    found: dict[str, str] = {}
    left = MAX_TEXTS
    for key in sorted(data):
        text = data[key]
        if len(text) <= min(MAX_TEXT, left) and len(found) < MAX_CONFIGS:
            found[key] = text
            left -= len(text)
    return found
