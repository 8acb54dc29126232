"""What an agent is told of the place where it runs, and how it learns which Node that is.

Agents have no credentials of Kubernetes. The Node's name comes by the downward API, its uid from
the claims of the token that the agent shows the bus, or from a setting where tokens lack it.
"""

import base64
import binascii
from pathlib import Path

import msgspec

from libs.bus.connect import NatsSettings
from libs.runtime.fatal import Fatal
from libs.runtime.process import ProcessSettings


class AgentSettings(ProcessSettings, frozen=True, kw_only=True):
    """What every agent can be told; the settings of one are a subclass."""

    nats: NatsSettings = NatsSettings()
    node: str
    """The Node's name."""
    node_uid: str = ""
    """The Node's uid; empty: as the token says it."""
    pod_uid: str = ""
    namespace: str = ""
    host_root: Path = Path("/host")
    token_file: str = ""
    state_dir: Path = Path("/var/lib/sluice")
    """Where the agent keeps its journal: a folder of the machine, which outlives the pod."""

    @property
    def nats_settings(self) -> NatsSettings:
        """How this agent joins the bus: as this node, with its token if nothing else is said."""
        return msgspec.structs.replace(
            self.nats, node=self.node, token_file=self.nats.token_file or self.token_file
        )

    def resolve_node_uid(self) -> str:
        """The Node's uid, or a `Fatal` that says what to do."""
        if self.node_uid:
            return self.node_uid
        if not self.token_file:
            raise Fatal("the Node's uid is not known: set SLUICE_NODE_UID, or SLUICE_TOKEN_FILE")
        uid = _claimed(self.token_file)
        if not uid:
            raise Fatal(
                f"the token in {self.token_file} does not name the Node's uid (Kubernetes does from"
                " 1.30 on): set SLUICE_NODE_UID"
            )
        return uid


class _Named(msgspec.Struct, frozen=True):
    uid: str = ""


class _Kubernetes(msgspec.Struct, frozen=True):
    node: _Named = _Named()


class _Claims(msgspec.Struct, frozen=True):
    kubernetes: _Kubernetes = msgspec.field(name="kubernetes.io", default=_Kubernetes())


def _claimed(path: str) -> str:
    """Who is believed on the bus is the server's business: here the token is only read."""
    try:
        middle = Path(path).read_text().split(".")[1]
        claims = base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))
        return msgspec.json.decode(claims, type=_Claims).kubernetes.node.uid
    except OSError as error:
        raise Fatal(f"the token in {path} cannot be read: {error.strerror}") from None
    except (IndexError, ValueError, binascii.Error, msgspec.DecodeError):
        return ""
