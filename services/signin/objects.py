"""What the cluster knows about the holders of tokens: their pods, accounts and nodes."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from libs.kube import resources, views
from libs.kube.client import Kube
from libs.kube.informer import InformerSet
from libs.kube.resources import Resource
from libs.kube.views.lean import keep_identity
from libs.runtime.env import Env
from services.signin.claims import Cause, Holder, Refused

REMEMBERED: Final = 200_000
"""Uids of deleted objects that are remembered; the oldest are forgotten first."""


class PodSpec(views.View, frozen=True, kw_only=True):
    node_name: str = ""
    service_account_name: str = ""


class Pod(views.Object, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()

    def __post_init__(self) -> None:
        keep_identity(self)


class Named(views.Object, frozen=True, kw_only=True):
    """An object of which only name and uid matter."""

    def __post_init__(self) -> None:
        keep_identity(self)


PODS: Final = resources.PODS.viewed_as(Pod)
ACCOUNTS: Final = Resource(
    plural="serviceaccounts", kind="ServiceAccount", metadata_only=True, view=Named
)
NODES: Final = Resource(
    plural="nodes", kind="Node", namespaced=False, creatable=False, metadata_only=True, view=Named
)


class Knowledge(Enum):
    """What the cluster's objects say about a holder that they do not refuse."""

    KNOWN = auto()
    """Pod, account and node are there, and are those of the token."""
    UNKNOWN = auto()
    """At least one was never seen: it is new, or was deleted before this process started."""


class GoneUids:
    """The uids of objects that were seen to be deleted."""

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def add(self, uid: str) -> None:
        self._uids[uid] = None
        if len(self._uids) > REMEMBERED:
            del self._uids[next(iter(self._uids))]

    def discard(self, uid: str) -> None:
        self._uids.pop(uid, None)


def judge(
    holder: Holder, *, pod: Pod | None, account: Named | None, node: Named | None, gone: GoneUids
) -> Knowledge | Refused:
    """Compare a holder with the objects of its names, and its pod by uid. Pure."""
    refused = _judge_account(holder, account, gone)
    if refused is None and holder.pod_uid:
        refused = _judge_pod(holder, pod, gone)
    if refused is None and holder.node:
        refused = _judge_node(holder, node, gone)
    if refused is not None:
        return refused
    complete = (
        account is not None
        and (pod is not None or not holder.pod_uid)
        and (node is not None or not holder.node)
    )
    return Knowledge.KNOWN if complete else Knowledge.UNKNOWN


def _judge_account(holder: Holder, account: Named | None, gone: GoneUids) -> Refused | None:
    if account is not None and account.metadata.uid != holder.account_uid:
        return Refused(
            Cause.ACCOUNT,
            f"{holder.account} was deleted and created again: tokens of the former one are void;"
            " restart its pods",
        )
    if holder.account_uid in gone:
        return Refused(Cause.ACCOUNT, f"{holder.account} was deleted: its tokens are void")
    return None


def _judge_pod(holder: Holder, pod: Pod | None, gone: GoneUids) -> Refused | None:
    if holder.pod_uid in gone:
        return Refused(Cause.POD, f"the pod {holder.pod_name} was deleted: its tokens are void")
    if pod is None:
        return None
    if pod.metadata.name != holder.pod_name:
        return Refused(
            Cause.POD,
            f"the token names the pod {holder.pod_name}, but its uid is that of"
            f" {pod.metadata.name}",
        )
    if pod.spec.service_account_name != holder.service_account:
        return Refused(
            Cause.POD,
            f"the token is for {holder.service_account}, but the pod {holder.pod_name} runs as"
            f" {pod.spec.service_account_name}",
        )
    if holder.node and pod.spec.node_name != holder.node:
        return Refused(
            Cause.NODE,
            f"the token names the node {holder.node}, but the pod {holder.pod_name} runs on"
            f" {pod.spec.node_name or 'none'}",
        )
    return None


def _judge_node(holder: Holder, node: Named | None, gone: GoneUids) -> Refused | None:
    if node is not None and holder.node_uid not in ("", node.metadata.uid):
        return Refused(
            Cause.NODE,
            f"the node {holder.node} was deleted and created again: restart the pod"
            f" {holder.pod_name}, or wait until its token is renewed",
        )
    if holder.node_uid in gone:
        return Refused(Cause.NODE, f"the node {holder.node} was deleted")
    return None


class ClusterObjects(InformerSet):
    """The pods and ServiceAccounts of our namespace, and all nodes, by watches."""

    def __init__(self, kube: Kube, *, namespace: str, env: Env) -> None:
        super().__init__(kube, env=env)
        self._namespace = namespace
        self.pods = self.add(
            PODS, indexes={"uid": lambda pod: (pod.metadata.uid,)}, namespace=namespace
        )
        self.accounts = self.add(ACCOUNTS, namespace=namespace)
        self.nodes = self.add(NODES)
        self.gone = GoneUids()
        self._handlers: list[Callable[[views.Object], None]] = []
        for informer in self.all():
            informer.cache.on_change(self._changed)

    def on_departure(self, handler: Callable[[views.Object], None]) -> None:
        """Call `handler` with each object that was deleted or replaced."""
        self._handlers.append(handler)

    def pod(self, uid: str) -> Pod | None:
        found = self.pods.cache.by_index("uid", uid)
        return found[0] if found else None

    def account(self, name: str) -> Named | None:
        return self.accounts.cache.get(f"{self._namespace}/{name}")

    def node_of(self, pod_uid: str) -> str:
        """Return the node of a known pod, or an empty text."""
        pod = self.pod(pod_uid)
        return pod.spec.node_name if pod is not None else ""

    def judge(self, holder: Holder) -> Knowledge | Refused:
        return judge(
            holder,
            pod=self.pod(holder.pod_uid) if holder.pod_uid else None,
            account=self.account(holder.service_account),
            node=self.nodes.cache.get(holder.node) if holder.node else None,
            gone=self.gone,
        )

    def _changed(self, before: views.Object | None, after: views.Object | None) -> None:
        if after is not None:
            self.gone.discard(after.metadata.uid)
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self.gone.add(before.metadata.uid)
            for handler in self._handlers:
                handler(before)
