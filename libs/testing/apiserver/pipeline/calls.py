"""A parsed request."""

import msgspec

from libs.kube.requests import Request
from libs.testing.apiserver.faults import FaultTarget
from libs.testing.apiserver.kinds.kind import ResourceKinds
from libs.testing.apiserver.reads.reader import may_be_old
from libs.testing.apiserver.requests.options import ListOptions, list_options
from libs.testing.apiserver.requests.routes import Route, route
from libs.testing.apiserver.writes.patch import APPLY

READS = frozenset({"get", "list", "watch"})


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    verb: str
    route: Route
    request: Request
    user: str
    listing: ListOptions | None = None
    """The options of a list or a watch."""

    @property
    def accept(self) -> str:
        return self.request.headers.get("accept", "")

    @property
    def content_type(self) -> str:
        return self.request.headers.get("content-type", "").partition(";")[0].strip()

    @property
    def manager(self) -> str:
        """The field manager: the named one, or else the name of the client program."""
        manager = self.request.query.get("fieldManager", "")
        agent = self.request.headers.get("user-agent", "").partition("/")[0]
        return manager or agent or "unknown"

    @property
    def fault_target(self) -> FaultTarget:
        return FaultTarget(
            verb=self.verb,
            kind=self.route.kind.kind,
            namespace=self.route.namespace,
            name=self.route.name,
            subresource=self.route.subresource,
            user=self.user,
            any_age=self.verb == "list" and self.listing is not None and may_be_old(self.listing),
        )


def parse_call(request: Request, *, user: str, kinds: ResourceKinds) -> ApiCall:
    found = route(request.method, request.path, request.query, kinds)
    call = ApiCall(verb=found.verb, route=found, request=request, user=user)
    if found.verb == "patch" and call.content_type == APPLY:
        return msgspec.structs.replace(call, verb="apply")
    if found.verb in ("list", "watch"):
        return msgspec.structs.replace(call, listing=list_options(request.query))
    return call
