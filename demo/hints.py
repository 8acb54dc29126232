"""Commands to look around while the demo runs, ready to be pasted into another terminal.

They need only kubectl, any NATS client, and a browser or curl.
"""

import os
import shutil
from collections.abc import Iterator, Sequence

from demo.admin import USER
from demo.environment import SERVICES, DemoEnvironment
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.node import STATE_LABEL
from libs.contracts.subjects import EVENTS
from libs.testing.realkube.binaries import find_binaries


def lines(up: DemoEnvironment, nodes: Sequence[str]) -> Iterator[str]:
    kubectl, note = _kubectl()
    yield "\nTo look around, paste any of these lines into another terminal:"
    yield f"  export KUBECONFIG={up.paths.kubeconfig(USER)}{note}"
    yield f"  {kubectl} get nodes -w -L {STATE_LABEL}  # the upgrade state of each node"
    yield f"  {kubectl} get rollouts  # the progress of the fleet"
    yield f"  {kubectl} describe node {nodes[0]}  # its labels and events"
    yield _nats(up)
    yield "Metrics, for curl or Prometheus:"
    for service in SERVICES:
        yield f"  {service.writer:<17} {up.processes.processes[service.writer].metrics_url}"
    for node in nodes:
        yield f"  {f'GPUs of {node}':<17} {up.processes.processes[node].exporter_url}"


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
    """Return the command for kubectl here, and a comment where it is missing."""
    if shutil.which("kubectl"):
        return "kubectl", ""
    if (found := find_binaries(os.environ).binaries) is not None:
        return str(found.kubectl), ""
    return "kubectl", "  # kubectl is not on your PATH: install any recent version"
