"""Read requests of the client: one object, a page of a list, or a whole list."""

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
    async def get(
        self,
        resource: Resource[V],
        name: str,
        *,
        namespace: str = "",
        within: float = DEFAULT_TIMEOUT,
    ) -> V:
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
        """Return up to `limit` objects; `continue_token` is that of the previous page."""
        query = {"limit": str(limit), "labelSelector": labels, "fieldSelector": fields}
        query |= {"continue": continue_token, "resourceVersion": resource_version}
        path = resource.path(namespace=namespace)
        return decode_page(await self._get_list(resource, path, query, within), resource, path=path)

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
        """Return all objects as of one revision; `within` limits each page.

        The next page is requested while the current one is decoded. Raise `MalformedResponse` if
        the pages do not belong together.
        """
        query = {"limit": str(limit), "labelSelector": labels, "fieldSelector": fields}
        path = resource.path(namespace=namespace)
        pages: list[Page[V]] = []
        tokens = {""}
        body = await self._get_list(resource, path, query, within)
        while token := continue_token_of(body, path=path):
            if token in tokens:
                raise MalformedResponse(
                    f"GET {path}", "the server repeats a continue token of this list"
                )
            tokens.add(token)
            following = self._get_list(resource, path, query | {"continue": token}, within)
            task = asyncio.create_task(following, name=f"next page of {path}")
            try:
                await asyncio.sleep(0)  # send the request before decoding this page
                pages.append(decode_page(body, resource, path=path))
                del body  # free megabytes before the next page arrives
                body = await task
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})
        pages.append(decode_page(body, resource, path=path))
        return join_pages(pages, path=path)

    async def _get_list(
        self, resource: Resource[Any], path: str, query: Mapping[str, str], within: float
    ) -> bytes:
        given = {key: value for key, value in query.items() if value}
        with unknown_kind_errors(resource):
            return await self.request("GET", path, query=given, within=within)
