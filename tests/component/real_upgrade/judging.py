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
from demo.person import POOL
from demo.premises import listening_at
from demo.witness import READER, Witness, listening
from libs.contracts.journal import Revision
from libs.contracts.message import encode
from libs.policy.accounts import account_of
from libs.policy.installation.rights import RIGHTS
from libs.testing.auditlog import Converter
from tests.component.real_upgrade.people import MAX_UNAVAILABLE
from tests.component.real_upgrade.site import OURS, Site

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


class Read(msgspec.Struct, frozen=True):
    """An audit log, read to its end."""

    revisions: tuple[Revision, ...]
    asked: frozenset[tuple[str, str, str, str]]
    """What our accounts asked for, reads included: account, group, resource and verb."""
    forbidden: Counter[str]
    """What was asked without the right to it: who, verb and address, and how often."""

    def idle(self) -> set[str]:
        """Rights of which no use was made: account, resource and verbs."""
        return {
            f"{account_of(writer)}: {resource} {' '.join(right.verbs)}"
            for writer, rights in RIGHTS.items()
            for right in rights
            for resource in right.resources
            if not any(
                (account_of(writer), right.group, resource, verb) in self.asked
                for verb in right.verbs
            )
        }

    def keep(self, file: Path) -> None:
        """The journal as the demo's judge reads it."""
        file.write_bytes(b"".join(encode(revision) + b"\n" for revision in self.revisions))


@asynccontextmanager
async def witnessed(here: Site) -> AsyncGenerator[Witness]:
    """What no revision shows is heard from the reports of machines."""
    witness = Witness(pool=POOL, max_unavailable=MAX_UNAVAILABLE)
    async with (
        listening_at(here.up, READER) as bus,
        listening(witness, bus=bus, clock=here.up.clock),
    ):
        yield witness


async def kept_all_promises(here: Site, witness: Witness) -> Read:
    """All is ended, and what server, agents and services have kept is audited; I10 is counted."""
    await here.up.crew.end()
    async with listening_at(here.up) as bus:
        events = await verdict.events_of(bus)
    log = await asyncio.to_thread(read, here.plane.audit_log)
    await asyncio.to_thread(log.keep, here.up.places.revisions)
    found = await verdict.judged(
        here.up.places, here.nodes, events=events, testimony=witness.testimony, faults=False
    )
    assert found.well, "\n".join(verdict.lines(found))
    assert found.verdict.unjudged == {}, found.verdict.unjudged
    assert log.forbidden == {}, log.forbidden
    return log


def read(log: Path) -> Read:
    """Reads a file, so it blocks."""
    text = log.read_bytes()
    converter = Converter(str(log))
    revisions = (*converter.feed(text), *converter.flush())
    ours = list(_ours(text))
    return Read(
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
