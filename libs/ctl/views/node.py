"""One node: why it is not done, and what Kubernetes shows of it. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from libs.contracts.diagnoses import NOTES, describe
from libs.contracts.queries import WhyAnswer
from libs.ctl.answers import NodeAnswer, NodeFact
from libs.ctl.leases import describe as describe_lease
from libs.ctl.text import clock_time, duration, moment, parse_time
from libs.ctl.views.layout import cut, fact, heading, line
from libs.ctl.views.status import node_note, sources_view
from libs.kube.authors import Author

_FIELD: Final = re.compile(
    r"by (setting )?spec\.(brake|release) of the Rollout( to None)?"
    r"(, or by autoUpgrade of the policy)?"
)
"""How the scheduler says it that a brake or a halt is ended."""
_RETRY: Final = "by a retry"
_NEW_STATE: Final = "Successfully updated node state label to "
"""Begins the Event of a new state, in the words of the GPU Operator."""
_LAST_STEPS: Final = 3
_LAST_EVENTS: Final = 3
"""The reason has to stay on the screen: more, and whole sentences, are shown with `-o wide`."""


def node_view(answer: NodeAnswer, *, now: float, wide: bool = False) -> RenderableType:
    """Return the reason first, then the node's facts, and the sources."""
    parts: list[RenderableType] = [heading(_headline(answer))]
    if answer.why is not None:
        parts += _why(answer.why, answer.ended_by, now)
    parts += _facts(answer, now)
    if wide:
        parts += (fact(key, value) for key, value in answer.labels.items())
    if answer.why is not None:
        parts += _last("history", _history(answer.why, now), 0 if wide else _LAST_STEPS)
    parts += _listed("conditions", _shown_conditions(answer, wide), now)
    if wide:
        told = (msgspec.structs.replace(each, text=_told(each)) for each in answer.events)
        parts += _listed("Events", tuple(told), now)
    else:
        events = [f"{_at(each, now)} {_brief(each)}".lstrip() for each in answer.events]
        parts += _last("Events", events, _LAST_EVENTS)
    return Group(*parts, Text(""), *sources_view(answer.sources))


def _history(why: WhyAnswer, now: float) -> list[str]:
    """Return what happened to the node, each with its time, as far as the scheduler says it."""
    if len(why.history_at) != len(why.history):
        return list(why.history)
    steps = zip(why.history_at, why.history, strict=True)
    return [f"{moment(at, now)} {text}" for at, text in steps]


def _told(event: NodeFact) -> str:
    return f"earlier: {event.text}" if event.is_over else event.text


def _brief(event: NodeFact) -> str:
    """Return the text of an Event; of one about a new state, what a narrow line has room for."""
    _, found, state = event.text.partition(_NEW_STATE)
    return f"state {state}" if found else _told(event)


def _at(each: NodeFact, now: float) -> str:
    at = parse_time(each.at)
    return each.at if at is None else moment(at, now)


def _headline(answer: NodeAnswer) -> str:
    name, why = answer.node.name, answer.why
    if why is not None and why.in_place:
        return f"{name} is as its policy wants it"
    if why is not None and why.wait is not None:
        return f"{name} waits: {why.wait.code.value}"
    if why is not None:
        return f"{name} moves: {why.state or 'no state'}"
    return f"{name}: {answer.node.state or 'no upgrade state'}"


def _why(why: WhyAnswer, ended_by: str, now: float) -> Iterator[RenderableType]:
    wait = why.wait
    if wait is not None:
        yield fact("because", wait.detail)
        yield fact("since", f"{duration(now - wait.since)} ago ({clock_time(wait.since)} UTC)")
        if wait.until is not None:
            ends = f"in {duration(wait.until - now)} ({clock_time(wait.until)} UTC)"
            yield fact("ends at the latest", ends)
        if wait.who:
            yield fact("can be ended by", _people(wait.who, ended_by))
    if why.no_gpus:
        yield fact("containers lack GPUs", why.no_gpus)
    if why.container_runtime:
        yield fact("container runtime", why.container_runtime)
    if why.next_kernel:
        yield fact("next kernel", why.next_kernel)
    for each in why.diagnoses:
        yield fact(f"{'note' if each in NOTES else 'diagnosis'} {each.value}", describe(each))
    if why.pool:
        yield fact("pool", why.pool)


def _people(who: str, command: str) -> str:
    """Return who can end a wait, with the command to paste in place of the field that it writes."""
    if not command:
        return who
    told, count = _FIELD.subn(lambda _: f"by `{command}`", who)
    if count:
        return told
    if _RETRY in who:
        own = f"by `{command}`"
        return who.replace(_RETRY, own if "retry" in command else f"{own} and then {_RETRY[3:]}", 1)
    return f"{who}; `{command}`"


def _facts(answer: NodeAnswer, now: float) -> Iterator[RenderableType]:
    node = answer.node
    if node.pool and answer.why is None:
        yield fact("pool", node.pool)
    since = "" if node.since is None else f", for {duration(now - node.since)}"
    yield fact("state", f"{node.state or 'none'}{since}")
    if node.driver:
        yield fact("driver", node.driver)
    if answer.ready is False:
        yield fact("kubelet", "the Node is not Ready")
    if node.held is not None:
        yield fact("lease", describe_lease(node.held))
    if answer.cordoned:
        yield fact("cordon", _cordon(answer.cordon_set, now))
    wait = None if answer.why is None else answer.why.wait
    if wait is not None and node.cause and node.cause in wait.detail:
        node = msgspec.structs.replace(node, cause="")  # it is told as the reason
    if note := node_note(node):
        yield fact("note", note)


def _cordon(author: Author | None, now: float) -> str:
    means = "no new pods are scheduled on the node"
    if author is None:
        return means
    ago = "" if author.at is None else f", at least {duration(now - author.at)} ago"
    return f"{means}; set by {author.name}{ago}"


def _shown_conditions(answer: NodeAnswer, wide: bool) -> tuple[NodeFact, ...]:
    """Return all conditions, or those that tell of a problem."""
    healthy = {"Ready=True", "MemoryPressure=False", "DiskPressure=False", "PIDPressure=False",
               "NetworkUnavailable=False", "GPUHealthy=True"}  # fmt: skip
    return tuple(each for each in answer.conditions if wide or each.name not in healthy)


def _listed(title: str, facts: tuple[NodeFact, ...], now: float) -> Iterator[RenderableType]:
    if facts:
        yield Text("")
        yield line(f"{title}:")
    for each in facts:
        yield fact(" ".join(filter(None, (_at(each, now), each.name))), each.text)


def _last(title: str, texts: Sequence[str], most: int) -> Iterator[RenderableType]:
    """Yield the last of these, a line for each, and how many there are; 0: all, in full."""
    if not texts:
        return
    shown = texts[-most:]
    yield Text("")
    yield line(f"{title}, the last {most} of {len(texts)}:" if shown != texts else f"{title}:")
    yield from map(cut if most else _whole, shown)


def _whole(text: str) -> RenderableType:
    return Padding(line(text), (0, 0, 0, 2), expand=False)
