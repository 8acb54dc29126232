"""The API server's audit log of a run: the journal, and forbidden requests. `libs.audit` judges."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from demo.admin import POOL
from demo.environment import bus_client
from demo.verdict import (
    READER,
    DriverlessNodes,
    events_of,
    judge_run,
    observe_reports,
    verdict_lines,
)
from libs.contracts.journal import Revision
from libs.contracts.message import encode
from libs.kube.auditlog import AuditLogConverter
from libs.policy.installation import RBAC_RULES, service_account_of
from tests.component.real_upgrade.admin import MAX_UNAVAILABLE
from tests.component.real_upgrade.installation import OURS, Installation

FORBIDDEN = 403


class _User(msgspec.Struct, frozen=True):
    username: str
    groups: Sequence[str] = ()


class _ResponseStatus(msgspec.Struct, frozen=True):
    code: int = 0


class _Reference(msgspec.Struct, rename="camel", frozen=True):
    api_group: str = ""
    resource: str = ""
    subresource: str = ""


class _Line(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The fields of an audit event that show a forbidden request."""

    user: _User
    verb: str
    object_ref: _Reference | None = None
    uri: str = msgspec.field(name="requestURI")
    response_status: _ResponseStatus = _ResponseStatus()


class AuditLogSummary(msgspec.Struct, frozen=True):
    """The revisions and requests of a complete audit log."""

    revisions: tuple[Revision, ...]
    requests: frozenset[tuple[str, str, str, str]]
    """Requests of our accounts, including reads: account, group, resource and verb."""
    forbidden: Counter[str]
    """Number of forbidden requests of our accounts, by request."""

    def unused_rights(self) -> set[str]:
        """Return rights that were not used: account, resource and verbs."""
        return {
            f"{service_account_of(writer)}: {resource} {' '.join(right.verbs)}"
            for writer, rights in RBAC_RULES.items()
            for right in rights
            for resource in right.resources
            if not any(
                (service_account_of(writer), right.group, resource, verb) in self.requests
                for verb in right.verbs
            )
        }

    def write_journal(self, file: Path) -> None:
        """Write the journal in the form that the demo's verdict reads."""
        file.write_bytes(b"".join(encode(revision) + b"\n" for revision in self.revisions))


@asynccontextmanager
async def observe_driverless(installation: Installation) -> AsyncGenerator[DriverlessNodes]:
    """Collect the facts of the machines' reports that no revision shows."""
    observer = DriverlessNodes(pool=POOL, max_unavailable=MAX_UNAVAILABLE)
    async with (
        bus_client(installation.up, READER) as bus,
        observe_reports(observer, bus=bus, clock=installation.up.clock),
    ):
        yield observer


async def assert_audit_passes(
    installation: Installation, observer: DriverlessNodes
) -> AuditLogSummary:
    """Stop all processes, then audit the records of server, agents and services."""
    async with bus_client(installation.up) as bus:  # while sign-in lets people in
        await installation.up.processes.end()
        events = await events_of(bus)
    log = await asyncio.to_thread(read_audit_log, installation.plane.audit_log)
    await asyncio.to_thread(log.write_journal, installation.up.paths.revisions)
    result = await judge_run(
        installation.up.paths,
        installation.nodes,
        events=events,
        pool_facts=observer.pool_facts,
        faults=False,
    )
    assert result.is_ok, "\n".join(verdict_lines(result))
    assert result.verdict.not_judged == {}, result.verdict.not_judged
    assert log.forbidden == {}, log.forbidden
    return log


def read_audit_log(log: Path) -> AuditLogSummary:
    """Read the file, blocking."""
    text = log.read_bytes()
    converter = AuditLogConverter(str(log))
    revisions = (*converter.feed(text), *converter.flush())
    own_lines = list(_own_lines(text))
    return AuditLogSummary(
        revisions=revisions,
        requests=frozenset(map(_request, own_lines)),
        forbidden=Counter(
            f"{_account_name(line)}: {line.verb} {line.uri.partition('?')[0]}"
            for line in own_lines
            if line.response_status.code == FORBIDDEN
        ),
    )


def _own_lines(text: bytes) -> Iterator[_Line]:
    decode = msgspec.json.Decoder(_Line).decode
    for line in map(decode, text.splitlines()):
        if OURS in line.user.groups:
            yield line


def _request(line: _Line) -> tuple[str, str, str, str]:
    reference = line.object_ref or _Reference()
    resource = "/".join(filter(None, (reference.resource, reference.subresource)))
    return _account_name(line), reference.api_group, resource, line.verb


def _account_name(line: _Line) -> str:
    return line.user.username.rpartition(":")[2]
