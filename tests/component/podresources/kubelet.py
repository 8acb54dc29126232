"""The pod-resources API of a kubelet: a gRPC server on a unix socket."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from libs.host.podresources import api_pb2 as api

Answer = Callable[[Any], bytes]
"""Returns the response, or ends the call by its context."""


def answer_with(*pods: api.PodResources) -> Answer:
    return raw(api.ListPodResourcesResponse(pod_resources=pods).SerializeToString())


def raw(data: bytes) -> Answer:
    def answer(_context: Any) -> bytes:
        return data

    return answer


def pod(name: str, *devices: str, resource: str = "nvidia.com/gpu") -> api.PodResources:
    """Return a pod with these devices in its second container."""
    given = api.ContainerDevices(resource_name=resource, device_ids=devices)
    containers = [
        api.ContainerResources(name="proxy"),
        api.ContainerResources(name="cuda", cpu_ids=[1, 2], devices=[given]),
    ]
    return api.PodResources(name=name, namespace="team-a", containers=containers)


class Kubelet:
    """Answers `List` while it runs; it may be started again, on the same socket."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.answer = answer_with()
        self.requests: list[api.ListPodResourcesRequest] = []
        self._server: grpc.Server | None = None

    def start(self) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(2), options=[("grpc.max_send_message_length", -1)]
        )
        handler = grpc.unary_unary_rpc_method_handler(
            self._list, request_deserializer=api.ListPodResourcesRequest.FromString
        )
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop(grace=0).wait()

    def _list(self, request: api.ListPodResourcesRequest, context: Any) -> bytes:
        self.requests.append(request)
        return self.answer(context)
