"""The tokens with which everybody in the demo signs in to NATS, each in a file.

In a cluster the kubelet requests the token of a pod, and puts it where the pod finds it.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

from demo.admin import DemoAdmin, pod_reference
from demo.paths import DemoPaths
from libs.bus.credentials import Credentials
from libs.contracts.identities import Identity
from libs.kube.errors import KubeError
from libs.policy.installation import service_account_of
from libs.testing.cluster.views import Pod
from services.signin.claims import AUDIENCE

SECONDS: Final = 7 * 24 * 3600
"""How long a token lasts. A demo is left running for days, and nothing renews its tokens."""
_PAUSE: Final = 1.0


async def token_of_pod(
    kubelet: DemoAdmin, paths: DemoPaths, identity: Identity, pod: Pod
) -> Credentials:
    """Return how the agent of a pod signs in: with the token that the kubelet requests for it."""
    meta = pod.metadata
    while True:
        try:
            file = await request_token(
                kubelet, paths, identity, pod=pod_reference(meta.name, meta.uid)
            )
        except KubeError:  # a kubelet tries again, too, and starts no container before
            await asyncio.sleep(_PAUSE)
        else:
            return Credentials(token_file=str(file))


async def request_token(
    admin: DemoAdmin, paths: DemoPaths, identity: Identity, *, pod: Any = None
) -> Path:
    """Write the token of an identity, bound to its pod, and return the file; people have no pod."""
    spec = {"audiences": [AUDIENCE], "expirationSeconds": SECONDS}
    if pod is not None:
        spec["boundObjectRef"] = pod
    token = await admin.token_of(service_account_of(identity.writer), **spec)
    file = paths.token(identity)
    await asyncio.to_thread(_write, file, token)
    return file


def _write(file: Path, token: str) -> None:
    # The readers of an older token see the one or the other, never half of one.
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(token)
    new.rename(file)
