"""Connect a service to the API server, as its settings, the environment or the pod say."""

from pathlib import Path
from typing import Any

from libs.kube.config import open_transport
from libs.kube.errors import Misconfigured
from libs.kube.http import HttpTransport
from libs.runtime.fatal import Fatal
from libs.runtime.process import Process
from libs.runtime.service import Service


async def connect(*, process: Process[Any], service: Service, kubeconfig: str) -> HttpTransport:
    """Open the service's own transport; with an empty `kubeconfig`, as the environment or the pod
    says.
    """
    try:
        transport = await open_transport(
            clock=process.env.clock, kubeconfig=Path(kubeconfig) if kubeconfig else None
        )
    except Misconfigured as error:
        raise Fatal(str(error)) from error
    return await service.enter("kube", transport)
