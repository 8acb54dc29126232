"""The derived permissions agree with the documented planes."""

import pytest

from libs.bus.permissions import permissions
from libs.contracts.catalogue import PLANES, Plane
from libs.contracts.identities import COMPONENTS, Identity, Writer
from libs.contracts.subjects import ANY, COMMANDS, Event, State, cluster_pattern, js_api, matches

NODE = "gpu-1.example"
VALUES = {
    "cluster": "default",
    "node": NODE,
    "component": "driver",
    "kind": "progress",
    "pool": "nvidiadriver-a.b",
    "service": "scheduler",
    "verb": "why",
}


def identity(writer: Writer) -> Identity:
    return Identity(writer=writer, node=NODE if writer in COMPONENTS else "")


def subject_of(plane: Plane, writer: Writer) -> str:
    """Return a subject of the plane on which this writer would publish."""
    own = {"writer": writer.value, "asker": writer.value if writer not in COMPONENTS else ""}
    if writer in COMPONENTS:
        own["component"] = writer.value
    sent = [form.kind for form in plane.forms if writer in form.parties]
    if sent and plane.subject is Event:
        own["kind"] = sent[0]
    if plane.subject is State:
        own["asker"] = ""
    fields = plane.subject.__struct_fields__
    values = {**VALUES, **own}
    return str(plane.subject(**{field: values[field] for field in fields}))


@pytest.mark.parametrize("writer", Writer)
@pytest.mark.parametrize("plane", PLANES, ids=lambda plane: plane.name)
def test_only_the_documented_writers_may_publish(plane: Plane, writer: Writer) -> None:
    if plane.name == "check" and writer in COMPONENTS:
        return  # Components have no subject on this plane, because they send no checks.
    patterns = permissions(identity(writer)).publish
    allowed = any(matches(pattern, subject_of(plane, writer)) for pattern in patterns)
    assert allowed == (writer in plane.writers)


CORE = [plane for plane in PLANES if plane.stream is None]
FOLLOWED = [plane for plane in PLANES if plane.stream is not None]


@pytest.mark.parametrize("writer", Writer)
@pytest.mark.parametrize("plane", CORE, ids=lambda plane: plane.name)
def test_only_the_documented_readers_may_subscribe(plane: Plane, writer: Writer) -> None:
    values = dict(VALUES, service=writer.value)
    fields = plane.subject.__struct_fields__
    subject = str(plane.subject(**{field: values[field] for field in fields}))
    patterns = permissions(identity(writer)).subscribe
    assert any(matches(pattern, subject) for pattern in patterns) == (writer in plane.readers)


@pytest.mark.parametrize("writer", Writer)
@pytest.mark.parametrize("plane", FOLLOWED, ids=lambda plane: plane.name)
def test_the_documented_readers_may_follow_the_stream(plane: Plane, writer: Writer) -> None:
    if plane.stream is COMMANDS and writer in COMPONENTS:
        return  # A component reads each of its own slots directly.
    consumer = js_api("CONSUMER", "CREATE", plane.stream.name if plane.stream else "", ANY)
    follow = f"{consumer}.{cluster_pattern(plane.subject, VALUES['cluster'])}"
    assert (follow in permissions(identity(writer)).publish) == (writer in plane.readers)
