"""What the API server's audit log says of a run: the journal, and what was refused.

The judge is `libs.audit`, as everywhere; here is only what it is shown.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from demo import verdict
from demo.admin import POOL
from demo.driverless import READER, DriverlessNodes, observe_reports
from demo.environment import bus_client
from libs.contracts.journal import Revision
from libs.contracts.message import encode
from libs.policy.installation.rbac import RBAC_RULES
from libs.policy.service_accounts import service_account_of
from libs.testing.auditlog import AuditLogConverter
from tests.component.real_upgrade.admin import MAX_UNAVAILABLE
from tests.component.real_upgrade.installation import OURS, Installation

FORBIDDEN = 403


class _User(msgspec.Struct, frozen=True):
    username: str
    groups: Sequence[str] = ()


class _Answer(msgspec.Struct, frozen=True):
    code: int = 0


class _Reference(msgspec.Struct, rename="camel", frozen=True):
    api_group: str = ""
    resource: str = ""
    subresource: str = ""


class _Line(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """As much of an event as tells who was refused what."""

    user: _User
    verb: str
    object_ref: _Reference | None = None
    uri: str = msgspec.field(name="requestURI")
    response_status: _Answer = _Answer()


class AuditLogSummary(msgspec.Struct, frozen=True):
    """An audit log, read to its end."""

    revisions: tuple[Revision, ...]
    asked: frozenset[tuple[str, str, str, str]]
    """What our accounts asked for, reads included: account, group, resource and verb."""
    forbidden: Counter[str]
    """What was asked without the right to it: who, verb and address, and how often."""

    def unused_rights(self) -> set[str]:
        """Rights of which no use was made: account, resource and verbs."""
        return {
            f"{service_account_of(writer)}: {resource} {' '.join(right.verbs)}"
            for writer, rights in RBAC_RULES.items()
            for right in rights
            for resource in right.resources
            if not any(
                (service_account_of(writer), right.group, resource, verb) in self.asked
                for verb in right.verbs
            )
        }

    def keep(self, file: Path) -> None:
        """The journal as the demo's judge reads it."""
        file.write_bytes(b"".join(encode(revision) + b"\n" for revision in self.revisions))


@asynccontextmanager
async def observe_driverless(here: Installation) -> AsyncGenerator[DriverlessNodes]:
    """What no revision shows is heard from the reports of machines."""
    witness = DriverlessNodes(pool=POOL, max_unavailable=MAX_UNAVAILABLE)
    async with (
        bus_client(here.up, READER) as bus,
        observe_reports(witness, bus=bus, clock=here.up.clock),
    ):
        yield witness


async def assert_audit_passes(here: Installation, witness: DriverlessNodes) -> AuditLogSummary:
    """All is ended, and what server, agents and services have kept is audited; I10 is counted."""
    await here.up.processes.end()
    async with bus_client(here.up) as bus:
        events = await verdict.events_of(bus)
    log = await asyncio.to_thread(read_audit_log, here.plane.audit_log)
    await asyncio.to_thread(log.keep, here.up.paths.revisions)
    found = await verdict.judge_run(
        here.up.paths, here.nodes, events=events, pool_facts=witness.pool_facts, faults=False
    )
    assert found.is_ok, "\n".join(verdict.lines(found))
    assert found.verdict.not_judged == {}, found.verdict.not_judged
    assert log.forbidden == {}, log.forbidden
    return log


def read_audit_log(log: Path) -> AuditLogSummary:
    """Reads a file, so it blocks."""
    text = log.read_bytes()
    converter = AuditLogConverter(str(log))
    revisions = (*converter.feed(text), *converter.flush())
    ours = list(_ours(text))
    return AuditLogSummary(
        revisions=revisions,
        asked=frozenset(map(_request, ours)),
        forbidden=Counter(
            f"{_short(line)}: {line.verb} {line.uri.partition('?')[0]}"
            for line in ours
            if line.response_status.code == FORBIDDEN
        ),
    )


def _ours(text: bytes) -> Iterator[_Line]:
    decode = msgspec.json.Decoder(_Line).decode
    for line in map(decode, text.splitlines()):
        if OURS in line.user.groups:
            yield line


def _request(line: _Line) -> tuple[str, str, str, str]:
    what = line.object_ref or _Reference()
    resource = "/".join(filter(None, (what.resource, what.subresource)))
    return _short(line), what.api_group, resource, line.verb


def _short(line: _Line) -> str:
    return line.user.username.rpartition(":")[2]
