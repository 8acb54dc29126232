"""One request, as it is understood."""

import msgspec

from libs.kube.transport import Request
from libs.testing.apiserver.faults import Target
from libs.testing.apiserver.kinds import Kinds
from libs.testing.apiserver.reads.reading import may_be_old
from libs.testing.apiserver.requests.options import ListOptions, list_options
from libs.testing.apiserver.requests.routes import Route, route
from libs.testing.apiserver.writes.patching import APPLY

READS = frozenset({"get", "list", "watch"})


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants of the server."""

    verb: str
    route: Route
    request: Request
    user: str
    listing: ListOptions | None = None
    """Of a list or a watch."""

    @property
    def accept(self) -> str:
        """In which form the answer is wanted."""
        return self.request.headers.get("accept", "")

    @property
    def content_type(self) -> str:
        """What the body is."""
        return self.request.headers.get("content-type", "").partition(";")[0].strip()

    @property
    def manager(self) -> str:
        """Who owns what is written: as he says, or else by the name of his program."""
        named = self.request.query.get("fieldManager", "")
        agent = self.request.headers.get("user-agent", "").partition("/")[0]
        return named or agent or "unknown"

    @property
    def target(self) -> Target:
        """As faults see it."""
        return Target(
            verb=self.verb,
            kind=self.route.kind.kind,
            namespace=self.route.namespace,
            name=self.route.name,
            subresource=self.route.subresource,
            user=self.user,
            any_age=self.verb == "list" and self.listing is not None and may_be_old(self.listing),
        )


def understood(request: Request, *, user: str, kinds: Kinds) -> Call:
    """The call that a request is; refused where it is none."""
    found = route(request.method, request.path, request.query, kinds)
    call = Call(verb=found.verb, route=found, request=request, user=user)
    if found.verb == "patch" and call.content_type == APPLY:
        return msgspec.structs.replace(call, verb="apply")
    if found.verb in ("list", "watch"):
        return msgspec.structs.replace(call, listing=list_options(request.query))
    return call
