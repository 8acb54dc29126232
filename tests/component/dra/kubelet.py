"""The part of a kubelet that finds plugins by their sockets, and asks them for claims."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from libs.host.dra import api_pb2 as api
from libs.host.dra import registration_pb2 as registration
from libs.host.dra.port import Claim


class Kubelet:
    def __init__(self, folder: Path) -> None:
        self.plugins = folder / "plugins"
        self.registry = folder / "registry"
        for each in (self.plugins, self.registry):
            each.mkdir()

    async def register(self, driver: str, *, refusal: str = "") -> registration.PluginInfo:
        """Ask the driver who it is, and tell it whether it is accepted."""
        socket = str(self.registry / f"{driver}-reg.sock")
        data = await _call(socket, "/pluginregistration.Registration/GetInfo", b"")
        status = registration.RegistrationStatus(plugin_registered=not refusal, error=refusal)
        notify = "/pluginregistration.Registration/NotifyRegistrationStatus"
        await _call(socket, notify, status.SerializeToString())
        return registration.PluginInfo.FromString(data)

    async def prepare(
        self, endpoint: str, *claims: Claim, version: str = "v1"
    ) -> dict[str, api.NodePrepareResourceResponse]:
        request = api.NodePrepareResourcesRequest(claims=_listed(claims))
        method = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodePrepareResources"
        data = await _call(endpoint, method, request.SerializeToString())
        return dict(api.NodePrepareResourcesResponse.FromString(data).claims)

    async def unprepare(self, endpoint: str, *claims: Claim, version: str = "v1") -> dict[str, str]:
        """Return the error of each claim, by its uid."""
        request = api.NodeUnprepareResourcesRequest(claims=_listed(claims))
        method = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodeUnprepareResources"
        data = await _call(endpoint, method, request.SerializeToString())
        answers = api.NodeUnprepareResourcesResponse.FromString(data).claims
        return {uid: answer.error for uid, answer in answers.items()}


def _listed(claims: Sequence[Claim]) -> list[api.Claim]:
    return [api.Claim(namespace=each.namespace, name=each.name, uid=each.uid) for each in claims]


async def _call(socket: str, method: str, request: bytes) -> bytes:
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        call: Any = channel.unary_unary(method)
        return await call(request, timeout=20.0)
