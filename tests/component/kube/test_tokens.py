"""Tokens of ServiceAccounts: their claims, their review, and the keys that verify them."""

import base64
import json
from typing import Any

import pytest

from libs.kube.errors import Conflict, Invalid, KubeError, NotFound
from libs.kube.requests import JSON
from libs.kube.resources import NODES, PODS, SERVICE_ACCOUNTS
from tests.component.kube.builders import pod
from tests.component.kube.raw_requests import JsonObject, send_request
from tests.component.kube.sandbox import Kube, Sandbox
from tests.support import eventually

ACCOUNT = "sluice-driver"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
JWK_SET = "application/jwk-set+json"


class Tokens:
    """A pod of an account on a node, and requests about its tokens."""

    def __init__(self, sandbox: Sandbox, kube: Kube, node: str) -> None:
        self.namespace = sandbox.namespace
        self.kube = kube
        self.node = node
        self.account_uid = ""
        self.pod_uid = ""

    async def create(self) -> None:
        account = {"metadata": {"name": ACCOUNT}}
        created = await self.kube.create(SERVICE_ACCOUNTS, account, namespace=self.namespace)
        self.account_uid = created.metadata.uid
        spec = pod("agent")
        spec["spec"] |= {"nodeName": self.node, "serviceAccountName": ACCOUNT}
        created = await self.kube.create(PODS, spec, namespace=self.namespace)
        self.pod_uid = created.metadata.uid

    @property
    def ref(self) -> dict[str, str]:
        return {"kind": "Pod", "apiVersion": "v1", "name": "agent", "uid": self.pod_uid}

    async def request(self, account: str = ACCOUNT, /, **spec: Any) -> JsonObject:
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return await send_request(self.kube, "POST", path, body=body)

    async def review(self, token: str, *audiences: str) -> JsonObject:
        spec = {"token": token, "audiences": list(audiences)}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = await send_request(self.kube, "POST", REVIEWS, body=body)
        assert answer["kind"] == "TokenReview"
        return answer["status"]


@pytest.fixture
async def tokens(sandbox: Sandbox, kube: Kube, node: str) -> Tokens:
    tokens = Tokens(sandbox, kube, node)
    await tokens.create()
    return tokens


def parts(token: str) -> tuple[JsonObject, JsonObject]:
    head, payload, _ = token.split(".")
    header, claims = (
        json.loads(base64.urlsafe_b64decode(part + "===")) for part in (head, payload)
    )
    return header, claims


async def test_the_claims_of_a_pods_token(tokens: Tokens) -> None:
    answer = await tokens.request(
        audiences=["sluice"], expirationSeconds=3600, boundObjectRef=tokens.ref
    )
    assert (answer["kind"], answer["metadata"]["name"]) == ("TokenRequest", ACCOUNT)
    assert set(answer["status"]) == {"token", "expirationTimestamp"}
    header, claims = parts(answer["status"]["token"])
    assert set(header) == {"alg", "kid"}
    assert list(claims) == ["aud", "exp", "iat", "iss", "jti", "kubernetes.io", "nbf", "sub"]
    assert claims["aud"] == ["sluice"]
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["nbf"] == claims["iat"]
    assert claims["sub"] == f"system:serviceaccount:{tokens.namespace}:{ACCOUNT}"
    node_uid = (await tokens.kube.get(NODES, tokens.node)).metadata.uid
    assert claims["kubernetes.io"] == {
        "namespace": tokens.namespace,
        "node": {"name": tokens.node, "uid": node_uid},
        "pod": {"name": "agent", "uid": tokens.pod_uid},
        "serviceaccount": {"name": ACCOUNT, "uid": tokens.account_uid},
    }


async def test_the_token_of_an_account_alone(tokens: Tokens) -> None:
    answer = await tokens.request(audiences=["sluice"])
    assert answer["spec"] == {
        "audiences": ["sluice"],
        "expirationSeconds": 3600,
        "boundObjectRef": None,
    }
    _, claims = parts(answer["status"]["token"])
    assert set(claims["kubernetes.io"]) == {"namespace", "serviceaccount"}


async def test_the_default_audience_is_the_api_server(tokens: Tokens, sandbox: Sandbox) -> None:
    _, claims = parts((await tokens.request())["status"]["token"])
    status, found = await sandbox.raw_response("GET", "/.well-known/openid-configuration")
    assert (status, claims["aud"], claims["iss"]) == (200, [found["issuer"]], found["issuer"])


@pytest.mark.parametrize(
    ("account", "spec", "error", "message"),
    [
        (ACCOUNT, {"expirationSeconds": 599}, Invalid, "less than 10 minutes"),
        (ACCOUNT, {"expirationSeconds": (1 << 32) + 1}, Invalid, "larger than 2^32 seconds"),
        ("missing", {}, NotFound, 'serviceaccounts "missing" not found'),
        (ACCOUNT, {"boundObjectRef": {"name": "gone"}}, NotFound, 'pods "gone" not found'),
        (ACCOUNT, {"boundObjectRef": {"uid": "other"}}, Conflict, "does not match the UID"),
        ("default", {"boundObjectRef": {}}, Invalid, "different serviceaccount name"),
    ],
)
async def test_refused_requests(
    tokens: Tokens, account: str, spec: dict[str, Any], error: type[KubeError], message: str
) -> None:
    if "boundObjectRef" in spec:
        spec = {**spec, "boundObjectRef": tokens.ref | spec["boundObjectRef"]}
    with pytest.raises(error) as refused:
        await tokens.request(account, **spec)
    assert type(refused.value) is error
    assert message in refused.value.message


async def test_the_review_of_a_pods_token(tokens: Tokens) -> None:
    answer = await tokens.request(audiences=["sluice"], boundObjectRef=tokens.ref)
    token = answer["status"]["token"]
    _, claims = parts(token)
    review = await tokens.review(token, "sluice", "other")
    node = claims["kubernetes.io"]["node"]
    assert review == {
        "authenticated": True,
        "audiences": ["sluice"],
        "user": {
            "username": claims["sub"],
            "uid": tokens.account_uid,
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{tokens.namespace}",
                "system:authenticated",
            ],
            "extra": {
                "authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"],
                "authentication.kubernetes.io/node-name": [node["name"]],
                "authentication.kubernetes.io/node-uid": [node["uid"]],
                "authentication.kubernetes.io/pod-name": ["agent"],
                "authentication.kubernetes.io/pod-uid": [tokens.pod_uid],
            },
        },
    }


async def test_refused_reviews(tokens: Tokens) -> None:
    token = (await tokens.request(audiences=["sluice"]))["status"]["token"]
    assert await tokens.review(token, "other") == {
        "user": {},
        "error": '[invalid bearer token, token audiences ["sluice"] is invalid for the target'
        ' audiences ["other"]]',
    }
    assert await tokens.review("a.b.c", "sluice") == {"user": {}, "error": "invalid bearer token"}
    with pytest.raises(Invalid, match="token is required"):
        await tokens.review("", "sluice")


async def test_a_token_ends_with_its_pod(tokens: Tokens) -> None:
    answer = await tokens.request(audiences=["sluice"], boundObjectRef=tokens.ref)
    await tokens.kube.delete(PODS, "agent", uid=tokens.pod_uid, namespace=tokens.namespace, grace=0)
    token = answer["status"]["token"]
    ended = {
        "user": {},
        "error": "[invalid bearer token, service account token has been invalidated]",
    }

    async def has_ended() -> bool:
        return await tokens.review(token, "sluice") == ended

    # A real server judges by its cache, and keeps a judgement for ten seconds.
    await eventually(has_ended, within=40.0, every=0.5)


async def test_the_keys_are_published(tokens: Tokens, sandbox: Sandbox) -> None:
    header, _ = parts((await tokens.request())["status"]["token"])
    path = "/openid/v1/jwks"
    status, keys = await sandbox.raw_response("GET", path, accept=f"{JWK_SET}, {JSON}")
    assert status == 200
    (key,) = (key for key in keys["keys"] if key["kid"] == header["kid"])
    assert (key["use"], key["alg"]) == ("sig", header["alg"])
    status, refused = await sandbox.raw_response("GET", path, accept=JSON)
    assert (status, refused["reason"]) == (406, "NotAcceptable")
    status, found = await sandbox.raw_response("GET", "/.well-known/openid-configuration")
    assert (status, set(found)) == (
        200,
        {
            "issuer",
            "jwks_uri",
            "response_types_supported",
            "subject_types_supported",
            "id_token_signing_alg_values_supported",
        },
    )
