"""What the API server recorded, as lines of a campaign's timeline."""

from collections.abc import Iterable, Iterator
from typing import Final

from libs.contracts.journal import Revision
from libs.contracts.node import DRIVER_LABEL, MIG_CONFIG_LABEL, MIG_STATE_LABEL, STATE_LABEL
from libs.contracts.paths import label_path

_QUOTES: Final = '"]'
_SHOWN: Final = (
    *map(label_path, (STATE_LABEL, DRIVER_LABEL, MIG_CONFIG_LABEL, MIG_STATE_LABEL)),
    "spec.unschedulable",
    "status.nodeInfo.bootID",
)


def node_changes(revisions: Iterable[Revision]) -> Iterator[tuple[float, str]]:
    """Return relevant changes of Nodes as lines."""
    for revision in revisions:
        if revision.kind != "Node" or revision.code >= 300:
            continue
        changes = [
            f"{path.rpartition('/')[2].rstrip(_QUOTES)}={value}"
            for path, (_, value) in revision.changed.items()
            if path.endswith(_SHOWN)
        ]
        if changes:
            user = revision.user.rpartition(":")[2]
            yield revision.time, f"{user} writes {revision.name}: {', '.join(changes)}"
