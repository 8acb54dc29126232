"""A container runtime with NRI: it registers plugins, and asks them about containers."""

import asyncio
from pathlib import Path

from google.protobuf.message import Message as Body

from libs.host.nri import api_pb2 as api
from libs.host.nri import frames
from libs.host.nri import ttrpc_pb2 as ttrpc
from libs.host.nri.messages import Kind, Message, MessageReader, encode
from libs.host.nri.session import PLUGIN_SERVICE


class PluginError(Exception):
    """The plugin answered with an error: its code, and its text."""


class Runtime:
    """Listens while it runs; it may be started again."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.refusal = ""
        """What registrations are answered, instead of being accepted."""
        self.batches = 1
        """The number of requests that tell a plugin of the containers that exist."""
        self.registrations: list[api.RegisterPluginRequest] = []
        self.events: list[int] = []
        """What each plugin asked to be told of."""
        self.synchronized = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._plugins: list[Plugin] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)

    async def stop(self) -> None:
        """Stop as a runtime does that is killed: the socket's file stays."""
        assert self._server is not None
        self._server.close()
        self.drop()
        self.synchronized.clear()

    def drop(self) -> None:
        """Close the connections of plugins."""
        for plugin in self._plugins:
            plugin.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are to the plugin."""
        self._plugins[-1].send(data)

    async def create(
        self,
        container: str = "main",
        *,
        namespace: str,
        devices: tuple[str, ...] = (),
        env: tuple[str, ...] = (),
        annotations: dict[str, str] | None = None,
    ) -> list[str]:
        """Return the CDI devices that a new container gets from the plugin."""
        pod = api.PodSandbox(name="pod", namespace=namespace, annotations=annotations or {})
        has = [api.CDIDevice(name=name) for name in devices]
        wanted = api.Container(name=container, env=env, CDI_devices=has)
        request = api.CreateContainerRequest(pod=pod, container=wanted)
        data = await self.ask("CreateContainer", request)
        adjust = api.CreateContainerResponse.FromString(data).adjust
        assert adjust == api.ContainerAdjustment(CDI_devices=adjust.CDI_devices)
        return [device.name for device in adjust.CDI_devices]

    async def ask(self, method: str, request: Body, *, service: str = PLUGIN_SERVICE) -> bytes:
        return await self._plugins[-1].ask(service, method, request.SerializeToString())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plugin = Plugin(reader, writer)
        self._plugins.append(plugin)
        registration = await plugin.registration()
        self.registrations.append(registration)
        plugin.answer_registration(self.refusal)
        if self.refusal:
            plugin.close()
            return
        reading = asyncio.create_task(plugin.read())
        self._tasks.add(reading)
        reading.add_done_callback(self._tasks.discard)
        configure = api.ConfigureRequest(runtime_name="stand-in", runtime_version="v1\n2")
        data = await self.ask("Configure", configure)
        self.events.append(api.ConfigureResponse.FromString(data).events)
        for left in reversed(range(self.batches)):
            request = api.SynchronizeRequest(pods=[api.PodSandbox(name="old")], more=left > 0)
            data = await self.ask("Synchronize", request)
            assert api.SynchronizeResponse.FromString(data).more == (left > 0)
        self.synchronized.set()


class Plugin:
    """The connection of one plugin, on the side of the runtime."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._responses = MessageReader(Kind.RESPONSE)
        self._stream = -1
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def registration(self) -> api.RegisterPluginRequest:
        connection, data = await frames.read(self._reader)
        assert connection == frames.RUNTIME
        (message,) = MessageReader(Kind.REQUEST).feed(data)
        request = ttrpc.Request.FromString(message.data)
        assert request.service == "nri.pkg.api.v1alpha1.Runtime"
        assert request.method == "RegisterPlugin"
        self._registration = message.stream
        return api.RegisterPluginRequest.FromString(request.payload)

    def answer_registration(self, refusal: str) -> None:
        response = ttrpc.Response()
        if refusal:
            response.status.code, response.status.message = 2, refusal
        self._send(frames.RUNTIME, self._registration, Kind.RESPONSE, response)

    async def read(self) -> None:
        """Give each answer to who waits for it, until the connection ends."""
        try:
            while True:
                connection, data = await frames.read(self._reader)
                assert connection == frames.PLUGIN
                assert len(data) <= frames.MAX_SENT
                for message in self._responses.feed(data):
                    self._waiting.pop(message.stream).set_result(message.data)
        except (EOFError, OSError):
            for waiting in self._waiting.values():
                waiting.set_exception(EOFError())

    async def ask(self, service: str, method: str, payload: bytes) -> bytes:
        self._stream += 2
        waiting = self._waiting[self._stream] = asyncio.get_running_loop().create_future()
        request = ttrpc.Request(service=service, method=method, payload=payload)
        self._send(frames.PLUGIN, self._stream, Kind.REQUEST, request)
        response = ttrpc.Response.FromString(await waiting)
        if response.status.code:
            raise PluginError(response.status.code, response.status.message)
        return response.payload

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()

    def _send(self, connection: int, stream: int, kind: Kind, body: Body) -> None:
        message = Message(stream=stream, kind=kind, data=body.SerializeToString())
        self.send(frames.encode(connection, encode(message)))
