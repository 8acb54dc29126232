"""The parts of a process of sign-in, joined: what it knows, how it judges, whom it cuts off."""

from collections.abc import Coroutine, Iterator
from typing import Any

from libs.kube.client import Kube
from libs.runtime.env import Env
from services.signin.gate import Connections, Gate
from services.signin.key_files import KeyFiles
from services.signin.key_sources import KeySource
from services.signin.keys import TrustedKeys
from services.signin.metrics import SignInMetrics
from services.signin.objects import ClusterObjects
from services.signin.responder import Responder, Send
from services.signin.reviews import BackgroundReviews, TokenReviews
from services.signin.revocation import Revocation


class SignInParts:
    def __init__(
        self,
        kube: Kube,
        *,
        key_files: KeyFiles,
        source: KeySource,
        connections: Connections,
        namespace: str,
        cluster: str,
        send: Send,
        env: Env,
    ) -> None:
        metrics = SignInMetrics(env.metrics)
        self.trusted = TrustedKeys(source, env=env)
        self.objects = ClusterObjects(kube, namespace=namespace, env=env)
        self.revocation = Revocation(
            self.objects, connections, cluster=cluster, clock=env.clock, metrics=metrics
        )
        reviews = TokenReviews(kube, metrics=metrics)
        self.background = BackgroundReviews(
            reviews, env=env, refused=self.revocation.refuse, metrics=metrics
        )
        gate = Gate(
            keys=self.trusted,
            objects=self.objects,
            reviews=reviews,
            background=self.background,
            connections=connections,
            namespace=namespace,
            cluster=cluster,
            clock=env.clock,
            metrics=metrics,
        )
        self.responder = Responder(keys=key_files, gate=gate, send=send, env=env, metrics=metrics)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield each task with its name.

        What is known comes before who answers: a request that is already there is judged by what
        the first answers of the API server say, and else reviewed by itself.
        """
        yield "keys of tokens", self.trusted.run()
        for informer in self.objects.all():
            yield f"follow {informer.name}", informer.run()
        yield "revocation", self.revocation.run()
        yield "reviews", self.background.run()
        yield "answers", self.responder.run()
