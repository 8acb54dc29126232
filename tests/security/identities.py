"""The attacking and attacked identities, and their subjects."""

from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer

A_DRIVER = Identity(writer=Writer.DRIVER, node="a.example")
A_TELEMETRY = Identity(writer=Writer.TELEMETRY, node="a.example")
B_DRIVER = Identity(writer=Writer.DRIVER, node="b.example")
B_TELEMETRY = Identity(writer=Writer.TELEMETRY, node="b.example")
SCHEDULER = Identity(writer=Writer.SCHEDULER)
DISCOVERY_CLUSTER = Identity(writer=Writer.DISCOVERY_CLUSTER)
DRIVER_CLUSTER = Identity(writer=Writer.DRIVER_CLUSTER)
VALIDATOR_CLUSTER = Identity(writer=Writer.VALIDATOR_CLUSTER)
TELEMETRY_CLUSTER = Identity(writer=Writer.TELEMETRY_CLUSTER)
CTL = Identity(writer=Writer.CTL)
ELSEWHERE = Identity(cluster="elsewhere", writer=Writer.SCHEDULER)
BYSTANDER = Identity(writer=Writer.PLUGIN, node="bystander")

IDENTITIES = (
    *(A_DRIVER, A_TELEMETRY, B_DRIVER, B_TELEMETRY, BYSTANDER, ELSEWHERE, SCHEDULER, CTL),
    *(DISCOVERY_CLUSTER, DRIVER_CLUSTER, VALIDATOR_CLUSTER, TELEMETRY_CLUSTER),
)


def slot(of: Identity) -> str:
    """Return the slot of this component."""
    return str(subjects.Command(cluster=of.cluster, node=of.node, component=of.writer))


def check(of: Identity, asker: Identity = SCHEDULER) -> str:
    """Return the slot for checks of this component by this asker."""
    fields = {"cluster": of.cluster, "node": of.node, "component": of.writer.value}
    return str(subjects.Check(**fields, asker=asker.writer))


def state(of: Identity, kind: str = "progress", asker: str = "") -> str:
    """Return the subject of this component's reports."""
    fields = {"cluster": of.cluster, "node": of.node, "component": of.writer.value}
    return str(subjects.State(**fields, kind=kind, asker=asker))


def event(of: Identity, kind: str = "command") -> str:
    """Return the subject of this writer's events, about its node or b."""
    node = of.node or B_DRIVER.node
    return str(subjects.Event(cluster=of.cluster, node=node, writer=of.writer, kind=kind))


def beat(of: Identity) -> str:
    """Return the subject of this component's heartbeats."""
    return str(subjects.Beat(cluster=of.cluster, node=of.node, component=of.writer))


def batch(of: Identity) -> str:
    """Return the subject of this node's telemetry."""
    return str(subjects.Telemetry(cluster=of.cluster, node=of.node))


def journal(of: Identity) -> str:
    """Return the subject of this component's journal."""
    return str(subjects.Journal(cluster=of.cluster, node=of.node, component=of.writer))


def audit_check(of: Identity) -> str:
    """Return the subject of the checks for this component's journal."""
    scope = {"cluster": of.cluster, "node": of.node, "component": of.writer}
    return str(subjects.Check(**scope, asker=subjects.AUDIT))


def status(of: Identity) -> str:
    """Return the subject of status queries to this service."""
    return str(subjects.Query(cluster=of.cluster, service=of.writer, verb="status"))


def notification(subject: str) -> str:
    """Return the subject that notifies the owner of this slot."""
    parsed = subjects.parse(subject)
    assert isinstance(parsed, subjects.Command | subjects.Check)
    return subjects.notify(parsed)


def guessed_inbox(of: Identity) -> str:
    """Return an inbox of this identity, as if its token had been guessed."""
    return f"{subjects.inbox(of)}.guessed"
