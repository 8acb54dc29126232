"""NATS's certificate by cert-manager: a real API server with its definitions accepts the chart."""

import copy
import os
from collections.abc import AsyncIterator

import pytest

from libs.testing.cert_manager import find_definitions
from tests.component.chart.conftest import Render, as_list
from tests.component.chart.rendered import Object, of_kind, parsed
from tests.component.chart.test_nats import values
from tests.system.nodes.kubectl import Kubectl

DRY_RUN = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")


@pytest.fixture
async def cert_manager(cluster: Kubectl) -> AsyncIterator[Kubectl]:
    """Install the definitions until the end of the test: other tests have none of them."""
    files = find_definitions(os.environ)
    if not files:
        pytest.skip("no definitions of cert-manager: run `make helm`")
    definitions: list[Object] = [each for file in files for each in parsed(file.read_text())]
    names = [f"crd/{each['metadata']['name']}" for each in definitions]
    await cluster.apply(*definitions)
    try:
        await cluster.wait("condition=Established", *names)
        yield cluster
    finally:
        await cluster.run("delete", *names)


async def test_the_server_accepts_the_certificate(cert_manager: Kubectl, render: Render) -> None:
    objects = render(*values("cert_manager"), namespace="default")
    (certificate,) = of_kind(objects, "Certificate").values()
    issuer: Object = {
        "apiVersion": f"{certificate['spec']['issuerRef']['group']}/v1",
        "kind": certificate["spec"]["issuerRef"]["kind"],
        "metadata": {"name": certificate["spec"]["issuerRef"]["name"]},
        "spec": {"ca": {"secretName": "authority"}},
    }
    accepted = await cert_manager.run(*DRY_RUN, stdin=as_list([issuer, certificate]))
    assert "Warning" not in accepted
    assert len(accepted.splitlines()) == 2
    wrong = copy.deepcopy(certificate)
    wrong["spec"]["usages"] = ["servers"]
    with pytest.raises(AssertionError, match=r'spec\.usages\[0\]: Unsupported value: "servers"'):
        await cert_manager.run(*DRY_RUN, stdin=as_list([wrong]))
