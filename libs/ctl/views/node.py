"""One node: why it is not done, and what Kubernetes shows of it. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from libs.contracts.diagnoses import NOTES, describe
from libs.contracts.queries import WhyAnswer
from libs.contracts.rollout import BY_BRAKE, BY_BRAKE_OR_POLICY, BY_CHECKED_BRAKE, BY_RELEASE
from libs.contracts.waits import BY_RETRY, ends_by_itself
from libs.ctl.answers import NodeAnswer, NodeFact
from libs.ctl.leases import describe as describe_lease
from libs.ctl.text import clock_time, duration, moment, parse_time
from libs.ctl.views.layout import cut, fact, heading, line
from libs.ctl.views.status import node_note, sources_view
from libs.fleet.node import DriverState, driver_text
from libs.kube.authors import Author

_BY_FIELD: Final = (BY_BRAKE_OR_POLICY, BY_BRAKE, BY_CHECKED_BRAKE, BY_RELEASE)
_NEW_STATE: Final = "Successfully updated node state label to "
"""Begins the Event of a new state, in the words of the GPU Operator."""
_ABOVE: Final = "(as above)"
_LAST_STEPS: Final = 3
_LAST_EVENTS: Final = 3
"""The reason has to stay on the screen: more, and whole sentences, are shown with `-o wide`."""


def node_view(answer: NodeAnswer, *, now: float, wide: bool = False) -> RenderableType:
    """Return the reason first, then the node's facts, and the sources."""
    parts: list[RenderableType] = [heading(_headline(answer))]
    if answer.why is not None:
        is_told = answer.node.driver_state in (DriverState.CHANGING, DriverState.NONE)
        why = replace(answer.why, no_gpus="") if is_told else answer.why
        parts += _why(answer, why, now)
    if answer.unmanaged:
        parts.append(fact("because", answer.unmanaged))
    parts += _facts(answer, now)
    if wide:
        parts += (fact(key, value) for key, value in answer.labels.items())
    if answer.why is not None:
        steps = _history(answer.why, now)
        if not wide:
            steps = [_without_told(each, answer) for each in steps]
        parts += _last("history", steps, 0 if wide else _LAST_STEPS)
    parts += _listed("conditions", _shown_conditions(answer, wide), now)
    if wide:
        told = (replace(each, text=_told(each)) for each in answer.events)
        parts += _listed("Events", tuple(told), now)
    else:
        briefs = [f"{_at(each, now)} {_brief(each)}".lstrip() for each in answer.events]
        events = [_without_told(each, answer) for each in briefs]
        parts += _last("Events", events, _LAST_EVENTS)
    return Group(*parts, Text(""), *sources_view(answer.sources))


def _history(why: WhyAnswer, now: float) -> list[str]:
    """Return what happened to the node, each with its time, as far as the scheduler says it.

    A request and the step that it leads to have one text, and are one line.
    """
    before = ("", *why.history)
    is_new = [text != last for last, text in zip(before, why.history, strict=False)]
    times = [f"{moment(at, now)} " for at in why.history_at]
    if len(times) != len(is_new):
        times = [""] * len(is_new)
    steps = zip(times, why.history, strict=True)
    return [f"{at}{text}" for (at, text), new in zip(steps, is_new, strict=True) if new]


def _without_told(text: str, answer: NodeAnswer) -> str:
    """Return a text without what the lines above have in full: the reason and the cause."""
    wait = answer.why.wait if answer.why is not None else None
    if wait is not None and wait.who:
        text = text.replace(f". Can be ended by: {wait.who}", "")
    for each in (wait.detail if wait is not None else "", answer.node.cause):
        if len(each) > len(_ABOVE):
            text = text.replace(each, _ABOVE)
    return text


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
        return f"{name} is in flight: {why.state or 'no state'}"
    if answer.unmanaged:
        return f"{name} is not managed by Sluice"
    return f"{name}: {answer.node.state or 'no upgrade state'}"


def _why(answer: NodeAnswer, why: WhyAnswer, now: float) -> Iterator[RenderableType]:
    wait = why.wait
    if wait is not None:
        author = answer.skip_set if _is_skip_told(answer) else None
        yield fact("because", wait.detail + ("" if author is None else f", set by {author.name}"))
        yield fact("since", f"{duration(now - wait.since)} ago ({clock_time(wait.since)} UTC)")
        if wait.until is not None:
            ends = f"in {duration(wait.until - now)} ({clock_time(wait.until)} UTC)"
            yield fact("ends at the latest", ends)
        if wait.who:
            name = "ended by" if ends_by_itself(wait.who) else "can be ended by"
            yield fact(name, _people(wait.who, answer.ended_by))
    if why.no_gpus:
        yield fact("containers lack GPUs", why.no_gpus)
    if why.container_runtime:
        yield fact("container runtime", why.container_runtime)
    if why.next_kernel:
        yield fact("next kernel", why.next_kernel)
    if why.clocks:
        yield fact("clocks", why.clocks)
    for each in why.diagnoses:
        yield fact(f"{'note' if each in NOTES else 'diagnosis'} {each.value}", describe(each))
    if why.pool:
        yield fact("pool", why.pool)


def _people(who: str, command: str) -> str:
    """Return who can end a wait, with the command to paste in place of the field that it writes."""
    if not command:
        return who
    for phrase in (*_BY_FIELD, *((BY_RETRY,) if "retry" in command else ())):
        if phrase in who:
            return who.replace(phrase, f"by `{command}`")
    return f"{who}; `{command}`"


def _facts(answer: NodeAnswer, now: float) -> Iterator[RenderableType]:
    node = answer.node
    if node.pool and answer.why is None:
        yield fact("pool", node.pool)
    since = "" if node.since is None else f", for {duration(now - node.since)}"
    yield fact("state", f"{node.state or 'none'}{since}")
    if driver := driver_text(node):
        wanted = f"; its pool wants {node.wanted}" if node.wanted else ""
        yield fact("driver", f"{driver}{wanted}")
    if answer.ready is False:
        yield fact("kubelet", "the Node is not Ready")
    if node.held is not None and not _is_lease_told(answer):
        yield fact("lease", describe_lease(node.held, now=now))
    if answer.cordoned:
        yield fact(
            "cordon", _signed("no new pods are scheduled on the node", answer.cordon_set, now)
        )
    if answer.skip_set is not None and not _is_skip_told(answer):
        yield fact("skip label", _signed("no upgrade starts on the node", answer.skip_set, now))
    untold = replace(
        node,
        cause="" if _is_cause_told(answer) else node.cause,
        skipped=node.skipped and answer.skip_set is None and not _is_skip_told(answer),
    )
    if note := node_note(untold):
        yield fact("note", note)


def _is_lease_told(answer: NodeAnswer) -> bool:
    """Whether the wait is for a person's lease: its detail says who has the node, and why."""
    wait, held = answer.why.wait if answer.why is not None else None, answer.node.held
    if held is None or held.waits or wait is None:
        return False
    return f"lease return {held.node}" in wait.who


def _is_skip_told(answer: NodeAnswer) -> bool:
    """Whether the wait is for the skip label: its line of who can end it has the command."""
    wait = answer.why.wait if answer.why is not None else None
    return wait is not None and f"unskip {answer.node.name}" in wait.who


def _is_cause_told(answer: NodeAnswer) -> bool:
    wait = answer.why.wait if answer.why is not None else None
    return wait is not None and answer.node.cause in wait.detail


def _signed(means: str, author: Author | None, now: float) -> str:
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
