"""What Sluice and people write on the Nodes of a fleet, for tests of those who read it."""

from libs.contracts.message import encode
from libs.contracts.node import (
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    RECORD_ANNOTATION,
    NodeLease,
    NodeRecord,
)


def written(
    record: NodeRecord | None = None,
    lease: NodeLease | str | None = None,
    claim: NodeLease | str | None = None,
) -> dict[str, str]:
    """Return these as the annotations of a Node; a text as it stands there."""
    values = {RECORD_ANNOTATION: record, LEASE_ANNOTATION: lease, LEASE_CLAIM_ANNOTATION: claim}
    return {
        key: value if isinstance(value, str) else encode(value).decode()
        for key, value in values.items()
        if value is not None
    }
