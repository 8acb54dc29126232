"""What the client reads: one object, a part of a list, or all of it.

Nothing is changed by any of it, and nothing is remembered.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from libs.kube.errors import MalformedResponse
from libs.kube.requests import DEFAULT_TIMEOUT, BaseClient
from libs.kube.resources import Resource
from libs.kube.responses import (
    Page,
    continue_token_of,
    decode,
    decode_page,
    join_pages,
    unknown_kind_errors,
)
from libs.kube.views import Object

V = TypeVar("V", bound=Object)


class ReadClient(BaseClient):
    """What may be asked of one API server."""

    async def get(
        self,
        resource: Resource[V],
        name: str,
        *,
        namespace: str = "",
        within: float = DEFAULT_TIMEOUT,
    ) -> V:
        """One object as it is now."""
        path = resource.path(namespace=namespace, name=name)
        with unknown_kind_errors(resource):
            body = await self.request("GET", path, within=within)
        return decode(body, resource.view, tried=f"GET {path}")

    async def list_page(
        self,
        resource: Resource[V],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
        within: float = 30.0,
    ) -> Page[V]:
        """Objects of a kind, `limit` at a time; `resume` is the `rest` of the page before."""
        query = {"limit": str(limit), "labelSelector": labels, "fieldSelector": fields}
        query |= {"continue": continue_token, "resourceVersion": resource_version}
        path = resource.path(namespace=namespace)
        return decode_page(await self._listed(resource, path, query, within), resource, path=path)

    async def list_all(
        self,
        resource: Resource[V],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        within: float = 30.0,
    ) -> Page[V]:
        """All objects of a kind, as of one revision; `within` is for each part of the list.

        While a part is read the next one is on its way. `Unreadable` where the parts do not belong
        together.
        """
        query = {"limit": str(limit), "labelSelector": labels, "fieldSelector": fields}
        path = resource.path(namespace=namespace)
        parts: list[Page[V]] = []
        asked = {""}
        body = await self._listed(resource, path, query, within)
        while rest := continue_token_of(body, path=path):
            if rest in asked:
                raise MalformedResponse(f"GET {path}", "the list goes round in circles")
            asked.add(rest)
            following = self._listed(resource, path, query | {"continue": rest}, within)
            task = asyncio.create_task(following, name=f"the rest of {path}")
            try:
                await asyncio.sleep(0)  # it is sent before this part is read
                parts.append(decode_page(body, resource, path=path))
                del body  # megabytes: they are of use again for what comes in now
                body = await task
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})
        parts.append(decode_page(body, resource, path=path))
        return join_pages(parts, path=path)

    async def _listed(
        self, resource: Resource[Any], path: str, query: Mapping[str, str], within: float
    ) -> bytes:
        asked = {key: value for key, value in query.items() if value}
        with unknown_kind_errors(resource):
            return await self.request("GET", path, query=asked, within=within)
