"""What the configurations of all container runtimes share."""

from typing import Any, Final

HANDLERS: Final = ("nvidia", "nvidia-cdi")
"""The handlers of NVIDIA's toolkit that exist here; `nvidia-legacy` needs its own runtime."""

Table = dict[str, Any]


class NotConfigurable(Exception):
    """A configuration is left alone; the text is the reason, for people."""
