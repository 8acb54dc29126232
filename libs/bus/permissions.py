"""The subjects that each identity may publish and subscribe to. Pure.

A component of a node may only report, beat, publish events and read its slots in its own name. It
chooses no part of a subject, so what it can store is finite. It may not create consumers: their
creator chooses any subject for the server to deliver to. Forged deliver and reply subjects are
contained by the accounts of `server_config`; permissions and accounts are both needed.
"""

from typing import Final

import msgspec

from libs.contracts import subjects
from libs.contracts.identities import CHECK_SENDERS, COMPONENTS, Identity, Writer
from libs.contracts.senders import event_subjects, report_subjects
from libs.contracts.subjects import (
    ANY,
    AUDIT,
    COMMANDS,
    EVENTS,
    STATE,
    STREAMS,
    Beat,
    Check,
    Command,
    Event,
    Journal,
    Lengths,
    NotASubject,
    Query,
    State,
    Stream,
    Subject,
    Telemetry,
    cluster_pattern,
    direct_get,
    flow_control,
    inbox,
    js_api,
    notify,
    querier_inboxes,
    service,
)

NODES: Final = "NODES"
SERVICES: Final = "SERVICES"
AUTH: Final = "AUTH"

DISCOVERY_VERBS = ("PING", "INFO", "STATS")
"""The verbs of service discovery (ADR-32)."""


class Permissions(msgspec.Struct, frozen=True):
    """Patterns of subjects; every other subject is forbidden."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def account_of(writer: Writer) -> str:
    """Return the account in which a writer's connections are."""
    if writer in COMPONENTS:
        return NODES
    return AUTH if writer is Writer.SIGN_IN else SERVICES


def permissions(identity: Identity) -> Permissions:
    """Return the permissions of an identity; raise `NotASubject` for a name that is a pattern."""
    if ANY in (identity.cluster, identity.node):
        raise NotASubject(
            f"{identity}: {ANY!r} is a wildcard, not a name; it would grant the permissions of all"
        )
    if identity.writer in COMPONENTS:
        publish, subscribe = _component(identity)
    elif identity.writer is Writer.CTL:
        publish, subscribe = _ctl(identity)
    elif identity.writer is Writer.SIGN_IN:
        publish, subscribe = _sign_in()
    elif identity.writer is Writer.SCHEDULER:
        publish, subscribe = _scheduler(identity)
    else:
        publish, subscribe = _cluster_role(identity)
    return Permissions(tuple(publish), (*subscribe, f"{inbox(identity)}.>"))


_Rights = tuple[list[str], list[str]]


def _component(identity: Identity) -> _Rights:
    of_node = {"cluster": identity.cluster, "node": identity.node}
    scope = {**of_node, "component": identity.writer.value}
    askers = (*(sender.value for sender in CHECK_SENDERS), AUDIT)
    checks = (Check(**scope, asker=asker) for asker in askers)
    reads = [direct_get(COMMANDS.name, str(slot)) for slot in (Command(**scope), *checks)]
    notifications = [notify(slot) for slot in (Command(**scope), Check(**scope, asker=ANY))]
    publish: list[Subject] = [
        *report_subjects(identity.writer, **of_node),
        *event_subjects(identity.writer, **of_node),
        Beat(**scope),
        Journal(**scope),
    ]
    if identity.writer is Writer.TELEMETRY:
        publish.append(Telemetry(**of_node))
    return [*map(str, publish), *reads], notifications


def _scheduler(identity: Identity) -> _Rights:
    publish, subscribe = _cluster_role(identity)
    commands = cluster_pattern(Command, identity.cluster)
    lengths = cluster_pattern(Lengths, identity.cluster)
    manages = [js_api("STREAM", verb, each.name) for each in STREAMS for verb in _ENSURE]
    purges = [js_api("STREAM", "PURGE", each.name) for each in STREAMS if not each.deny_purge]
    reads = [
        direct_get(COMMANDS.name, commands),
        direct_get(STATE.name, cluster_pattern(State, identity.cluster)),
    ]
    follows = [
        *_follow(COMMANDS, commands, cluster_pattern(Check, identity.cluster)),
        *_follow(EVENTS, cluster_pattern(Event, identity.cluster)),
        *_follow(STATE, lengths),
    ]
    audits = str(Check(cluster=identity.cluster, node=ANY, component=ANY, asker=AUDIT))
    # Both creating and following a stream need STREAM INFO: list each permission once.
    rights = dict.fromkeys(
        [*publish, commands, lengths, audits, *manages, *purges, *reads, *follows]
    )
    journals = cluster_pattern(Journal, identity.cluster)
    return list(rights), [*subscribe, journals]


def _sign_in() -> _Rights:
    # It has no right on any plane: its account imports none.
    cuts = (subjects.list_connections(ANY), subjects.kick(ANY))
    return [subjects.SIGN_IN_ANSWERS, *cuts], [subjects.SIGN_IN_REQUESTS, subjects.CONNECTIONS]


_ENSURE = ("INFO", "CREATE", "UPDATE")


def _cluster_role(identity: Identity) -> _Rights:
    publish = [
        *map(str, event_subjects(identity.writer, cluster=identity.cluster, node=ANY)),
        *_follow(STATE, cluster_pattern(State, identity.cluster)),
        querier_inboxes(identity.cluster),
    ]
    if identity.writer in CHECK_SENDERS:
        checks = str(
            Check(cluster=identity.cluster, node=ANY, component=ANY, asker=identity.writer.value)
        )
        publish += [checks, direct_get(COMMANDS.name, checks)]
    subscribe = [
        cluster_pattern(Beat, identity.cluster),
        str(Query(cluster=identity.cluster, service=identity.writer, verb=ANY)),
        *(
            subject
            for verb in DISCOVERY_VERBS
            for subject in (
                service(verb),
                service(verb, identity.writer),
                service(verb, identity.writer, ANY),
            )
        ),
    ]
    if identity.writer is Writer.DRIVER_CLUSTER:
        # An old driver is kept as long as a command names it; checks ask for images of a new one.
        patterns = (cluster_pattern(kind, identity.cluster) for kind in (Command, Check))
        publish += _follow(COMMANDS, *patterns)
    if identity.writer is Writer.TELEMETRY_CLUSTER:
        subscribe.append(cluster_pattern(Telemetry, identity.cluster))
    return publish, subscribe


def _ctl(identity: Identity) -> _Rights:
    discovery = [each for verb in DISCOVERY_VERBS for each in (service(verb), service(verb, ">"))]
    queries = str(Query(cluster=identity.cluster, service=ANY, verb=ANY))
    return [queries, *discovery, *_follow(EVENTS, cluster_pattern(Event, identity.cluster))], []


def _follow(stream: Stream, *patterns: str) -> list[str]:
    """Return the rights to read a stream; the server checks a consumer's filter against them."""
    return [
        js_api("STREAM", "INFO", stream.name),
        *(js_api("CONSUMER", "CREATE", stream.name, ANY, pattern) for pattern in patterns),
        js_api("CONSUMER", "DELETE", stream.name, ANY),
        flow_control(stream.name),
    ]
