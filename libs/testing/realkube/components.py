"""The flags and files of each component of a control plane."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from libs.testing.child_process import HOST
from libs.testing.realkube.binaries import Binaries

MASTERS = "system:masters"
"""The group with all rights."""

CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
"""The users that the server's default RBAC rules expect."""

_CLIENT_FLAGS = (
    "--leader-elect=false",
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
    "--secure-port=0",
)
_ETCD_QUOTA = 4 * 1024**3


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenUser:
    name: str
    token: str
    groups: Sequence[str] = ()


class PlaneFiles:
    """The files of a control plane."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.etcd = root / "etcd"
        self.certificates = root / "certificates"
        """Where the server writes its own certificates at the first start."""
        self.chain = self.certificates / "apiserver.crt"
        """The server's certificate, followed by its authority's."""
        self.ca_file = root / "ca.crt"
        """The authority alone: the controller manager refuses other certificates as a root."""
        self.key_file = self.certificates / "apiserver.key"
        """The server's key, which also signs service account tokens."""
        self.tokens = root / "tokens.csv"
        self.audit_policy = root / "audit-policy.json"
        self.audit_log = root / "audit.log"


def etcd(binaries: Binaries, folder: PlaneFiles, *, client_url: str, peer_url: str) -> list[str]:
    """Nothing is synced to disk: the data need not survive a crash of the machine."""
    return [
        str(binaries.etcd),
        f"--data-dir={folder.etcd}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        f"--quota-backend-bytes={_ETCD_QUOTA}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(binaries: Binaries, folder: PlaneFiles, *, url: str, etcd_url: str) -> list[str]:
    """The server creates its own certificates; clients use tokens."""
    return [
        str(binaries.apiserver),
        f"--etcd-servers={etcd_url}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={urlsplit(url).port}",
        f"--cert-dir={folder.certificates}",
        f"--token-auth-file={folder.tokens}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder.key_file}",
        f"--service-account-signing-key-file={folder.key_file}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        f"--audit-policy-file={folder.audit_policy}",
        f"--audit-log-path={folder.audit_log}",
        "--audit-log-maxsize=0",  # one file, however large
    ]


def controller_manager(binaries: Binaries, folder: PlaneFiles, *, kubeconfig: Path) -> list[str]:
    """Each controller acts as a user of its own, visible in the audit log."""
    return [
        str(binaries.controller_manager),
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={folder.ca_file}",
        f"--service-account-private-key-file={folder.key_file}",
        "--use-service-account-credentials",
        "--node-monitor-grace-period=40s",
        *_CLIENT_FLAGS,
    ]


def scheduler(binaries: Binaries, *, kubeconfig: Path) -> list[str]:
    return [str(binaries.scheduler), f"--kubeconfig={kubeconfig}", *_CLIENT_FLAGS]


def tokens(users: Iterable[TokenUser]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    for user in users:
        writer.writerow([user.token, user.name, user.name, ",".join(user.groups)])
    return text.getvalue()


def audit_policy(reads_of: Sequence[str] = ()) -> str:
    """Log every write with both bodies, without heartbeats and reviews; reads only of these groups,
    without bodies.
    """
    reads = ["get", "list", "watch"]
    rules: list[Mapping[str, Any]] = [
        *({"level": "Metadata", "verbs": reads, "userGroups": [group]} for group in reads_of),
        {"level": "None", "verbs": reads},
        {
            "level": "None",
            "namespaces": ["kube-node-lease"],
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        {
            "level": "None",
            "resources": [
                {"group": "authentication.k8s.io"},
                {"group": "authorization.k8s.io"},
                {"group": "", "resources": ["serviceaccounts/token"]},
            ],
        },
        {"level": "RequestResponse"},
    ]
    return json.dumps(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": rules,
        }
    )


def kubeconfig(user: TokenUser, *, url: str, ca_file: Path) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": url, "certificate-authority": str(ca_file)},
                }
            ],
            "users": [{"name": user.name, "user": {"token": user.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user.name}}],
            "current-context": "test",
        }
    )
