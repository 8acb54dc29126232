"""Ask the kubelet which devices its containers have, and which they can have, over its unix socket.

gRPC takes some 15 MiB of memory, so it is loaded when the socket is there, and not before.
"""

import os
from typing import TYPE_CHECKING, Final, cast

from libs.contracts.words import one_line
from libs.host.podresources.allocatable import Allocatable, allocatable_devices
from libs.host.podresources.assignments import DeviceList, device_list

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
METHOD: Final = "/v1.PodResourcesLister/List"
ALLOCATABLE: Final = "/v1.PodResourcesLister/GetAllocatableResources"
MAX_BYTES: Final = 16 << 20
"""The largest answer, which is also what the kubelet's own clients accept."""
SECONDS: Final = 5.0
"""The deadline of a question."""
MAX_DETAIL: Final = 200
"""Characters of the kubelet's own text in an error."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_BYTES),
    # Otherwise a new channel inherits the pause before the next attempt of a closed one.
    ("grpc.use_local_subchannel_pool", 1),
)


class KubeletUnavailable(Exception):
    """The kubelet did not answer. The text is the reason."""


class PodResources:
    """The kubelet's pod-resources API. Calls block, for a limited time; one thread at a time."""

    def __init__(self, socket: str, *, own_namespace: str = "") -> None:
        """Know the namespace of this pod: a kubelet that lists no pod of it has just started, and
        does not know its pods yet. Without one, whatever the kubelet lists is an answer.
        """
        self._socket = socket
        self._own_namespace = own_namespace
        self._channel: grpc.Channel | None = None

    def list(self) -> DeviceList:
        """Return the devices of the node's containers, or raise `KubeletUnavailable`."""
        data = self._answer(METHOD)
        from google.protobuf.message import DecodeError

        from libs.host.podresources.api_pb2 import ListPodResourcesResponse

        try:
            response = ListPodResourcesResponse.FromString(data)
        except DecodeError:
            raise KubeletUnavailable(
                f"the answer on {self._socket} is not a list of pods"
            ) from None
        namespace = self._own_namespace
        if namespace and all(pod.namespace != namespace for pod in response.pod_resources):
            raise KubeletUnavailable("the kubelet has started, and does not know its pods yet")
        return device_list(response)

    def allocatable(self) -> Allocatable:
        """Return the healthy devices of NVIDIA's resources, or raise `KubeletUnavailable`."""
        data = self._answer(ALLOCATABLE)
        from google.protobuf.message import DecodeError

        from libs.host.podresources.api_pb2 import AllocatableResourcesResponse

        try:
            return allocatable_devices(AllocatableResourcesResponse.FromString(data))
        except DecodeError:
            raise KubeletUnavailable(
                f"the answer on {self._socket} is not a list of devices"
            ) from None

    def close(self) -> None:
        """Close the connection, if there is one, which ends a question of another thread."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _answer(self, method: str) -> bytes:
        """Ask without a parameter, and return what the kubelet answers."""
        if not os.path.exists(self._socket):
            raise KubeletUnavailable(
                f"there is no socket {self._socket}: the kubelet is not running, or has another"
                " directory"
            )
        # The library writes what it tries to standard error, beside what it raises.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        try:
            return self._ask(method)
        except grpc.RpcError as error:
            raise KubeletUnavailable(_reason(error, self._socket)) from None
        finally:
            # While it is open, threads of gRPC's own wake up all the time.
            self.close()

    def _ask(self, method: str) -> bytes:
        import grpc

        channel = self._channel = grpc.insecure_channel(f"unix:{self._socket}", options=_OPTIONS)
        # A request without fields is empty.
        call = cast("Callable[..., bytes]", channel.unary_unary(method))
        return call(b"", timeout=SECONDS)


def _reason(error: "grpc.RpcError", socket: str) -> str:
    """Return what failed, on one line."""
    code, details = (error.code(), error.details()) if hasattr(error, "code") else (None, "")
    name = "an unknown error" if code is None else code.name
    text = one_line(details or "", MAX_DETAIL)
    return f"the kubelet did not answer on {socket}: {name}: {text}"
