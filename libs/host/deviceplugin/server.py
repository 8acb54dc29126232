"""The gRPC server of one resource, which the kubelet asks."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import grpc
import grpc.aio

from libs.contracts.words import one_line
from libs.host.deviceplugin import api_pb2 as api
from libs.host.deviceplugin.port import Allocation, AllocationRefused, Allocator, OfferedDevice

VERSION: Final = "v1beta1"
_SERVICE: Final = "v1beta1.DevicePlugin"
_REGISTER: Final = "/v1beta1.Registration/Register"
SECONDS: Final = 5.0
"""The deadline of a registration, and of the kubelet's receipt of a list."""


class ResourceServer:
    """Runs from `start` to `stop`. The kubelet gets each change of the list at once."""

    def __init__(self, resource: str, *, folder: str, allocator: Allocator) -> None:
        self.resource = resource
        self.socket = f"{folder}/{endpoint_of(resource)}"
        self._kubelet = f"unix:{folder}/kubelet.sock"
        self._allocator = allocator
        self._server: Any = None
        self._devices: Sequence[OfferedDevice] = ()
        self._version = 0
        self._sent: dict[object, int] = {}
        """The version of the list that each open stream got last."""
        self._changed = asyncio.Condition()

    @property
    def is_followed(self) -> bool:
        """Whether the kubelet follows the list."""
        return bool(self._sent)

    async def start(self) -> None:
        """Listen on the socket; raise OSError where that is impossible."""
        server = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler(_SERVICE, self._handlers())
        server.add_generic_rpc_handlers((handler,))
        with suppress(FileNotFoundError):
            os.unlink(self.socket)  # of a process that was killed
        try:
            server.add_insecure_port(f"unix:{self.socket}")
        except RuntimeError as error:
            raise OSError(f"the socket {self.socket} cannot be made: {error}") from None
        await server.start()
        self._server = server

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)

    async def register(self) -> None:
        """Tell the kubelet of the resource; raise OSError where it does not accept that."""
        request = api.RegisterRequest(
            version=VERSION,
            endpoint=os.path.basename(self.socket),
            resource_name=self.resource,
            options=_OPTIONS,
        )
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(self._kubelet, options=options) as channel:
            register = cast("Callable[..., Awaitable[bytes]]", channel.unary_unary(_REGISTER))
            try:
                await register(request.SerializeToString(), timeout=SECONDS)
            except grpc.aio.AioRpcError as error:
                raise OSError(_reason(error)) from None

    async def offer(self, devices: Sequence[OfferedDevice]) -> bool:
        """Replace the list, and wait until the kubelet has it; return False if it does not read.

        One that does not follow the list gets it when it begins to.
        """
        async with self._changed:
            if devices == self._devices and self._version:
                return True
            self._devices = devices
            self._version += 1
            version = self._version
            self._changed.notify_all()
            try:
                async with asyncio.timeout(SECONDS):
                    await self._changed.wait_for(lambda: self._all_have(version))
            except TimeoutError:
                return False
            return True

    def _all_have(self, version: int) -> bool:
        return all(sent >= version for sent in self._sent.values())

    def _handlers(self) -> dict[str, Any]:
        def unary(answer: Callable[[bytes, Any], Any]) -> Any:
            return cast(Any, grpc.unary_unary_rpc_method_handler(answer))

        return {
            "GetDevicePluginOptions": unary(self._options),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
            "GetPreferredAllocation": unary(self._prefer),
            "Allocate": unary(self._allocate),
            "PreStartContainer": unary(self._pre_start),
        }

    async def _options(self, _request: bytes, _context: Any) -> bytes:
        return _OPTIONS.SerializeToString()

    async def _pre_start(self, _request: bytes, _context: Any) -> bytes:
        return b""

    async def _list_and_watch(self, _request: bytes, _context: Any) -> AsyncGenerator[bytes]:
        stream = object()
        self._sent[stream] = 0
        try:
            while True:
                version = self._version
                if version:
                    yield _listed(self._devices)
                async with self._changed:
                    self._sent[stream] = version
                    self._changed.notify_all()
                    await self._changed.wait_for(lambda seen=version: self._version > seen)
        finally:
            del self._sent[stream]

    async def _prefer(self, data: bytes, context: Any) -> bytes:
        request = api.PreferredAllocationRequest.FromString(data)
        response = api.PreferredAllocationResponse()
        for each in request.container_requests:
            try:
                ids = self._allocator.prefer(
                    each.available_deviceIDs, each.must_include_deviceIDs, each.allocation_size
                )
            except AllocationRefused as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                raise
            response.container_responses.add(deviceIDs=ids)
        return response.SerializeToString()

    async def _allocate(self, data: bytes, context: Any) -> bytes:
        request = api.AllocateRequest.FromString(data)
        response = api.AllocateResponse()
        for each in request.container_requests:
            try:
                allocation = self._allocator.allocate(each.devices_ids)
            except AllocationRefused as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
                raise
            response.container_responses.append(_response(allocation))
        return response.SerializeToString()


_OPTIONS: Final = api.DevicePluginOptions(get_preferred_allocation_available=True)


def endpoint_of(resource: str) -> str:
    """Return the name of a resource's socket."""
    return f"nvidia-{resource.rpartition('/')[2]}.sock"


def _listed(devices: Sequence[OfferedDevice]) -> bytes:
    response = api.ListAndWatchResponse()
    for each in devices:
        device = response.devices.add(ID=each.id, health="Healthy" if each.healthy else "Unhealthy")
        if each.numa_node is not None:
            device.topology.nodes.add(ID=each.numa_node)
    return response.SerializeToString()


def _response(allocation: Allocation) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=allocation.env,
        annotations=allocation.annotations,
        cdi_devices=[api.CDIDevice(name=name) for name in allocation.cdi_devices],
        mounts=[
            api.Mount(container_path=mount.target, host_path=mount.source, read_only=True)
            for mount in allocation.mounts
        ],
        devices=[
            api.DeviceSpec(container_path=file.path, host_path=file.path, permissions="rw")
            for file in allocation.files
        ],
    )


def _reason(error: grpc.aio.AioRpcError) -> str:
    details = one_line(error.details() or "", 200)
    return f"the kubelet did not accept a registration: {error.code().name}: {details}"
