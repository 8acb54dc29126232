"""The handlers that driver agents report, as the cluster role keeps them."""

from libs.bus.port import StoredMessage
from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import ContainerRuntime, Facts, NextKernel
from libs.contracts.identities import Writer
from libs.contracts.message import encode
from libs.contracts.reports import Evidence, Report, ValidationStep
from libs.contracts.subjects import State
from services.driver.cluster.handlers import MAX_HANDLERS, ReportedHandlers
from tests.unit.manual_clock import ManualClock


class Stream:
    """The messages of STATE, for one reader."""

    def __init__(self) -> None:
        self.handlers = ReportedHandlers(ManualClock())
        self.changes = 0
        self.handlers.on_change(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def send(
        self, node: str, *names: str, component: Writer = Writer.DRIVER, why: str = ""
    ) -> None:
        runtime = ContainerRuntime(name="containerd", handlers=names, why=why)
        body = Facts(container_runtime=runtime)
        report = Report.of(
            body, node=node, node_uid=f"uid-{node}", boot_id="b", component=component, at=1.0
        )
        self.send_data(node, encode(report), component)

    def send_evidence(
        self, node: str, *steps: ValidationStep, notes: tuple[Diagnosis, ...]
    ) -> None:
        body = Evidence(
            epoch=1, token=1, op=1, passed=False, label="", node_uid="x", boot_id="x", kernel="k",
            steps=steps, notes=notes,
        )  # fmt: skip
        writer = Writer.VALIDATOR
        report = Report.of(
            body, node=node, node_uid=f"uid-{node}", boot_id="b", component=writer, at=1.0
        )
        subject = State(cluster="default", node=node, component=writer, kind="evidence")
        message = StoredMessage(subject=str(subject), data=encode(report), sequence=1, time=0.0)
        self.handlers.received(message)

    def send_data(self, node: str, data: bytes, component: Writer = Writer.DRIVER) -> None:
        subject = State(cluster="default", node=node, component=component, kind="facts")
        self.handlers.received(StoredMessage(subject=str(subject), data=data, sequence=1, time=0.0))


def test_the_facts_of_driver_agents_count() -> None:
    stream = Stream()
    stream.send("a", "nvidia")
    stream.send("a", "nvidia")
    stream.send("b")
    stream.send("c", "nvidia", component=Writer.DISCOVERY)
    assert stream.handlers.by_node() == {"uid-a": {"nvidia"}, "uid-b": set()}
    assert stream.changes == 2
    stream.send("a", *(f"h-{number}" for number in range(100)))
    assert len(stream.handlers.by_node()["uid-a"]) == MAX_HANDLERS


def test_what_was_reported_is_kept_until_it_is_not_repeated() -> None:
    stream = Stream()
    stream.send("a", "nvidia")
    stream.send("b", "nvidia")
    stream.send("c", "nvidia")
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
    facts = Facts(obstacle=Diagnosis.NOUVEAU)
    report = Report.of(
        facts, node="a", node_uid="uid-a", boot_id="b", component=Writer.DRIVER, at=1.0
    )
    stream.send_data("a", encode(report))
    step = ValidationStep(name="driver", passed=False, diagnosis=Diagnosis.NOUVEAU)
    notes = (Diagnosis.IOMMU, Diagnosis("unheard-of"))
    stream.send_evidence("a", step, notes=notes)
    assert stream.handlers.diagnoses() == {("uid-a", "b"): (Diagnosis.NOUVEAU, Diagnosis.IOMMU)}
    assert stream.handlers.by_node() == {"uid-a": set()}
    stream.handlers.began(False)
    stream.handlers.caught_up()
    assert stream.handlers.diagnoses() == {}


def test_the_next_kernel_is_that_of_the_discovery_agent_in_its_boot() -> None:
    stream, kernel = Stream(), NextKernel(release="6.8.0-50-generic")
    for writer, body in (
        (Writer.DISCOVERY, Facts(next_kernel=kernel)),
        (Writer.DRIVER, Facts(next_kernel=NextKernel(release="other"))),
    ):
        report = Report.of(body, node="a", node_uid="uid-a", boot_id="b", component=writer, at=1.0)
        stream.send_data("a", encode(report), writer)
    assert stream.handlers.next_kernels() == {("uid-a", "b"): kernel}
    assert stream.handlers.by_node() == {"uid-a": frozenset()}
    gone = Report.of(
        Facts(next_kernel=NextKernel()),
        node="a", node_uid="uid-a", boot_id="c", component=Writer.DISCOVERY, at=2.0,
    )  # fmt: skip
    stream.send_data("a", encode(gone), Writer.DISCOVERY)
    assert stream.handlers.next_kernels() == {}


def test_facts_settle_what_the_evidence_names_and_is_so_no_longer() -> None:
    stream = Stream()
    stream.send_evidence("a", notes=(Diagnosis.RUNTIME_HANDLER, Diagnosis.ACS))
    assert stream.handlers.diagnoses() == {
        ("uid-a", "b"): (Diagnosis.RUNTIME_HANDLER, Diagnosis.ACS)
    }
    stream.send("a", "nvidia", why="it is not restarted yet")
    assert Diagnosis.RUNTIME_HANDLER in stream.handlers.diagnoses()["uid-a", "b"]
    stream.send("a", "nvidia")
    assert stream.handlers.diagnoses() == {("uid-a", "b"): (Diagnosis.ACS,)}
