"""What `sluice doctor` says in a pod: in one line what is ok, and before that what is not."""

import re
from typing import Final

_OK: Final = re.compile(r"^ok +(\d+) checks \(-o wide\): (.+(?:\n +.+)*)", re.MULTILINE)
"""The line, and its rest where the width of the pod's log breaks it."""

FOUND_OK: Final = {
    "Kubernetes",
    "definitions",
    "agents and drivers",
    "ClusterPolicy cluster-policy",
    "nodes with GPUs",
    "NATS",
    "scheduler",
    "clocks",
}
"""What is ok wherever Sluice is installed; NATS is where the pod could sign in."""


def ok_checks(said: str) -> set[str]:
    """Return what is ok; fail if there is a fault. Helm quotes what a pod has logged."""
    text = said.replace("\\n", "\n").replace('msg="', "\n").replace('"', "")
    found = _OK.search(text)
    assert found is not None, text
    assert not re.search(r"^fault", text, re.MULTILINE), text
    names = " ".join(found[2].split()).split(", ")
    assert len(names) == int(found[1]), text
    return {*names}
