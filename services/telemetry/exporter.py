"""Serve the pages of a role over HTTP: an agent's for its node, and the cluster role's for all."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from libs.runtime.http import HttpServer, HttpSettings, Page
from libs.runtime.logs import logger
from libs.runtime.service import Service

Pages: TypeAlias = Mapping[str, Callable[[], Page]]
"""By path."""

_log = logger()


def metrics(text: bytes) -> Page:
    """Return a page in the format that dcgm-exporter writes."""
    return Page(text, content_type=CONTENT_TYPE_PLAIN_0_0_4)


async def export(pages: Pages, settings: HttpSettings, service: Service) -> None:
    """Serve the pages until the service ends, and log where."""
    exporter = await service.enter("exporter", HttpServer(settings, pages))
    host, port = exporter.address
    _log.info("exporter started", host=host, port=port)
