"""Service discovery as specified by NATS ADR-32 and used by `nats micro ls`."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from libs.contracts import subjects

QUEUE_GROUP = "q"
"""ADR-32's queue group: each query goes to one instance of a service."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


class MicroService(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a service."""

    id: str
    name: str
    version: str
    started: float
    """Unix seconds."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"service {self.name!r}: a name may contain only A-Z, a-z, 0-9, '_' and '-'"
            )
        if not _VERSION.fullmatch(self.version):
            raise ValueError(
                f"service {self.name}: version {self.version!r} is not semantic, as in 1.2.3"
            )


class Endpoint(msgspec.Struct, kw_only=True):
    """One query of a service, with its statistics."""

    name: str
    subject: str
    requests: int = 0
    errors: int = 0
    last_error: str = ""
    seconds: float = 0.0


class _Reply(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    name: str
    id: str
    version: str
    metadata: dict[str, str] = {}


class _Ping(_Reply, frozen=True, kw_only=True, tag="io.nats.micro.v1.ping_response"):
    pass


class _EndpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    subject: str
    queue_group: str = QUEUE_GROUP
    metadata: dict[str, str] = {}


class _Info(_Reply, frozen=True, kw_only=True, tag="io.nats.micro.v1.info_response"):
    description: str
    endpoints: list[_EndpointInfo]


class _EndpointStats(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    subject: str
    queue_group: str = QUEUE_GROUP
    num_requests: int
    num_errors: int
    last_error: str
    processing_time: int
    average_processing_time: int
    data: None = None


class _Stats(_Reply, frozen=True, kw_only=True, tag="io.nats.micro.v1.stats_response"):
    started: str
    endpoints: list[_EndpointStats]


def discovery_subjects(verb: str, service: MicroService) -> tuple[str, str, str]:
    """Return a verb's subjects: for all services, for this service, for this instance."""
    return (
        subjects.service(verb),
        subjects.service(verb, service.name),
        subjects.service(verb, service.name, service.id),
    )


def ping(service: MicroService) -> bytes:
    return msgspec.json.encode(_Ping(name=service.name, id=service.id, version=service.version))


def info(service: MicroService, endpoints: Iterable[Endpoint]) -> bytes:
    known = [_EndpointInfo(name=each.name, subject=each.subject) for each in endpoints]
    return msgspec.json.encode(
        _Info(
            name=service.name,
            id=service.id,
            version=service.version,
            description=f"read-only questions: {', '.join(each.name for each in known)}",
            endpoints=known,
        )
    )


def stats(service: MicroService, endpoints: Iterable[Endpoint]) -> bytes:
    started = datetime.fromtimestamp(service.started, UTC).isoformat(timespec="microseconds")
    return msgspec.json.encode(
        _Stats(
            name=service.name,
            id=service.id,
            version=service.version,
            started=started.replace("+00:00", "Z"),
            endpoints=[_stats(each) for each in endpoints],
        )
    )


def _stats(endpoint: Endpoint) -> _EndpointStats:
    nanoseconds = round(endpoint.seconds * 1e9)
    return _EndpointStats(
        name=endpoint.name,
        subject=endpoint.subject,
        num_requests=endpoint.requests,
        num_errors=endpoint.errors,
        last_error=endpoint.last_error,
        processing_time=nanoseconds,
        average_processing_time=nanoseconds // endpoint.requests if endpoint.requests else 0,
    )
