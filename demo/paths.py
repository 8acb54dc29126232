"""Where the processes of the demo meet: one folder, and what is called how in it.

Names only; nothing is read or written here.
"""

import signal
from pathlib import Path

import msgspec

from libs.contracts.identities import Identity

NAMESPACE = "gpu-operator"
KILL_AGENTS_SIGNAL = signal.SIGUSR1
"""At this a machine kills those of its agents that its file `to-die` names."""


class DemoPaths(msgspec.Struct, frozen=True):
    """The names below one folder, which goes when the demo ends."""

    folder: Path

    def kubeconfig(self, user: str) -> Path:
        """How a user reaches the API server, as the server itself writes it."""
        return self.users / f"{user.replace(':', '-')}.kubeconfig"

    def key(self, identity: Identity) -> Path:
        """The secret by which the bus knows this identity."""
        return self.folder / "keys" / f"{identity.node or 'cluster'}.{identity.writer.value}.nkey"

    def machine(self, name: str) -> Path:
        """The root of a simulated machine's files."""
        return self.folder / "machines" / name

    def incidents(self, name: str) -> Path:
        """What must never happen on a machine, where it did: one line each."""
        return self.folder / "oddities" / name

    def kill_list(self, name: str) -> Path:
        """Names of the agents of a machine that are to be killed."""
        return self.folder / "to-die" / name

    @property
    def bad_drivers(self) -> Path:
        """Labels of drivers that load on no machine, one a line."""
        return self.folder / "bad-drivers"

    @property
    def users(self) -> Path:
        """Of everybody who speaks to the API server."""
        return self.folder / "users"

    @property
    def revisions(self) -> Path:
        """What the API server has carried out, one revision a line."""
        return self.folder / "revisions"


def kubelet_users(node: str) -> tuple[str, ...]:
    """As whom a machine speaks to the API server."""
    return (f"system:node:{node}", "system:kubelets")


def service_account(service: str) -> str:
    """As whom the cluster role of a service speaks to the API server."""
    return f"system:serviceaccount:{NAMESPACE}:sluice-{service}"
