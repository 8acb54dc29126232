"""Ask the API server about tokens (TokenReview), before or after their holders are admitted.

An offline check does not see everything that voids a token. So each token is reviewed once in the
background, and before admission where the cluster's objects do not know its holder.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from libs.kube.client import Kube
from libs.kube.errors import KubeError, MalformedResponse
from libs.runtime.clock import Backoff
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.signin.claims import AUDIENCE, Cause, Holder, Refused, shown
from services.signin.metrics import SignInMetrics

SECONDS: Final = 2.0
"""Seconds for one review."""
AT_ONCE: Final = 32
"""Reviews before admission that run at the same time."""
RATE: Final = 50.0
"""Reviews per second in the background."""
BATCH: Final = 8
MAX_QUEUE: Final = 16_384
"""Tokens that wait for a review in the background."""
REMEMBERED: Final = 100_000
"""Tokens that are remembered as reviewed or refused, by digest."""

_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"

_log = logger()


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _Review(msgspec.Struct, frozen=True):
    kind: str
    status: _Status


_review = msgspec.json.Decoder(_Review)


def judge_review(body: bytes, holder: Holder) -> Refused | None:
    """Return why the API server refuses a token, None if it accepts it. Pure."""
    try:
        review = _review.decode(body)
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"POST {_PATH}", f"it is no TokenReview: {error}") from None
    if review.kind != "TokenReview":
        raise MalformedResponse(f"POST {_PATH}", f"it is a {shown(review.kind)}")
    status = review.status
    accepted = (
        status.authenticated
        and AUDIENCE in status.audiences
        and status.user == _User(holder.account, holder.account_uid)
    )
    if accepted:
        return None
    return Refused(
        Cause.REVIEW,
        f"the API server refuses the token: {shown(status.error or 'it is for someone else')}",
    )


class TokenReviews:
    def __init__(self, kube: Kube, *, metrics: SignInMetrics) -> None:
        self._kube = kube
        self._metrics = metrics
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def review(self, token: str, holder: Holder) -> Refused | None:
        """Return why a token is refused, None if it is accepted; raise `KubeError` if the API
        server does not say.
        """
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            async with self._slots:
                answer = await self._kube.request("POST", _PATH, body=body, within=SECONDS)
            refused = judge_review(answer, holder)
        except KubeError:
            self._metrics.reviewed("failed")
            raise
        self._metrics.reviewed("accepted" if refused is None else "refused")
        return refused


class _Waiting(msgspec.Struct, frozen=True):
    digest: bytes
    token: str
    holder: Holder

    def __repr__(self) -> str:
        return f"_Waiting({self.holder.account})"


class _Digests:
    """A bounded set, which forgets the oldest first."""

    def __init__(self) -> None:
        self._digests: dict[bytes, None] = {}

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def add(self, digest: bytes) -> None:
        self._digests[digest] = None
        if len(self._digests) > REMEMBERED:
            del self._digests[next(iter(self._digests))]


class BackgroundReviews:
    """Reviews each token once, some time after its holder was admitted."""

    def __init__(
        self,
        reviews: TokenReviews,
        *,
        env: Env,
        refused: Callable[[Holder, Refused], None],
        metrics: SignInMetrics,
    ) -> None:
        self._reviews = reviews
        self._clock = env.clock
        self._backoff = Backoff(env.random)
        self._on_refused = refused
        self._metrics = metrics
        self._queue: deque[_Waiting] = deque()
        self._taken = _Digests()
        self._refused = _Digests()
        self._added = asyncio.Event()
        self._problem = ""

    def add(self, token: str, holder: Holder) -> None:
        """Review a token later, unless it was or waits already."""
        digest = _digest(token)
        if digest in self._taken:
            return
        if len(self._queue) >= MAX_QUEUE:
            self._metrics.reviewed("dropped")
            return
        self._taken.add(digest)
        self._queue.append(_Waiting(digest, token, holder))
        self._added.set()

    def is_refused(self, token: str) -> bool:
        """Return whether an earlier review refused this token."""
        return _digest(token) in self._refused

    def refuse(self, token: str) -> None:
        """Remember that a review before admission refused this token."""
        self._refused.add(_digest(token))

    async def run(self) -> None:
        """Review what was added until cancelled; wait while the API server does not answer."""
        while True:
            await self._added.wait()
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            if not batch:
                self._added.clear()
                continue
            problems = await asyncio.gather(*map(self._review, batch))
            failed = [each for each, problem in zip(batch, problems, strict=True) if problem]
            self._queue.extendleft(reversed(failed))
            self._note(next(filter(None, problems), ""))
            await self._clock.sleep(BATCH / RATE + (self._backoff.next() if failed else 0.0))
            if not failed:
                self._backoff.reset()

    async def _review(self, waiting: _Waiting) -> str:
        """Return why a token could not be reviewed; empty if it was, or has expired."""
        if self._clock.now() > waiting.holder.expires:
            return ""
        try:
            refused = await self._reviews.review(waiting.token, waiting.holder)
        except KubeError as error:
            return str(error)
        if refused is not None:
            self._refused.add(waiting.digest)
            self._on_refused(waiting.holder, refused)
        return ""

    def _note(self, problem: str) -> None:
        if problem and not self._problem:
            _log.warning(
                "tokens are not reviewed: their holders are admitted by signature and known objects"
                " until the API server answers",
                why=problem,
            )
        elif self._problem and not problem:
            _log.info("tokens are reviewed again")
        self._problem = problem


def _digest(token: str) -> bytes:
    """Return the digest of what was signed: a signature has several valid texts."""
    return hashlib.sha256(token.rpartition(".")[0].encode()).digest()
