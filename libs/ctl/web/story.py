"""One node's page: what Kubernetes shows, what the scheduler says, and what happened."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from libs.contracts.diagnoses import NOTES, describe
from libs.contracts.queries import QueryVerb, WhyAnswer, WhyQuery
from libs.ctl import node_answers
from libs.ctl.answers import Gpu, NodeAnswer, NodeFact
from libs.ctl.bus import Scheduler
from libs.ctl.cluster import DEVICES, Cluster, Device
from libs.ctl.collect.gpus import gpu_of
from libs.ctl.collect.node import event_fact
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.text import printable
from libs.fleet.node import cause_text, driver_text
from libs.fleet.records import record_of
from libs.fleet.status import EventLine, Source
from libs.kube import views
from libs.kube.errors import KubeError, NotFound

_LAST_EVENTS: Final = 20


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the validation that proves a node."""

    name: str
    passed: bool
    text: str


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of a node, as its record holds it."""

    passed: bool
    at: float
    driver: str
    of_this_boot: bool
    """Whether it is about the boot that the Node reports; one of another proves nothing."""
    checks: tuple[Check, ...]


class Diagnosed(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong that has a name, or a note."""

    name: str
    text: str
    is_note: bool


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one node."""

    at: float
    node: NodeAnswer
    proof: Proof | None
    diagnoses: tuple[Diagnosed, ...]
    gpus: tuple[Gpu, ...]
    happened: tuple[EventLine, ...]
    """Its last events on the bus."""


async def gather_story(
    cluster: Cluster,
    name: str,
    *,
    now: float,
    devices: Sequence[str],
    scheduler: Scheduler | None,
    why_away: str,
    versions: Mapping[str, str],
    happened: Sequence[EventLine],
) -> Story:
    """Return the story of a node; raise `Failure` if Kubernetes does not tell it."""
    asked = asyncio.create_task(_ask_why(scheduler, name, why_away))
    try:
        node = await cluster.node(name)
        events = await cluster.node_events(name)
        found = [await _device(cluster, each) for each in devices]
    finally:
        await asyncio.wait({asked})
    return story_of(
        node,
        asked.result(),
        [event_fact(each) for each in events[-_LAST_EVENTS:]],
        [each for each in found if each is not None],
        now=now,
        address=cluster.address,
        versions=versions,
        happened=happened,
    )


def story_of(
    node: views.Node,
    told: WhyAnswer | Failure,
    events: Sequence[NodeFact],
    devices: Sequence[Device],
    *,
    now: float,
    address: str,
    versions: Mapping[str, str],
    happened: Sequence[EventLine],
) -> Story:
    """Return the story of a node, of what each source says. Pure."""
    why = node_answers.with_versions(told, versions) if isinstance(told, WhyAnswer) else None
    problem = str(told) if isinstance(told, Failure) else ""
    kubernetes = Source(
        name=f"Kubernetes ({address})", gives="labels, conditions and Events", age=0.0
    )
    scheduler = Source(
        name="the scheduler", gives="why", age=None if problem else 0.0, problem=problem
    )
    replace = msgspec.structs.replace
    shown = node_answers.node_answer(node, events, why=why, sources=(kubernetes, scheduler))
    row = shown.node
    shown_row = replace(row, cause=cause_text(row), driver=driver_text(row))
    gpus = [gpu_of(each, row.driver_state) for each in devices]
    return Story(
        at=now,
        node=replace(shown, node=shown_row),
        proof=_proof(node),
        diagnoses=tuple(
            Diagnosed(name=each.value, text=describe(each), is_note=each in NOTES)
            for each in (why.diagnoses if why else ())
        ),
        gpus=tuple(sorted(gpus, key=lambda each: each.index)),
        happened=tuple(happened),
    )


def encode_story(story: Story) -> bytes:
    """Return the story as JSON, without characters that are not printable."""
    return msgspec.json.encode(_cleaned(msgspec.to_builtins(story)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return {printable(str(key)): _cleaned(each) for key, each in items}
    if isinstance(value, (list, tuple)):
        return [_cleaned(each) for each in cast(Sequence[Any], value)]
    return value


def _proof(node: views.Node) -> Proof | None:
    record = record_of(node.metadata)
    evidence = record.evidence if record else None
    if evidence is None:
        return None
    return Proof(
        passed=evidence.passed,
        at=evidence.at,
        driver=evidence.driver_version,
        of_this_boot=evidence.boot_id == node.status.node_info.boot_id,
        checks=tuple(
            Check(
                name=each.name,
                passed=each.passed,
                text=": ".join(filter(None, (each.message, describe(each.diagnosis)))),
            )
            for each in evidence.steps
        ),
    )


async def _ask_why(scheduler: Scheduler | None, name: str, why_away: str) -> WhyAnswer | Failure:
    if scheduler is None:
        return Failure(ExitCode.NOT_REACHABLE, why_away)
    try:
        return await scheduler.ask(WhyQuery(node=name), QueryVerb.WHY, WhyAnswer)
    except Failure as failure:
        return failure


async def _device(cluster: Cluster, name: str) -> Device | None:
    try:
        return await cluster.kube.get(DEVICES, name)
    except (NotFound, KubeError):
        return None
