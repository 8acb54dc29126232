"""One connection to a container runtime: registration, and answers until it ends.

A runtime that gets no answer in time drops the plugin and creates the container without its
devices; one that gets an error does not create it. So every failure here is answered as an error.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Body

from libs.contracts.words import one_line
from libs.host.nri import api_pb2 as api
from libs.host.nri import frames
from libs.host.nri import ttrpc_pb2 as ttrpc
from libs.host.nri.frames import Malformed
from libs.host.nri.messages import Kind, Message, MessageReader, encode
from libs.host.nri.port import InjectionRefused, Injector, NewContainer, NriUnavailable
from libs.runtime.fatal import describe_error
from libs.runtime.logs import logger

NAME: Final = "sluice"
INDEX: Final = "10"
"""The place among plugins, as that of NVIDIA's."""
REGISTRATION_SECONDS: Final = 15.0
"""A runtime registers one plugin after the other, and waits five seconds for each."""
PLUGIN_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
EVENTS: Final = 1 << (api.CREATE_CONTAINER - 1)
"""What the runtime is to ask about, as a set of bits."""
_REGISTRATION: Final = 1
"""The number of the one request to the runtime."""
_MAX_TEXT: Final = 200
"""Characters of the runtime's texts in logs and messages."""

_INVALID_ARGUMENT: Final = 3
_PERMISSION_DENIED: Final = 7
_UNIMPLEMENTED: Final = 12
_INTERNAL: Final = 13

_log = logger()


class _Failed(Exception):
    """A request is answered with this status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Session:
    """Runs until the connection ends."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, injector: Injector
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._injector = injector
        self._requests = MessageReader(Kind.REQUEST)
        self._responses = MessageReader(Kind.RESPONSE)
        self._is_synchronized = False
        self._methods: dict[str, Callable[[bytes], Body]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create_container,
            "StateChange": lambda _data: api.Empty(),
            "Shutdown": lambda _data: api.Empty(),
        }

    async def run(self, when_registered: Callable[[], None]) -> None:
        """Register and answer; raise `NriUnavailable` once the runtime asks no longer."""
        self._register()
        try:
            async with asyncio.timeout(REGISTRATION_SECONDS) as deadline:
                while True:
                    await self._writer.drain()
                    self._received(*await frames.read(self._reader))
                    if self._is_synchronized and deadline.when() is not None:
                        deadline.reschedule(None)
                        when_registered()
        except TimeoutError:
            raise NriUnavailable(
                f"the container runtime did not register the plugin of Sluice within"
                f" {REGISTRATION_SECONDS:.0f} s"
            ) from None
        except Malformed as error:
            raise NriUnavailable(f"the container runtime does not speak NRI: {error}") from None
        except (EOFError, OSError):
            raise NriUnavailable(
                "the container runtime closed the connection for NRI: it was restarted, or it"
                " dropped the plugin of Sluice (its log says why)"
            ) from None

    def _register(self) -> None:
        body = api.RegisterPluginRequest(plugin_name=NAME, plugin_idx=INDEX)
        request = ttrpc.Request(
            service=RUNTIME_SERVICE, method="RegisterPlugin", payload=body.SerializeToString()
        )
        self._send(frames.RUNTIME, _REGISTRATION, Kind.REQUEST, request)

    def _send(self, connection: int, stream: int, kind: Kind, body: Body) -> None:
        message = Message(stream=stream, kind=kind, data=body.SerializeToString())
        self._writer.write(frames.encode(connection, encode(message)))

    def _received(self, connection: int, data: bytes) -> None:
        if connection == frames.PLUGIN:
            for request in self._requests.feed(data):
                self._send(connection, request.stream, Kind.RESPONSE, self._answer(request.data))
        elif connection == frames.RUNTIME:
            for response in self._responses.feed(data):
                _check_registration(response)

    def _answer(self, data: bytes) -> ttrpc.Response:
        try:
            request = ttrpc.Request.FromString(data)
            method = self._methods.get(request.method)
            if request.service != PLUGIN_SERVICE or method is None:
                raise _Failed(_UNIMPLEMENTED, "the plugin of Sluice does not have this method")
            return ttrpc.Response(payload=method(request.payload).SerializeToString())
        except _Failed as error:
            return _failure(error.code, str(error))
        except DecodeError:
            return _failure(_INVALID_ARGUMENT, "the plugin of Sluice cannot read the request")
        except Exception as error:  # noqa: BLE001  (the runtime is answered whatever it is)
            # On one line: a runtime that waits for a long log entry would give up.
            problem = describe_error(error)
            _log.error("a container is not created: the plugin of NRI failed", error=problem)
            return _failure(_INTERNAL, "the plugin of Sluice failed: its log says why")

    def _configure(self, data: bytes) -> Body:
        request = api.ConfigureRequest.FromString(data)
        _log.info(
            "the container runtime registered the plugin of NRI",
            runtime=one_line(request.runtime_name, _MAX_TEXT),
            version=one_line(request.runtime_version, _MAX_TEXT),
        )
        return api.ConfigureResponse(events=EVENTS)

    def _synchronize(self, data: bytes) -> Body:
        """Change no container that exists. They may come in several requests."""
        more = api.SynchronizeRequest.FromString(data).more
        self._is_synchronized = not more
        return api.SynchronizeResponse(more=more)

    def _create_container(self, data: bytes) -> Body:
        request = api.CreateContainerRequest.FromString(data)
        container = NewContainer(
            namespace=request.pod.namespace,
            pod=request.pod.name,
            name=request.container.name,
            annotations=dict(request.pod.annotations),
            devices=frozenset(device.name for device in request.container.CDI_devices),
        )
        try:
            names = self._injector.devices(container)
        except InjectionRefused as error:
            raise _Failed(_PERMISSION_DENIED, str(error)) from None
        if not names:
            return api.CreateContainerResponse()
        devices = [api.CDIDevice(name=name) for name in names]
        return api.CreateContainerResponse(adjust=api.ContainerAdjustment(CDI_devices=devices))


def _check_registration(message: Message) -> None:
    try:
        status = ttrpc.Response.FromString(message.data).status
    except DecodeError:
        raise Malformed("its answer to the registration cannot be read") from None
    if status.code:
        raise NriUnavailable(
            "the container runtime refused the plugin of Sluice:"
            f" {one_line(status.message, _MAX_TEXT)}"
        )


def _failure(code: int, text: str) -> ttrpc.Response:
    return ttrpc.Response(status=ttrpc.Status(code=code, message=text))
