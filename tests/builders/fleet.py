"""What Sluice and people write on the Nodes of a fleet, for tests of those who read it."""

from typing import Any

from libs.contracts.message import encode
from libs.contracts.node import (
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    RECORD_ANNOTATION,
    VALIDATION_POD_ANNOTATION,
    NodeLease,
    NodeRecord,
    ValidationPod,
)


def record(**changed: Any) -> NodeRecord:
    """Return the record of the Node with uid `u`, under its first lease."""
    fields: dict[str, Any] = {"node_uid": "u", "epoch": 1, "token": 1}
    return NodeRecord(**(fields | changed))


def written(
    record: NodeRecord | str | None = None,
    lease: NodeLease | str | None = None,
    claim: NodeLease | str | None = None,
    validation_pod: ValidationPod | None = None,
) -> dict[str, str]:
    """Return these as the annotations of a Node; a text as it stands there."""
    values = {
        RECORD_ANNOTATION: record,
        LEASE_ANNOTATION: lease,
        LEASE_CLAIM_ANNOTATION: claim,
        VALIDATION_POD_ANNOTATION: validation_pod,
    }
    return {
        key: value if isinstance(value, str) else encode(value).decode()
        for key, value in values.items()
        if value is not None
    }
