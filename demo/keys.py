"""The NATS keys of all identities of the demo."""

from collections.abc import Iterable

from demo.paths import DemoPaths
from libs.bus.server_config import User, new_nkey, server_config
from libs.contracts.identities import CLUSTER_WRITERS, COMPONENTS, Identity

_OWNER_ONLY = 0o600


def identities(nodes: Iterable[str]) -> list[Identity]:
    """Return the identities of services, of people and of each component of each node."""
    services = [Identity(writer=writer) for writer in CLUSTER_WRITERS]
    return services + [Identity(writer=each, node=node) for node in nodes for each in COMPONENTS]


def write_keys(paths: DemoPaths, nodes: Iterable[str]) -> str:
    """Write the secret of each identity to its file; return the server's configuration."""
    users: list[User] = []
    for identity in identities(nodes):
        key, file = new_nkey(), paths.key(identity)
        file.touch(mode=_OWNER_ONLY)
        file.write_text(key.seed)
        users.append(User(identity=identity, public_key=key.public))
    return server_config(users)
