"""Who is said to have cordoned a node, or to have it skipped."""

import msgspec
import pytest
from msgspec.structs import replace

from libs.contracts.node import SKIP_LABEL
from libs.ctl.cordons import cordoned_by, skipped_by
from libs.kube.authors import Author
from libs.kube.views import ManagedFields, Metadata, Node, NodeSpec

FIRST, LATER = "2027-01-15T12:00:00Z", "2027-01-15T13:00:00Z"
NOON, ONE = 1_800_014_400.0, 1_800_018_000.0
BY_KUBECTL = "somebody with kubectl"
CORDON = '{"f:spec":{"f:unschedulable":{}}}'


def entry(manager: str, time: str, fields: str = CORDON, **changes: str) -> ManagedFields:
    raw = msgspec.Raw(fields.encode())
    return ManagedFields(manager=manager, time=time, fields_v1=raw, **changes)


def by(*entries: ManagedFields, unschedulable: bool = True) -> Author | None:
    metadata = Metadata(name="node-1", managed_fields=entries)
    return cordoned_by(Node(metadata=metadata, spec=NodeSpec(unschedulable=unschedulable)))


@pytest.mark.parametrize(
    ("managers", "who"),
    [
        ({"kubectl": FIRST}, Author(name=BY_KUBECTL, at=NOON)),
        ({"kubectl": FIRST, "sluice-scheduler": LATER}, Author(name=BY_KUBECTL, at=NOON)),
        ({"sluice-scheduler": LATER}, Author(name="Sluice")),
        ({"autoscaler": LATER, "kubectl": FIRST}, Author(name="somebody with autoscaler", at=ONE)),
        ({"kubectl": ""}, Author(name=BY_KUBECTL)),
    ],
)
def test_the_last_other_program_comes_before_sluice(managers: dict[str, str], who: Author) -> None:
    assert by(*(entry(name, at) for name, at in managers.items())) == who


def test_nobody_is_named_without_a_record_or_a_cordon() -> None:
    assert by() is None
    assert by(entry("kubectl", FIRST), unschedulable=False) is None
    assert by(entry("kubelet", FIRST, subresource="status")) is None
    assert by(entry("kubectl-label", FIRST, '{"f:metadata":{"f:labels":{}}}')) is None
    assert by(entry("odd", FIRST, "[]")) is None


def test_the_writer_of_the_skip_label_is_named_while_it_skips_the_node() -> None:
    owned = f'{{"f:metadata":{{"f:labels":{{"f:{SKIP_LABEL}":{{}}}}}}}}'
    metadata = Metadata(
        name="node-1",
        labels={SKIP_LABEL: "true"},
        managed_fields=(entry("kubectl", FIRST), entry("kubectl-label", LATER, owned)),
    )
    assert skipped_by(Node(metadata=metadata)) == Author(name=BY_KUBECTL, at=ONE)
    assert skipped_by(Node(metadata=replace(metadata, labels={}))) is None
    assert skipped_by(Node(metadata=replace(metadata, managed_fields=()))) is None
