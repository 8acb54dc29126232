"""Events as lines of text for newcomers. Pure.

Waits are printed only when they last. Digests are replaced by the versions that they stand for.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from demo.admin import USER
from demo.environment import SERVICES, DemoEnvironment
from libs.contracts import subjects
from libs.contracts.events import CommandEvent, Event, FactsEvent, RolloutEvent, WaitEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.node import STATE_LABEL
from libs.contracts.subjects import EVENTS
from libs.testing.realkube.binaries import find_binaries

WAIT_SHOWN_AFTER = 1.0
"""Seconds after which a wait is printed."""

SKIPPED_EVENTS = (CommandEvent, FactsEvent)
"""Events that are not printed: a dozen for each node, and steps and waits cover them."""

_DIGEST = re.compile(r"\b[0-9a-f]{32}\b")
_SHORT_DIGEST = 8


class VersionNames:
    """The driver versions that targets and driver labels stand for."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def learn(self, digest: str, version: str) -> None:
        self._versions[digest] = version

    def guess(self, digest: str, version: str) -> None:
        """Set the version of a digest, unless its version is known."""
        if digest:
            self._versions.setdefault(digest, version)

    def replace_digests(self, text: str) -> str:
        """Replace digests by versions, and shorten unknown ones."""
        return _DIGEST.sub(
            lambda match: self._versions.get(match[0], match[0][:_SHORT_DIGEST]), text
        )


class EventFormatter:
    """Format events as lines with the seconds since the start of the demo."""

    def __init__(self, names: VersionNames, *, began: float) -> None:
        self._names = names
        self._began = began
        self.wanted = ""
        """The version in the policy: a new target is assumed to stand for it."""
        self._pending_waits: dict[str, tuple[Event, WaitEvent]] = {}
        """By node: a wait that may end before it is printed."""

    def lines_for(self, event: Event) -> Iterator[str]:
        """Return the lines to print at once, and keep waits for `overdue_lines`."""
        try:
            body = event.open()
        except MalformedMessage:
            return
        if isinstance(body, SKIPPED_EVENTS):
            return
        if isinstance(body, RolloutEvent):
            self._names.guess(body.target, self.wanted)
        if not isinstance(body, WaitEvent):
            yield self._event_line(event, at=event.at)
        elif body.code is None:
            self._pending_waits.pop(event.node, None)
        else:
            self._pending_waits[event.node] = event, body

    def overdue_lines(self, now: float) -> Iterator[str]:
        """Return the waits that have lasted, once each."""
        for node, (event, wait) in list(self._pending_waits.items()):
            if now - event.at >= WAIT_SHOWN_AFTER:
                del self._pending_waits[node]
                yield self._event_line(event, at=now, wait=wait)

    def line(self, actor: str, text: str, *, at: float) -> str:
        printable = "".join(
            each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text
        )
        return f"{max(0.0, at - self._began):6.1f} s  {actor:<17} {printable}"

    def _event_line(self, event: Event, *, at: float, wait: WaitEvent | None = None) -> str:
        message = event.message if wait is None else wait.detail
        node = event.node if wait is not None or event.node not in event.message else ""
        text = ": ".join(filter(None, (node, message)))
        return self.line(event.writer, self._names.replace_digests(text), at=at)


def hint_lines(up: DemoEnvironment, nodes: Sequence[str]) -> Iterator[str]:
    kubectl, comment = _kubectl()
    yield "\nTo look around, paste any of these lines into another terminal:"
    yield f"  export KUBECONFIG={up.paths.kubeconfig(USER)}{comment}"
    yield from _sluice(up, nodes[0])
    yield f"  {kubectl} get nodes -w -L {STATE_LABEL}  # the upgrade state of each node"
    yield f"  {kubectl} get rollouts  # the progress of the fleet"
    yield f"  {kubectl} describe node {nodes[0]}  # its labels and events"
    yield _nats(up)
    yield "Metrics, for curl or Prometheus:"
    for service in SERVICES:
        yield f"  {service.writer:<17} {up.processes.processes[service.writer].metrics_url}"
    fleet = up.processes.processes[Writer.TELEMETRY_CLUSTER]
    yield f"  {'GPUs of all nodes':<17} {fleet.exporter_url}"
    for node in nodes:
        yield f"  {f'GPUs of {node}':<17} {up.processes.processes[node].exporter_url}"


def _sluice(up: DemoEnvironment, node: str) -> Iterator[str]:
    key = up.paths.key(Identity(writer=Writer.CTL))
    yield f"  export SLUICE_NATS_URL={up.nats.url} SLUICE_NATS_NKEY_SEED_FILE={key}"
    command = Path(sys.executable).with_name("sluice")
    yield f"  {command} status  # the fleet, and the nodes that are not done"
    page = up.processes.processes[Writer.TELEMETRY_CLUSTER].exporter_url
    yield f"  {command} watch --telemetry {page}  # the same, as it happens"
    yield f"  {command} why {node}  # what this node waits for"
    yield f"  {command} plan --version 590.48.01  # when each node would start and end"
    yield f"  {command} upgrade pause  # start no more nodes, until: upgrade resume"


def _nats(up: DemoEnvironment) -> str:
    identity = Identity(writer=Writer.CTL)
    subject = subjects.Event(
        cluster=identity.cluster, node=subjects.ANY, writer=subjects.ANY, kind=subjects.ANY
    )
    return (
        f"  nats --server {up.nats.url} --nkey {up.paths.key(identity)}"
        f" --inbox-prefix={subjects.inbox(identity)} sub --stream {EVENTS.name} --all '{subject}'"
        "  # all events"
    )


def _kubectl() -> tuple[str, str]:
    """Return the command for kubectl, and a comment if kubectl is missing."""
    if shutil.which("kubectl"):
        return "kubectl", ""
    if (binaries := find_binaries(os.environ).binaries) is not None:
        return str(binaries.kubectl), ""
    return "kubectl", "  # kubectl is not on your PATH: install any recent version"


_MIB = 1024


class ProcessCost(msgspec.Struct, frozen=True):
    """The memory and CPU of a process."""

    memory_mib: float
    """Proportional set size: shared pages are divided among the processes that share them."""
    cpu_seconds: float


def process_cost(pid: int, *, proc: Path = Path("/proc")) -> ProcessCost:
    """Return the cost of a process up to now."""
    rollup = (proc / str(pid) / "smaps_rollup").read_text()
    pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    # The process name may contain blanks and brackets: the fields begin after the last bracket.
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, fields[11:15]))  # its own, and those of its children that have ended
    return ProcessCost(int(pss.split()[1]) / _MIB, ticks / os.sysconf("SC_CLK_TCK"))


def total_cost(pid: int, *, proc: Path = Path("/proc")) -> ProcessCost:
    """Return the cost of a process and its children."""
    costs = [process_cost(pid, proc=proc)]
    for file in (proc / str(pid) / "task").glob("*/children"):
        for child in file.read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):  # it ends meanwhile
                costs.append(process_cost(int(child), proc=proc))
    memory = sum(cost.memory_mib for cost in costs)
    return ProcessCost(memory, sum(cost.cpu_seconds for cost in costs))


def cost_lines(costs: Mapping[str, ProcessCost], *, seconds: float) -> Iterator[str]:
    """Return a line for each process, and one for their sum."""
    for name, cost in costs.items():
        yield f"  {name:<17} {cost.memory_mib:6.0f} MiB  {cost.cpu_seconds:6.1f} s of CPU"
    memory = sum((cost.memory_mib for cost in costs.values()), 0.0)
    cpu = sum((cost.cpu_seconds for cost in costs.values()), 0.0)
    yield (
        f"  {'total':<17} {memory:6.0f} MiB  {cpu:6.1f} s of CPU"
        f" in {seconds:.0f} s: {cpu / seconds:.2f} of a core"
    )
