"""The holder in a session's name: which pod, account, node and token it was admitted with. Pure.

So whether a session is void depends only on the objects that exist now, in every process of
sign-in: a session that a renewed token opened after a deletion is another one.
"""

from typing import Final, Self

import msgspec

from libs.bus.sessions import Session
from services.signin.claims import Holder

_MARK: Final = ":"
_LENGTH: Final = 8


def short(uid: str) -> str:
    """Return the beginning of a uid, which distinguishes objects of the same name."""
    return uid[:_LENGTH]


class SessionTag(msgspec.Struct, frozen=True, kw_only=True):
    """All but `holder` are the beginnings of uids."""

    holder: str
    """The uid of the pod; for people the id of the token, which the API server's audit log has."""
    account: str
    node: str
    """Empty for those without a node, and for tokens that do not name its uid."""
    token: str

    @classmethod
    def of(cls, holder: Holder) -> Self:
        return cls(
            holder=holder.pod_uid or holder.token_id,
            account=short(holder.account_uid),
            node=short(holder.node_uid),
            token=short(holder.token_id),
        )

    @classmethod
    def read(cls, session: Session) -> Self | None:
        """Return the tag of a session that a process of sign-in admitted."""
        parts = session.pod_uid.split(_MARK)
        if len(parts) != len(cls.__struct_fields__):
            return None
        return cls(**dict(zip(cls.__struct_fields__, parts, strict=True)))

    def __str__(self) -> str:
        return _MARK.join((self.holder, self.account, self.node, self.token))
