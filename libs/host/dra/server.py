"""The two gRPC servers of a driver: one by which the kubelet finds it, one that it asks."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import grpc
import grpc.aio

from libs.contracts.words import one_line
from libs.host.dra import api_pb2 as api
from libs.host.dra import registration_pb2 as registration
from libs.host.dra.port import Claim, ClaimFailed, Claims, PreparedDevice
from libs.runtime.logs import logger

VERSIONS: Final = ("v1", "v1beta1")
"""Kubelets before 1.34 know the second alone. Its messages are those of the first, without a field
that is not set here."""
_SERVICE: Final = "k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
_REGISTRATION: Final = "pluginregistration.Registration"
_TYPE: Final = "DRAPlugin"
_MAX_DETAIL: Final = 200
"""Characters of the kubelet's own text in a refusal."""
_LAST_ANSWERS: Final = 5.0
"""Seconds for answers that are due when the driver stops: a kubelet that never hears that a claim
is prepared does not name it to the device plugin, which may come next.
"""

_log = logger()


class DraServer:
    """Runs from `start` to `stop`."""

    def __init__(
        self, driver: str, *, socket: str, registration: str, endpoint: str, claims: Claims
    ) -> None:
        """`endpoint` is the path of `socket` as the kubelet names it."""
        self._driver = driver
        self._socket = socket
        self._registration = registration
        self._endpoint = endpoint
        self._claims = claims
        self._servers: list[Any] = []
        self.is_registered = False
        self.refusal = ""
        """Why the kubelet refused the driver; empty if it did not."""

    async def start(self) -> None:
        """Listen on both sockets; raise OSError where that is impossible."""
        answers = {
            "NodePrepareResources": self._prepare,
            "NodeUnprepareResources": self._unprepare,
        }
        services = {_SERVICE.format(version=version): answers for version in VERSIONS}
        await self._serve(self._socket, services)
        registering = {"GetInfo": self._info, "NotifyRegistrationStatus": self._note_status}
        # The kubelet asks as soon as this socket is there.
        await self._serve(self._registration, {_REGISTRATION: registering})

    async def stop(self) -> None:
        self.is_registered = False
        while self._servers:
            await self._servers.pop().stop(grace=_LAST_ANSWERS)

    async def _serve(self, path: str, services: Mapping[str, Mapping[str, "_Answer"]]) -> None:
        server = grpc.aio.server()
        for name, answers in services.items():
            handlers = {
                method: cast(Any, grpc.unary_unary_rpc_method_handler(answer))
                for method, answer in answers.items()
            }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        with suppress(FileNotFoundError):
            os.unlink(path)  # of a process that was killed
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(f"the socket {path} cannot be made: {error}") from None
        await server.start()
        self._servers.append(server)

    async def _info(self, _request: bytes, _context: Any) -> bytes:
        return registration.PluginInfo(
            type=_TYPE,
            name=self._driver,
            endpoint=self._endpoint,
            supported_versions=[f"{version}.{_TYPE}" for version in VERSIONS],
        ).SerializeToString()

    async def _note_status(self, data: bytes, _context: Any) -> bytes:
        status = registration.RegistrationStatus.FromString(data)
        self.is_registered = status.plugin_registered
        self.refusal = "" if status.plugin_registered else one_line(status.error, _MAX_DETAIL)
        _log.info("registered" if self.is_registered else "not registered", problem=self.refusal)
        return b""

    async def _prepare(self, data: bytes, _context: Any) -> bytes:
        response = api.NodePrepareResourcesResponse()
        for claim in _claims(api.NodePrepareResourcesRequest.FromString(data).claims):
            answer = response.claims[claim.uid]
            try:
                answer.devices.extend(map(_device, await self._claims.prepare(claim)))
            except ClaimFailed as error:
                answer.error = str(error)
                _log_failure("a claim cannot be prepared", claim, error)
        return response.SerializeToString()

    async def _unprepare(self, data: bytes, _context: Any) -> bytes:
        response = api.NodeUnprepareResourcesResponse()
        for claim in _claims(api.NodeUnprepareResourcesRequest.FromString(data).claims):
            answer = response.claims[claim.uid]
            try:
                await self._claims.unprepare(claim)
            except ClaimFailed as error:
                answer.error = str(error)
                _log_failure("a claim cannot be forgotten", claim, error)
        return response.SerializeToString()


_Answer = Callable[[bytes, Any], Awaitable[bytes]]


def _claims(listed: Iterable[api.Claim]) -> list[Claim]:
    return [Claim(namespace=each.namespace, name=each.name, uid=each.uid) for each in listed]


def _device(device: PreparedDevice) -> api.Device:
    return api.Device(
        request_names=[device.request],
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_devices,
    )


def _log_failure(what: str, claim: Claim, error: ClaimFailed) -> None:
    _log.warning(what, namespace=claim.namespace, claim=claim.name, reason=str(error))
