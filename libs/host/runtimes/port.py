"""A container runtime that runs on a machine: what it knows, and its restart."""

from typing import Protocol

import msgspec


class RuntimeUnavailable(Exception):
    """The runtime does not answer, or there is none. The text is the reason."""


class RestartRefused(Exception):
    """The runtime cannot be restarted from here. The text is the reason."""


class RuntimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a running container runtime has read from its configuration."""

    name: str
    """`containerd` or `cri-o`."""
    version: str = ""
    """Such as `v2.4.2`."""
    handlers: frozenset[str] = frozenset()
    reads_cdi: bool = False
    """Whether it gives containers the devices of the specs in `/var/run/cdi`."""
    pid: int = 0
    config: str = ""
    """The configuration file of its command line; empty: the default."""
    unit: str = ""
    """Its unit of systemd; empty if it has none."""


class ContainerRuntime(Protocol):
    """The runtime that a machine's kubelet uses. Calls block, for a limited time."""

    def instance(self) -> object:
        """Return a value that is another one once the runtime has been started again."""
        ...

    def status(self) -> RuntimeStatus:
        """Ask the runtime, or raise `RuntimeUnavailable`."""
        ...

    def stop(self, pid: int) -> None:
        """Ask the runtime's process to end; another program starts it again."""
        ...

    def restart_unit(self, unit: str) -> None:
        """Let systemd restart the runtime, or raise `RestartRefused`."""
        ...
