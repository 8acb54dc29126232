"""Requests to the real API server in the name of others, which have all rights by RBAC."""

import json
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from libs.contracts.node import DRIVER_LABEL
from libs.testing.realkube.cluster import RealKube
from tests.component.chart.rendered import Object

NODES: Final = "/api/v1/nodes"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
POLICY: Final = "ValidatingAdmissionPolicy"
BINDING: Final = "ValidatingAdmissionPolicyBinding"
NAMESPACE: Final = "gpu-operator"
PERSON: Final = "eve@example.com"
Change = Mapping[str, str | None]
SAME: Final[Change] = {}
PLURALS: Final = {
    POLICY: "validatingadmissionpolicies",
    BINDING: "validatingadmissionpolicybindings",
}
CONFIG_MAPS: Final = "/api/v1/namespaces/default/configmaps"
_MERGE: Final = "application/merge-patch+json"
_NODE_NAME: Final = "authentication.kubernetes.io/node-name"
_ADMINISTRATORS: Final = "system:masters"


class Api:
    def __init__(self, plane: RealKube) -> None:
        self._plane = plane
        self._context = ssl.create_default_context(cafile=str(plane.ca_file))

    def refusal(
        self, user: str, method: str, path: str, body: Any = None, *, node: str = ""
    ) -> str:
        """Send a request as this user; return the message of a refusal, empty if it succeeds.

        A PATCH is a merge. `node`: that of the pod whose token the user has.
        """
        extra = {f"Impersonate-Extra-{quote(_NODE_NAME, safe='')}": node} if node else {}
        request = Request(
            f"{self._plane.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._plane.token()}",
                "Impersonate-User": user,
                "Impersonate-Group": _ADMINISTRATORS,
                "Content-Type": _MERGE if method == "PATCH" else "application/json",
                **extra,
            },
        )
        try:
            with urlopen(request, context=self._context, timeout=30):
                return ""
        except HTTPError as error:
            status = json.load(error)
            return f"{status['reason']}: {status['message']}"


class Node:
    """A Node of the test."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self.path = f"{NODES}/{name}"

    def write(
        self, user: str, *, labels: Change = SAME, annotations: Change = SAME, part: str = ""
    ) -> str:
        """Change labels and annotations; return what the API server refuses them with."""
        patch = {"metadata": {"labels": labels, "annotations": annotations}}
        return self._api.refusal(user, "PATCH", f"{self.path}{part}", patch)

    def given(self, *, labels: Change = SAME, annotations: Change = SAME) -> None:
        """Bring the Node into a state, as the scheduler."""
        assert self.write(account("scheduler"), labels=labels, annotations=annotations) == ""


def path_of(obj: Object) -> str:
    return f"{ADMISSION}/{PLURALS[obj['kind']]}/{obj['metadata']['name']}"


def settle(api: Api, *, refused: bool) -> None:
    """Wait until both policies act, or neither."""
    node = {"metadata": {"name": "probe", "labels": {DRIVER_LABEL: "x"}}}
    until = time.monotonic() + 60
    for user, path, body in (
        (PERSON, NODES, node),
        (account("driver"), CONFIG_MAPS, config_map()),
    ):
        while bool(api.refusal(user, "POST", f"{path}?dryRun=All", body)) != refused:
            if time.monotonic() > until:
                pytest.fail(f"{user} is {'not ' if refused else ''}refused after a minute")
            time.sleep(0.2)


def config_map() -> Object:
    return {"metadata": {"name": "probe"}, "data": {"a": "b"}}


def account(name: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:sluice-{name}"
