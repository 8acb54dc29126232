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

EVERYBODY = (
    *(A_DRIVER, A_TELEMETRY, B_DRIVER, B_TELEMETRY, BYSTANDER, ELSEWHERE, SCHEDULER, CTL),
    *(DISCOVERY_CLUSTER, DRIVER_CLUSTER, VALIDATOR_CLUSTER, TELEMETRY_CLUSTER),
)


def slot(of: Identity) -> str:
    """Where this component is commanded."""
    return str(subjects.Command(cluster=of.cluster, node=of.node, component=of.writer))


def check(of: Identity, asker: Identity = SCHEDULER) -> str:
    """Where this asker puts a check to this component."""
    at = {"cluster": of.cluster, "node": of.node, "component": of.writer.value}
    return str(subjects.Check(**at, asker=asker.writer))


def state(of: Identity, kind: str = "facts", asker: str = "") -> str:
    """Where this component reports."""
    at = {"cluster": of.cluster, "node": of.node, "component": of.writer.value}
    return str(subjects.State(**at, kind=kind, asker=asker))


def event(of: Identity, kind: str = "command") -> str:
    """Where this writer says what happened, on its node or on b."""
    node = of.node or B_DRIVER.node
    return str(subjects.Event(cluster=of.cluster, node=node, writer=of.writer, kind=kind))


def beat(of: Identity) -> str:
    """Where this component is heard to be alive."""
    return str(subjects.Beat(cluster=of.cluster, node=of.node, component=of.writer))


def batch(of: Identity) -> str:
    """Where this node's measurements go."""
    return str(subjects.Telemetry(cluster=of.cluster, node=of.node))


def status(of: Identity) -> str:
    """Where this service is asked how things stand."""
    return str(subjects.Query(cluster=of.cluster, service=of.writer, verb="status"))


def poke(subject: str) -> str:
    """Where the owner of this slot is told to look."""
    parsed = subjects.parse(subject)
    assert isinstance(parsed, subjects.Command | subjects.Check)
    return subjects.notify(parsed)


def guessed_inbox(of: Identity) -> str:
    """An inbox of this identity, as if its token had been guessed."""
    return f"{subjects.inbox(of)}.guessed"
