"""What a viewer may try meanwhile: commands and pages, with the addresses of this run.

A file has the settings for another shell, so that a viewer pastes one line, which stays short.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from demo.admin import USER
from demo.environment import SERVICES, DemoEnvironment
from demo.fleet import Fleet
from demo.paths import NAMESPACE, DemoPaths
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from libs.contracts.subjects import EVENTS
from libs.testing.realkube.binaries import find_binaries

_SHOWN: Final = 1
"""How many machines' own pages are listed; those of the others are in the page of all."""


def write_environment(up: DemoEnvironment) -> None:
    """Write the settings and programs that another shell needs on this run."""
    settings = {
        "KUBECONFIG": str(up.paths.kubeconfig(USER)),
        "SLUICE_NATS_URL": up.nats.url,
    }
    link_programs(up.paths, os.environ)
    up.paths.environment.write_text(environment_text(settings, up.paths.programs))


def environment_text(settings: Mapping[str, str], programs: Path) -> str:
    """Return the lines for a shell: the settings, and the programs first on its PATH."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in settings.items()]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(programs))}:"$PATH"', ""])


def link_programs(paths: DemoPaths, environ: Mapping[str, str]) -> None:
    """Link the command, and kubectl where only `make kube` has brought it."""
    for name in ("sluice", "kubectl-sluice"):
        (paths.programs / name).symlink_to(Path(sys.executable).with_name(name))
    found = find_binaries(environ).binaries
    if shutil.which("kubectl", path=environ.get("PATH")) is None and found is not None:
        (paths.programs / "kubectl").symlink_to(found.kubectl)


def entry_line(paths: DemoPaths) -> str:
    """Return the first line to type into another shell."""
    return f". {shlex.quote(str(paths.environment))}"


def hint_lines(up: DemoEnvironment, fleet: Fleet) -> Iterator[str]:
    nodes = fleet.nodes
    yield "To look around, begin in another shell with this line:"
    yield f"  {entry_line(up.paths)}"
    yield "Then try any of these:"
    yield from _sluice(up, nodes[0], fleet.pools[0].key)
    missing = "" if _has_kubectl(up.paths) else "; install any recent kubectl first"
    yield f"  kubectl get nodes -w -L {STATE_LABEL}  # the upgrade state of each node{missing}"
    yield "  kubectl get rollouts  # the progress of the fleet"
    yield f"  kubectl describe node {nodes[0]}  # its labels and events"
    # A real API server reads logs from a kubelet's server, which simulated kubelets lack.
    if up.plane is None:
        yield (
            f"  kubectl --namespace {NAMESPACE} logs --prefix --selector {DRIVER_LABEL}"
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
    yield "  sluice status  # the fleet, and the nodes that are not done"
    page = up.processes.processes[Writer.TELEMETRY_CLUSTER].exporter_url
    yield f"  sluice watch --telemetry {page}  # the same, as it happens"
    yield f"  sluice why {node}  # what this node waits for"
    yield f"  sluice plan {pool} --version 590.48.01  # when each node would start and end"
    yield f"  sluice upgrade pause {pool}  # start no more nodes, until: upgrade resume"
    yield "  sluice events --since 5m  # what changed; who set, took or released what"
    yield f"  sluice audit --audit-log {up.audit_log}  # did Sluice keep its promises"


def _nats(up: DemoEnvironment) -> str:
    missing = "" if shutil.which("nats") else "; install NATS' command first"
    identity = Identity(writer=Writer.CTL)
    subject = subjects.Event(
        cluster=identity.cluster, node=subjects.ANY, writer=subjects.ANY, kind=subjects.ANY
    )
    return (
        f'  nats --server {up.nats.url} --user "$(cat {up.paths.token(identity)})"'
        f" --inbox-prefix={subjects.inbox(identity)} sub --stream {EVENTS.name} --all '{subject}'"
        f"  # all events{missing}"
    )


def _has_kubectl(paths: DemoPaths) -> bool:
    return bool(shutil.which("kubectl")) or (paths.programs / "kubectl").exists()
