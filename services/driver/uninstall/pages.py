"""Read the Nodes of a cluster, page by page, because there may be thousands."""

from collections.abc import AsyncGenerator

from libs.kube.client import Kube
from libs.kube.resources import NODES
from libs.kube.views import Node


async def node_pages(kube: Kube, *, labels: str = "") -> AsyncGenerator[tuple[Node, ...]]:
    """Yield pages of Nodes, as of one revision."""
    token = ""
    while True:
        page = await kube.list_page(NODES, labels=labels, continue_token=token)
        yield page.items
        token = page.continue_token
        if not token:
            return


async def all_nodes(kube: Kube, *, labels: str = "") -> AsyncGenerator[Node]:
    """Yield all Nodes, as of one revision."""
    async for page in node_pages(kube, labels=labels):
        for node in page:
            yield node
