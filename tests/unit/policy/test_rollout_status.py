"""The status of a Rollout against the schema of its CRD."""

from typing import Any

import msgspec

from libs.contracts.rollout import (
    Counts,
    InFlight,
    RolloutPhase,
    RolloutStatus,
    TargetRecord,
)
from tests.unit.policy.crd_schemas import admit, served_schema
from tests.unit.policy.fields import minimal_object

STATUS = RolloutStatus(
    target="4d5",
    phase=RolloutPhase.HALTED,
    because="2 of 40 nodes failed",
    epoch=7,
    base=40,
    last_good="3c4",
    frozen_since=1700000000.5,
    frozen_seconds=12.5,
    in_flight={"uid-1": InFlight(node="a", token=3, target="4d5", since=1700000000.25)},
    targets={
        "4d5": TargetRecord(
            threshold=2,
            accepted=1,
            failed=("uid-2", "uid-3"),
            validated=("uid-4",),
            proven=True,
            proven_at=1700000000.75,
            complete=True,
            halted_because="too many",
        ),
        "3c4": TargetRecord(threshold=1),
    },
    counts=Counts(
        total=40,
        done=1,
        in_flight=2,
        failed=3,
        skipped=4,
        excluded=5,
        waiting=6,
        unavailable=7,
        limit=8,
    ),
    observed_generation=2,
)


def test_the_crd_schema_keeps_the_whole_status() -> None:
    for status in (STATUS, RolloutStatus()):
        written: Any = msgspec.json.decode(msgspec.json.encode(status))
        obj = minimal_object("Rollout") | {"status": written}
        assert served_schema("Rollout").prune(obj)["status"] == written
        kept = admit(obj)["status"]
        assert msgspec.convert(kept, RolloutStatus) == status
