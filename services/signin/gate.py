"""Decide whether a client is admitted, by everything that is known about its token.

Most clients are judged at once. A token with an unknown key, or of a pod that is not known yet,
waits for the API server.
"""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from libs.bus.callout import PLAIN, SignInRequest
from libs.bus.connections import SHARES
from libs.bus.permissions import account_of
from libs.bus.sessions import Session
from libs.contracts.identities import Identity
from libs.kube.errors import KubeError
from libs.runtime.clock import Clock
from libs.runtime.tasks import bounded
from services.signin.claims import Cause, Holder, Refused, Trust, holder_of, shown
from services.signin.keys import TrustedKeys
from services.signin.metrics import SignInMetrics
from services.signin.objects import ClusterObjects, Knowledge
from services.signin.reviews import BackgroundReviews, TokenReviews
from services.signin.signatures import UnknownKey, verify

LATE: Final = 3.0
"""Seconds that one client waits for the keys, or for its review; the server waits 10 for both."""


class Connections(Protocol):
    """What sign-in needs of the monitor of connections."""

    def count(self, identity: Identity) -> int:
        """Return the number of connections of an identity."""
        ...

    def close(self, matches: Callable[[Session], bool]) -> int:
        """Cut the sessions that match, also those found soon after."""
        ...


class Unreviewed(msgspec.Struct, frozen=True):
    """The holder of a valid token, of whom the cluster's objects do not know everything."""

    holder: Holder


class Gate:
    def __init__(
        self,
        *,
        keys: TrustedKeys,
        objects: ClusterObjects,
        reviews: TokenReviews,
        background: BackgroundReviews,
        connections: Connections,
        namespace: str,
        cluster: str,
        clock: Clock,
        metrics: SignInMetrics,
    ) -> None:
        self._keys = keys
        self._objects = objects
        self._reviews = reviews
        self._background = background
        self._connections = connections
        self._namespace = namespace
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics

    def judge(self, request: SignInRequest) -> Holder | Refused | UnknownKey | Unreviewed:
        """Return the verdict, or what `wait` has to wait for."""
        if request.kind != PLAIN:
            return Refused(
                Cause.CLIENT,
                f"a {shown(request.kind) or 'nameless'} client is not served, only NATS's own"
                " protocol",
            )
        with self._metrics.cpu("verify"):
            found = self._holder(request.token)
        if not isinstance(found, Holder):
            return found
        return self._judge(request.token, found)

    async def wait(
        self, request: SignInRequest, missing: UnknownKey | Unreviewed
    ) -> Holder | Refused:
        """Return the verdict once the API server has answered, or did not."""
        if isinstance(missing, Unreviewed):
            return await self._review(request.token, missing.holder)
        await self._read_keys()
        found = self.judge(request)
        if isinstance(found, UnknownKey):
            return Refused(
                Cause.UNKNOWN_KEY,
                f"the token is signed with the key {shown(found.key_id)!r}, which is none of the"
                " API server's",
            )
        if isinstance(found, Unreviewed):
            return await self._review(request.token, found.holder)
        return found

    def _holder(self, token: str) -> Holder | Refused | UnknownKey:
        issuer = self._keys.issuer
        if issuer is None:
            return UnknownKey("")
        payload = verify(token, issuer.keys)
        if not isinstance(payload, bytes):
            return payload
        trust = Trust(issuer=issuer.name, namespace=self._namespace, cluster=self._cluster)
        return holder_of(payload, trust=trust, now=self._clock.now(), node_of=self._objects.node_of)

    def _judge(self, token: str, holder: Holder) -> Holder | Refused | Unreviewed:
        if self._background.is_refused(token):
            return Refused(Cause.REVIEW, "the API server refused this token before")
        known = self._objects.judge(holder)
        if isinstance(known, Refused):
            return known
        share = SHARES[account_of(holder.identity.writer)]
        count = self._connections.count(holder.identity)
        if count >= share:
            return Refused(
                Cause.SHARE,
                f"{holder.identity} has {count} connections, which is its share: end those of other"
                " processes; broken ones end when the server notices, within minutes",
            )
        if known is Knowledge.UNKNOWN:
            return Unreviewed(holder)
        self._background.add(token, holder)
        return holder

    async def _read_keys(self) -> None:
        try:
            await bounded(self._keys.read_for_unknown(), seconds=LATE, clock=self._clock)
        except TimeoutError:
            return

    async def _review(self, token: str, holder: Holder) -> Holder | Refused:
        try:
            refused = await bounded(
                self._reviews.review(token, holder), seconds=LATE, clock=self._clock
            )
        except (KubeError, TimeoutError):
            # The API server is away: the signature and the known objects must suffice.
            self._background.add(token, holder)
            return holder
        if refused is not None:
            self._background.refuse(token)
            return refused
        # What was seen meanwhile counts too: a pod may be deleted during its review.
        known = self._objects.judge(holder)
        return known if isinstance(known, Refused) else holder
