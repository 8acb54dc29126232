"""Who may come onto the bus: a key for each identity, and the server's page that lists them."""

from collections.abc import Iterable

from demo.paths import DemoPaths
from libs.bus.server_config import User, new_nkey, server_config
from libs.contracts.identities import CLUSTER_WRITERS, COMPONENTS, Identity

_OWNER_ONLY = 0o600


def identities(nodes: Iterable[str]) -> list[Identity]:
    """Everybody: services and people, and each component of each node."""
    services = [Identity(writer=writer) for writer in CLUSTER_WRITERS]
    return services + [Identity(writer=one, node=node) for node in nodes for one in COMPONENTS]


def write_keys(places: DemoPaths, nodes: Iterable[str]) -> str:
    """Write everybody's secret into a file of his own; gives the server's part of it."""
    users: list[User] = []
    for identity in identities(nodes):
        key, file = new_nkey(), places.key(identity)
        file.touch(mode=_OWNER_ONLY)
        file.write_text(key.seed)
        users.append(User(identity=identity, public_key=key.public))
    return server_config(users)
