"""Accept headers, those of kubectl among them, and the form that follows from each."""

import pytest

from libs.testing.apiserver.requests.negotiation import (
    GROUPS,
    LIST,
    OBJECT,
    ResponseForm,
    content_type,
    negotiate,
)
from libs.testing.apiserver.status import StatusError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("accept", "offered", "expected"),
    [
        ("", OBJECT, ResponseForm.PLAIN),
        ("*/*", OBJECT, ResponseForm.PLAIN),
        ("application/json", LIST, ResponseForm.PLAIN),
        ("application/json, */*", LIST, ResponseForm.PLAIN),
        ("application/json;q=0.9", LIST, ResponseForm.PLAIN),
        ("application/vnd.kubernetes.protobuf,application/json", LIST, ResponseForm.PLAIN),
        (
            f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            LIST,
            ResponseForm.TABLE,
        ),
        (TABLE, OBJECT, ResponseForm.TABLE),
        ("application/json; as=Table; v=v1; g=meta.k8s.io", OBJECT, ResponseForm.TABLE),
        (f"{TABLE},application/json", (), ResponseForm.PLAIN),
        (
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            LIST,
            ResponseForm.PLAIN,
        ),
        (
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            OBJECT,
            ResponseForm.PARTIAL,
        ),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            LIST,
            ResponseForm.PARTIAL_LIST,
        ),
        (f"{DISCOVERY},application/json", GROUPS, ResponseForm.DISCOVERY),
        (f"{DISCOVERY},application/json", (), ResponseForm.PLAIN),
    ],
)
def test_the_first_form_that_is_offered(
    accept: str, offered: tuple[ResponseForm, ...], expected: ResponseForm
) -> None:
    assert negotiate(accept, offered) is expected


@pytest.mark.parametrize(
    "accept",
    ["application/yaml", "text/html", "application/json;as=Bogus;v=v1;g=meta.k8s.io", DISCOVERY],
)
def test_what_is_not_spoken_is_refused(accept: str) -> None:
    with pytest.raises(StatusError) as refused:
        negotiate(accept, OBJECT)
    assert (refused.value.code, refused.value.reason) == (406, "NotAcceptable")
    assert "application/json" in refused.value.message
    assert accept in refused.value.message


def test_the_content_type_names_discoverys_form_alone() -> None:
    assert content_type(ResponseForm.TABLE) == "application/json"
    assert content_type(ResponseForm.DISCOVERY) == DISCOVERY
