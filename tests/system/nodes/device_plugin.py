"""A device plugin that gives pods GPUs which do not exist."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, Final

import grpc

RESOURCE: Final = "nvidia.com/gpu"
_ENDPOINT: Final = "test.sock"
_WITHIN: Final = 120.0


class DevicePlugin:
    """Registers devices at a kubelet, of which it is given the folder `device-plugins`."""

    def __init__(
        self, folder: Path, *devices: str, files: Sequence[str] = (), cdi: str = ""
    ) -> None:
        """Each container with a device gets these device files of the node, and a CDI device."""
        self._folder = folder
        self._files = files
        self._devices = devices
        self._cdi = cdi
        self._ended = Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        handlers = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(_empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list),
            "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
        }
        service = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers)
        self._server.add_generic_rpc_handlers((service,))

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet has not started since: it removes the sockets of plugins."""
        return (self._folder / _ENDPOINT).exists()

    def start(self) -> None:
        self._server.add_insecure_port(f"unix:{self._folder / _ENDPOINT}")
        self._server.start()
        request = _text(1, "v1beta1") + _text(2, _ENDPOINT) + _text(3, RESOURCE)
        with grpc.insecure_channel(f"unix:{self._folder / 'kubelet.sock'}") as kubelet:
            register: Any = kubelet.unary_unary("/v1beta1.Registration/Register")
            register(request, timeout=_WITHIN, wait_for_ready=True)

    def stop(self) -> None:
        self._ended.set()
        self._server.stop(grace=None).wait()

    def _list(self, _request: bytes, _context: Any) -> Iterator[bytes]:
        devices = (_text(1, device) + _text(2, "Healthy") for device in self._devices)
        yield b"".join(_field(1, device) for device in devices)
        self._ended.wait()

    def _allocate(self, _request: bytes, _context: Any) -> bytes:
        """Answer for one container."""
        files = (_text(1, file) + _text(2, file) + _text(3, "rw") for file in self._files)
        answer = b"".join(_field(3, file) for file in files)
        if self._cdi:
            answer += _field(5, _text(1, self._cdi))
        return _field(1, answer)


def _empty(_request: bytes, _context: Any) -> bytes:
    return b""


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a protobuf message; all contents here are short."""
    return bytes((number << 3 | 2, len(content))) + content


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())
