"""Ask a container runtime over its CRI socket, and print what it knows as JSON.

A program of its own: gRPC takes some 15 MiB of memory, and a runtime is asked seldom.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec

SERVICE: Final = "/runtime.v1.RuntimeService"
SECONDS: Final = 5.0
"""The deadline of a question to the runtime, which answers from memory."""
MAX_BYTES: Final = 4 << 20
"""The largest answer that is read; its own configuration is some KiB."""
SPECS: Final = frozenset(("/var/run/cdi", "/run/cdi"))
_VERBOSE: Final = b"\x08\x01"
"""A request with the field `verbose`, which asks for the configuration."""
_NAME: Final = 2
_VERSION: Final = 3
_INFO: Final = 2
_HANDLERS: Final = 3


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime said."""

    name: str = ""
    version: str = ""
    handlers: tuple[str, ...] = ()
    reads_cdi: bool = False
    error: str = ""


class Malformed(Exception):
    """An answer is not in the format of protobuf."""


def read(version: bytes, status: bytes) -> Answer:
    """Read the answers to `Version` and `Status`; raise `Malformed`.

    Since containerd 2 and CRI-O 1.31 the handlers are listed. containerd 1.7 says them only in its
    configuration, as it says whether it reads CDI specs; CRI-O always does that.
    """
    said = dict(_fields(version))
    name = said.get(_NAME, b"").decode(errors="replace")
    config: dict[str, Any] = {}
    handlers: set[str] = set()
    for field, value in _fields(status):
        entry = dict(_fields(value)) if field in (_INFO, _HANDLERS) else {}
        if field == _HANDLERS:
            handlers.add(entry.get(1, b"").decode(errors="replace"))
        elif field == _INFO and entry.get(1) == b"config":
            config = _object(entry.get(2, b""))
    containers = config.get("containerd")
    if isinstance(containers, dict):
        handlers |= set(_keys(cast("dict[str, Any]", containers).get("runtimes")))
    folders = config.get("cdiSpecDirs")
    paths = cast("list[object]", folders) if isinstance(folders, list) else []
    reads = any(str(each).rstrip("/") in SPECS for each in paths)
    is_on = config.get("enableCDI", True) is True
    return Answer(
        name=name,
        version=said.get(_VERSION, b"").decode(errors="replace"),
        handlers=tuple(sorted(handlers - {""})),
        reads_cdi=name == "cri-o" or (reads and is_on),
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _keys(value: object) -> list[str]:
    return list(cast("dict[str, Any]", value)) if isinstance(value, dict) else []


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message that are texts or messages, with their numbers."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        kind = key & 7
        if kind == 0:
            _, at = _number(data, at)
        elif kind == 2:
            length, at = _number(data, at)
            if at + length > len(data):
                raise Malformed("a field is longer than its message")
            yield key >> 3, data[at : at + length]
            at += length
        else:
            raise Malformed(f"a field has the unexpected kind {kind}")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Malformed("a number does not end")


def ask(socket: str) -> Answer:
    """Ask the runtime at this socket; what failed is in the answer."""
    # The library writes what it tries to standard error, beside what it raises.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import grpc

    options = [("grpc.max_receive_message_length", MAX_BYTES)]
    try:
        with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:

            def call(method: str, request: bytes) -> bytes:
                stub = cast("Callable[..., bytes]", channel.unary_unary(f"{SERVICE}/{method}"))
                return stub(request, timeout=SECONDS)

            return read(call("Version", b""), call("Status", _VERBOSE))
    except Malformed as error:
        return Answer(error=str(error))
    except grpc.RpcError as error:
        code = error.code().name if hasattr(error, "code") else type(error).__name__
        return Answer(error=f"it answered {code}")


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(ask(sys.argv[1])))
