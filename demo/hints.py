"""What a viewer may try meanwhile: commands and pages, with the addresses of this run."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from demo.admin import USER
from demo.environment import SERVICES, DemoEnvironment
from demo.fleet import Fleet
from demo.paths import NAMESPACE
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from libs.contracts.subjects import EVENTS
from libs.testing.realkube.binaries import find_binaries

_SHOWN: Final = 1
"""How many machines' own pages are listed; those of the others are in the page of all."""


def hint_lines(up: DemoEnvironment, fleet: Fleet) -> Iterator[str]:
    nodes = fleet.nodes
    kubectl, comment = _kubectl()
    yield "\nTo look around, paste any of these lines into another terminal:"
    yield f"  export KUBECONFIG={up.paths.kubeconfig(USER)}{comment}"
    yield from _sluice(up, nodes[0], fleet.pools[0].key)
    yield f"  {kubectl} get nodes -w -L {STATE_LABEL}  # the upgrade state of each node"
    yield f"  {kubectl} get rollouts  # the progress of the fleet"
    yield f"  {kubectl} describe node {nodes[0]}  # its labels and events"
    # A real API server reads logs from a kubelet's server, which simulated kubelets lack.
    if up.plane is None:
        yield (
            f"  {kubectl} --namespace {NAMESPACE} logs --prefix --selector {DRIVER_LABEL}"
            "  # what the drivers write; other containers write no log"
        )
    yield _nats(up)
    yield "Metrics, for curl or Prometheus:"
    for service in SERVICES:
        yield f"  {service.writer:<17} {up.processes.processes[service.writer].metrics_url}"
    all_gpus = up.processes.processes[Writer.TELEMETRY_CLUSTER].exporter_url
    yield f"  {'GPUs of all nodes':<17} {all_gpus}"
    for node in nodes[:_SHOWN]:
        yield f"  {f'GPUs of {node}':<17} {up.pages_of_gpus(node)}"


def _sluice(up: DemoEnvironment, node: str, pool: str) -> Iterator[str]:
    key = up.paths.key(Identity(writer=Writer.CTL))
    yield f"  export SLUICE_NATS_URL={up.nats.url} SLUICE_NATS_NKEY_SEED_FILE={key}"
    command = Path(sys.executable).with_name("sluice")
    yield f"  {command} status  # the fleet, and the nodes that are not done"
    page = up.processes.processes[Writer.TELEMETRY_CLUSTER].exporter_url
    yield f"  {command} watch --telemetry {page}  # the same, as it happens"
    yield f"  {command} why {node}  # what this node waits for"
    yield f"  {command} plan {pool} --version 590.48.01  # when each node would start and end"
    yield f"  {command} upgrade pause {pool}  # start no more nodes, until: upgrade resume"
    yield f"  {command} events --since 5m  # what changed; who set, took or released what"
    yield f"  {command} audit --audit-log {up.audit_log}  # did Sluice keep its promises"


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
