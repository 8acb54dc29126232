"""TokenReviews, which return the user of a token."""

from collections.abc import Callable
from typing import Any

from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.requests import bodies

_AUDIENCE = "https://kubernetes.default.svc"


def review_token(body: bytes, user_of: Callable[[str], str | None]) -> dict[str, Any]:
    review = bodies.parse_json(body)
    token = ((review.get("spec") or {}) if isinstance(review, dict) else {}).get("token", "")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(token, str) or not token:
        raise bad_request("token is required for TokenReview in authentication")
    user = user_of(token)
    status: dict[str, Any]
    if user is None:
        status = {"user": {}, "error": "invalid bearer token"}
    else:
        user_info = {"username": user, "uid": user, "groups": ["system:authenticated"]}
        status = {"authenticated": True, "user": user_info, "audiences": [_AUDIENCE]}
    return {
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "spec": {"token": token},
        "status": status,
    }
