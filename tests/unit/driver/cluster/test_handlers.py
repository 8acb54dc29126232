"""The handlers that driver agents report, as the cluster role keeps them."""

from typing import Any

from libs.bus.port import StoredMessage
from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import ContainerRuntime, Facts, NextKernel
from libs.contracts.identities import Writer
from libs.contracts.message import encode
from libs.contracts.reports import Evidence, Report, StateBody, StateKind, ValidationStep
from libs.contracts.subjects import State
from services.driver.cluster.handlers import MAX_HANDLERS, ReportedHandlers
from tests.builders.manual_clock import ManualClock

KERNEL = NextKernel(release="6.8.0-50-generic")


def evidence(*steps: ValidationStep, notes: tuple[Diagnosis, ...]) -> Evidence:
    fields: dict[str, Any] = {"epoch": 1, "token": 1, "op": 1, "passed": False, "label": ""}
    fields |= {"node_uid": "x", "boot_id": "x", "kernel": "k"}
    return Evidence(**fields, steps=steps, notes=notes)


class Stream:
    """The messages of STATE, for one reader."""

    def __init__(self) -> None:
        self.handlers = ReportedHandlers(ManualClock())
        self.changes = 0
        self.handlers.on_change(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def send(self, node: str, *names: str, writer: Writer = Writer.DRIVER, why: str = "") -> None:
        """Report the handlers of a container runtime."""
        runtime = ContainerRuntime(name="containerd", handlers=names, why=why)
        self.report(node, Facts(container_runtime=runtime), writer)

    def report(
        self, node: str, body: StateBody, writer: Writer = Writer.DRIVER, *, boot: str = "b"
    ) -> None:
        named: dict[str, Any] = {"node": node, "node_uid": f"uid-{node}", "boot_id": boot}
        kind = StateKind.EVIDENCE if isinstance(body, Evidence) else StateKind.FACTS
        self.send_data(
            node, encode(Report.of(body, **named, component=writer, at=1.0)), writer, kind
        )

    def send_data(
        self,
        node: str,
        data: bytes,
        writer: Writer = Writer.DRIVER,
        kind: StateKind = StateKind.FACTS,
    ) -> None:
        subject = State(cluster="default", node=node, component=writer, kind=kind)
        self.handlers.received(StoredMessage(subject=str(subject), data=data, sequence=1, time=0.0))


def test_the_facts_of_driver_agents_count() -> None:
    stream = Stream()
    stream.send("a", "nvidia")
    stream.send("a", "nvidia")
    stream.send("b")
    stream.send("c", "nvidia", writer=Writer.DISCOVERY)
    assert stream.handlers.by_node() == {"uid-a": {"nvidia"}, "uid-b": set()}
    assert stream.changes == 2
    stream.send("a", *(f"h-{number}" for number in range(100)))
    assert len(stream.handlers.by_node()["uid-a"]) == MAX_HANDLERS


def test_what_was_reported_is_kept_until_it_is_not_repeated() -> None:
    stream = Stream()
    for name in "abc":
        stream.send(name, "nvidia")
    stream.handlers.lost()
    stream.handlers.began(False)
    stream.send_data("b", b"{")
    stream.send("a", "nvidia")
    assert set(stream.handlers.by_node()) == {"uid-a", "uid-b", "uid-c"}
    stream.handlers.caught_up()
    assert set(stream.handlers.by_node()) == {"uid-a", "uid-b"}


def test_a_stream_created_again_takes_nothing_back() -> None:
    stream = Stream()
    stream.send("a", "nvidia")
    stream.handlers.began(True)
    stream.handlers.caught_up()
    assert set(stream.handlers.by_node()) == {"uid-a"}


def test_diagnoses_of_evidence_and_facts_count_each_once_by_boot() -> None:
    stream = Stream()
    stream.send("a", "nvidia")
    assert stream.handlers.diagnoses() == {}
    stream.report("a", Facts(obstacle=Diagnosis.NOUVEAU))
    step = ValidationStep(name="driver", passed=False, diagnosis=Diagnosis.NOUVEAU)
    notes = (Diagnosis.IOMMU, Diagnosis("unheard-of"))
    stream.report("a", evidence(step, notes=notes), Writer.VALIDATOR)
    assert stream.handlers.diagnoses() == {("uid-a", "b"): (Diagnosis.NOUVEAU, Diagnosis.IOMMU)}
    assert stream.handlers.by_node() == {"uid-a": set()}
    stream.handlers.began(False)
    stream.handlers.caught_up()
    assert stream.handlers.diagnoses() == {}


def test_the_next_kernel_is_that_of_the_discovery_agent_in_its_boot() -> None:
    stream = Stream()
    stream.report("a", Facts(next_kernel=KERNEL), Writer.DISCOVERY)
    stream.report("a", Facts(next_kernel=NextKernel(release="other")))
    assert stream.handlers.next_kernels() == {("uid-a", "b"): KERNEL}
    assert stream.handlers.by_node() == {"uid-a": frozenset()}
    stream.report("a", Facts(next_kernel=NextKernel()), Writer.DISCOVERY, boot="c")
    assert stream.handlers.next_kernels() == {}


def test_facts_settle_what_the_evidence_names_and_is_so_no_longer() -> None:
    stream = Stream()
    both = (Diagnosis.RUNTIME_HANDLER, Diagnosis.ACS)
    stream.report("a", evidence(notes=both), Writer.VALIDATOR)
    assert stream.handlers.diagnoses() == {("uid-a", "b"): both}
    stream.send("a", "nvidia", why="it is not restarted yet")
    assert Diagnosis.RUNTIME_HANDLER in stream.handlers.diagnoses()["uid-a", "b"]
    stream.send("a", "nvidia")
    assert stream.handlers.diagnoses() == {("uid-a", "b"): (Diagnosis.ACS,)}
