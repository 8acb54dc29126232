"""Accept headers, those of kubectl among them, and the form that follows from each."""

import pytest

from libs.testing.apiserver.showing.negotiation import (
    GROUPS,
    LIST,
    OBJECT,
    Form,
    content_type,
    form,
)
from libs.testing.apiserver.status import Refused

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("accept", "offered", "expected"),
    [
        ("", OBJECT, Form.PLAIN),
        ("*/*", OBJECT, Form.PLAIN),
        ("application/json", LIST, Form.PLAIN),
        ("application/json, */*", LIST, Form.PLAIN),
        ("application/json;q=0.9", LIST, Form.PLAIN),
        ("application/vnd.kubernetes.protobuf,application/json", LIST, Form.PLAIN),
        (f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", LIST,
         Form.TABLE),
        (TABLE, OBJECT, Form.TABLE),
        ("application/json; as=Table; v=v1; g=meta.k8s.io", OBJECT, Form.TABLE),
        (f"{TABLE},application/json", (), Form.PLAIN),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", LIST, Form.PLAIN),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", OBJECT, Form.PARTIAL),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", LIST,
         Form.PARTIAL_LIST),
        (f"{DISCOVERY},application/json", GROUPS, Form.DISCOVERY),
        (f"{DISCOVERY},application/json", (), Form.PLAIN),
    ],
)  # fmt: skip
def test_the_first_form_that_is_offered(
    accept: str, offered: tuple[Form, ...], expected: Form
) -> None:
    assert form(accept, offered) is expected


@pytest.mark.parametrize(
    "accept",
    ["application/yaml", "text/html", "application/json;as=Bogus;v=v1;g=meta.k8s.io", DISCOVERY],
)
def test_what_is_not_spoken_is_refused(accept: str) -> None:
    with pytest.raises(Refused) as refused:
        form(accept, OBJECT)
    assert (refused.value.code, refused.value.reason) == (406, "NotAcceptable")
    assert "application/json" in refused.value.message
    assert accept in refused.value.message


def test_the_content_type_names_discoverys_form_alone() -> None:
    assert content_type(Form.TABLE) == "application/json"
    assert content_type(Form.DISCOVERY) == DISCOVERY
