"""Settings that all agents share, and the uid of the Node on which an agent runs.

Agents have no Kubernetes credentials. The Node's name comes from the downward API; its uid comes
from the claims of the agent's bus token, or from a setting where tokens lack it.
"""

import base64
import binascii
from pathlib import Path

import msgspec

from libs.bus.connect import NatsSettings
from libs.runtime.fatal import Fatal
from libs.runtime.process import ProcessSettings


class AgentSettings(ProcessSettings, frozen=True, kw_only=True):
    nats: NatsSettings = NatsSettings()
    node: str
    """The Node's name."""
    node_uid: str = ""
    """The Node's uid; if empty, the uid that the token claims."""
    pod_uid: str = ""
    namespace: str = ""
    host_root: Path = Path("/host")
    token_file: str = ""
    state_dir: Path = Path("/var/lib/sluice")
    """The directory of the journal, on the machine, so that it outlives the pod."""

    @property
    def nats_settings(self) -> NatsSettings:
        """Return how to connect as this node, by default with the agent's token."""
        return msgspec.structs.replace(
            self.nats, node=self.node, token_file=self.nats.token_file or self.token_file
        )

    def resolve_node_uid(self) -> str:
        """Return the Node's uid; raise `Fatal` if neither a setting nor the token has it."""
        if self.node_uid:
            return self.node_uid
        if not self.token_file:
            raise Fatal("the Node's uid is unknown: set SLUICE_NODE_UID, or SLUICE_TOKEN_FILE")
        uid = _claimed_uid(self.token_file)
        if not uid:
            raise Fatal(
                f"the token in {self.token_file} does not contain the Node's uid (Kubernetes"
                " adds it from 1.30 on): set SLUICE_NODE_UID"
            )
        return uid


class _NodeClaim(msgspec.Struct, frozen=True):
    uid: str = ""


class _KubernetesClaim(msgspec.Struct, frozen=True):
    node: _NodeClaim = _NodeClaim()


class _Claims(msgspec.Struct, frozen=True):
    kubernetes: _KubernetesClaim = msgspec.field(name="kubernetes.io", default=_KubernetesClaim())


def _claimed_uid(path: str) -> str:
    """Return the Node's uid in the token, unverified: verification is up to the bus server."""
    try:
        payload = Path(path).read_text().split(".")[1]
        claims = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.json.decode(claims, type=_Claims).kubernetes.node.uid
    except OSError as error:
        raise Fatal(f"the token in {path} cannot be read: {error.strerror}") from None
    except (IndexError, ValueError, binascii.Error, msgspec.DecodeError):
        return ""
