"""The holder in a session's name survives the way through nats-server."""

from libs.bus.sessions import Session, parse_session_name, session_name
from libs.contracts.identities import Identity, Writer
from libs.testing.tokens import Bound
from services.signin.claims import Holder
from services.signin.session_tags import SessionTag
from tests.unit.signin.tokens import ACCOUNT_UID, NODE, POD, TOKENS, agent_claims, judge

LONGEST = 253
"""Characters of the longest name of a node."""


def holder(writer: str = "driver", node: Bound = NODE) -> Holder:
    claims = agent_claims(writer, jti="12345678-90ab")
    bound = claims["kubernetes.io"] | {"node": {"name": node.name, "uid": node.uid}}
    found = judge(TOKENS.sign(claims | {"kubernetes.io": bound}))
    assert isinstance(found, Holder)
    return found


def test_a_tag_is_read_from_the_name_that_the_server_shows() -> None:
    for node in (NODE, Bound("n" * LONGEST, "u" * 64)):
        admitted = holder(node=node)
        tag = SessionTag.of(admitted)
        session = parse_session_name(session_name(admitted.identity, str(tag)))
        assert session is not None
        assert session.identity == admitted.identity
        assert SessionTag.read(session) == tag
        assert tag == SessionTag(
            holder=POD.uid, account=ACCOUNT_UID[:8], node=node.uid[:8], token="12345678"
        )


def test_other_names_have_no_tag() -> None:
    identity = Identity(writer=Writer.SCHEDULER)
    for text in ("", "pod", "a:b", "a:b:c:d:e"):
        assert SessionTag.read(Session(identity, text)) is None
