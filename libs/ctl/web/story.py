"""One node's page: what Kubernetes shows, what the scheduler says, and what happened."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from libs.contracts.diagnoses import NOTES, describe
from libs.contracts.queries import QueryVerb, WhyAnswer, WhyQuery
from libs.ctl.answers import NodeAnswer
from libs.ctl.bus import Scheduler
from libs.ctl.cluster import DEVICES, Cluster, Device
from libs.ctl.collect.gpus import gpu_of
from libs.ctl.collect.node import answer_about
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.text import printable
from libs.ctl.web.model import note_of
from libs.fleet.gpus import FleetGpu
from libs.fleet.node import cause_text, driver_text
from libs.fleet.records import record_of
from libs.fleet.status import EventLine
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
    note: str
    """What else is to be known of it, in a few words; its GPUs are listed below."""
    proof: Proof | None
    diagnoses: tuple[Diagnosed, ...]
    gpus: tuple[FleetGpu, ...]
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
    happened: Sequence[EventLine],
) -> Story:
    """Return the story of a node; raise `Failure` if Kubernetes does not tell it."""
    told = asyncio.create_task(_ask_why(scheduler, name, why_away))
    try:
        node = await cluster.node(name)
        answer = await answer_about(cluster, node, told, most_events=_LAST_EVENTS)
        found = [await _device(cluster, each) for each in devices]
    finally:
        await asyncio.wait({told})
    shown = [each for each in found if each is not None]
    return story_of(node, answer, shown, now=now, happened=happened)


def story_of(
    node: views.Node,
    answer: NodeAnswer,
    devices: Sequence[Device],
    *,
    now: float,
    happened: Sequence[EventLine],
) -> Story:
    """Return the story of a node, with its state in the words of `status`. Pure."""
    replace = msgspec.structs.replace
    row = answer.node
    shown = replace(row, cause=cause_text(row), driver=driver_text(row))
    diagnoses = answer.why.diagnoses if answer.why is not None else ()
    gpus = [gpu_of(each, row.driver_state) for each in devices]
    return Story(
        at=now,
        node=replace(answer, node=shown),
        note=note_of(row, unready=answer.ready is False, health={}),
        proof=_proof(node),
        diagnoses=tuple(
            Diagnosed(name=each.value, text=describe(each), is_note=each in NOTES)
            for each in diagnoses
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
    """Return the last validation that the node's record holds; None: there was none."""
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
