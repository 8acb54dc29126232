"""The pages of a role: an agent's for its node, and the cluster role's for all."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from libs.runtime.http import Page

Pages: TypeAlias = Mapping[str, Callable[[], Page]]
"""By path."""


def metrics(text: bytes) -> Page:
    """Return a page in the format that dcgm-exporter writes."""
    return Page(text, content_type=CONTENT_TYPE_PLAIN_0_0_4)
