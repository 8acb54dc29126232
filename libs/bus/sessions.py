"""The names of sessions: who a connection belongs to, and which pod or person opened it. Pure.

Sign-in writes the name into the user's JWT; nats-server shows it wherever it shows a connection.
"""

import hashlib
from typing import Final
from urllib.parse import quote

import msgspec

from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import ANY, inbox

_MARK: Final = "#"
_KEPT: Final = "@:"
"""Characters of a holder beyond letters, digits and `_.-~` that are not escaped."""
_LONGEST: Final = 160
_HEAD: Final = 96


class Session(msgspec.Struct, frozen=True):
    """An identity, and the pod or person that holds it. `str` is the name."""

    identity: Identity
    pod_uid: str = ""
    """The pod's uid; for people their name as Kubernetes knows it, escaped."""

    def __str__(self) -> str:
        return f"{self.identity}{_MARK}{self.pod_uid}"


def session_name(identity: Identity, pod_uid: str = "") -> str:
    """Return the name of a session; `pod_uid` is the user's name for people.

    Different holders have different names: unusual characters are escaped, and the end of a long
    one is replaced by a digest of all.
    """
    holder = quote(pod_uid, safe=_KEPT)
    if len(holder) > _LONGEST:
        holder = f"{holder[:_HEAD]}*{hashlib.sha256(pod_uid.encode()).hexdigest()[:32]}"
    return str(Session(identity, holder))


def parse_session_name(text: str) -> Session | None:
    """Return the session with this name; None for other names, such as public keys."""
    name, mark, holder = text.partition(_MARK)
    cluster, _, rest = name.partition("/")
    node, _, writer = rest.partition("/")
    try:
        identity = Identity(
            cluster=cluster, node="" if node == "-" else node, writer=Writer(writer)
        )
        inbox(identity)  # refuses names that no subject may contain
    except ValueError:
        return None
    session = Session(identity, holder)
    is_name = mark and ANY not in (cluster, node) and str(session) == text
    return session if is_name else None
