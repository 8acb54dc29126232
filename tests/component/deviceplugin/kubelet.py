"""The device manager of a kubelet: registration, and a client of each plugin that registers."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from libs.host.deviceplugin import api_pb2 as api


class Kubelet:
    """Follows the list of each resource while it runs; it may be started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registrations: list[api.RegisterRequest] = []
        self.lists: dict[str, list[dict[str, str]]] = {}
        """All lists of each resource since the start: the health by device."""
        self.numa_nodes: dict[str, list[int]] = {}
        self.refusal = ""
        self.reads = True
        """Whether it reads lists; registrations are accepted anyway."""
        self._server: Any = None
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start as a kubelet does: with an empty folder."""
        for file in self.folder.iterdir():
            file.unlink()
        self._server = grpc.aio.server()
        handlers = {"Register": grpc.unary_unary_rpc_method_handler(self._register)}
        service = grpc.method_handlers_generic_handler("v1beta1.Registration", handlers)
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()
        await self._server.stop(grace=None)
        self._tasks, self._channels, self.lists = [], {}, {}

    @property
    def last(self) -> dict[str, dict[str, str]]:
        """The newest list of each resource."""
        return {resource: lists[-1] for resource, lists in self.lists.items() if lists}

    async def allocate(self, resource: str, *ids: str) -> api.ContainerAllocateResponse:
        request = api.AllocateRequest(
            container_requests=[api.ContainerAllocateRequest(devices_ids=ids)]
        )
        data = await self._call(resource, "Allocate", request.SerializeToString())
        (response,) = api.AllocateResponse.FromString(data).container_responses
        return response

    async def prefer(
        self, resource: str, available: Sequence[str], size: int, required: Sequence[str] = ()
    ) -> list[str]:
        each = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        request = api.PreferredAllocationRequest(container_requests=[each])
        data = await self._call(resource, "GetPreferredAllocation", request.SerializeToString())
        (response,) = api.PreferredAllocationResponse.FromString(data).container_responses
        return list(response.deviceIDs)

    async def _call(self, resource: str, method: str, request: bytes = b"") -> bytes:
        call: Any = self._channels[resource].unary_unary(f"/v1beta1.DevicePlugin/{method}")
        return await call(request, timeout=20.0)

    async def _register(self, data: bytes, context: Any) -> bytes:
        if self.refusal:
            await context.abort(grpc.StatusCode.UNKNOWN, self.refusal)
        request = api.RegisterRequest.FromString(data)
        self.registrations.append(request)
        if self.reads:
            self._tasks.append(asyncio.create_task(self._follow(request)))
        return b""

    async def _follow(self, request: api.RegisterRequest) -> None:
        resource = request.resource_name
        options = (("grpc.use_local_subchannel_pool", 1),)
        address = f"unix:{self.folder / request.endpoint}"
        channel = self._channels[resource] = grpc.aio.insecure_channel(address, options=options)
        data = await self._call(resource, "GetDevicePluginOptions")
        assert api.DevicePluginOptions.FromString(data) == request.options
        lists = self.lists.setdefault(resource, [])
        stream: Any = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")
        try:
            async for data in stream(b""):
                devices = api.ListAndWatchResponse.FromString(data).devices
                for device in devices:
                    self.numa_nodes[device.ID] = [node.ID for node in device.topology.nodes]
                lists.append({device.ID: device.health for device in devices})
        except grpc.aio.AioRpcError:
            # The plugin ended: the devices are unhealthy.
            lists.append(dict.fromkeys(lists[-1] if lists else {}, "Unhealthy"))
