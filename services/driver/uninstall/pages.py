"""Read the Nodes and pods of a cluster, page by page, because there may be thousands."""

from collections.abc import AsyncGenerator

from libs.kube.client import Kube
from libs.kube.resources import NODES, PODS
from libs.kube.views import Node, Pod


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


async def running_pods(kube: Kube) -> AsyncGenerator[Pod]:
    """Yield all pods that run, of all namespaces."""
    token = ""
    while True:
        page = await kube.list_page(PODS, fields="status.phase=Running", continue_token=token)
        for pod in page.items:
            yield pod
        token = page.continue_token
        if not token:
            return
