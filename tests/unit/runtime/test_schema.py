"""Which fields of a Struct can be settings, and how their types are described."""

from typing import Annotated

import msgspec
import pytest

from libs.runtime.settings import leaves


class Http(msgspec.Struct, frozen=True):
    port: int = 8080


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (Annotated[int, msgspec.Meta(ge=1)], "a whole number of at least 1"),
        (Annotated[int, msgspec.Meta(gt=0, lt=9)], "a whole number above 0 and below 9"),
        (Annotated[int, msgspec.Meta(ge=0, le=9)], "a whole number from 0 to 9"),
        (Annotated[float, msgspec.Meta(le=1)], "a number of at most 1"),
        (Annotated[str, msgspec.Meta(pattern="^[a-z]+$")], "text matching ^[a-z]+$"),
        (list[int], "a list (comma-separated in the environment), each a whole number"),
    ],
)
def test_types_are_described_in_words(kind: object, wanted: str):
    (setting,) = leaves(msgspec.defstruct("One", [("field", kind)]), prefix="SLUICE_")
    assert (setting.variable, setting.expected) == ("SLUICE_FIELD", wanted)


def test_a_struct_with_an_unsupported_field_is_refused():
    class Mapped(msgspec.Struct):
        labels: dict[str, str]

    class Twice(msgspec.Struct):
        http: Http
        http_port: int

    class Reserved(msgspec.Struct):
        config: str

    with pytest.raises(TypeError, match="labels of Mapped: settings cannot be of DictType"):
        leaves(Mapped, prefix="SLUICE_")
    with pytest.raises(TypeError, match=r"http_port of Twice and http\.port would both"):
        leaves(Twice, prefix="SLUICE_")
    with pytest.raises(TypeError, match="config of Reserved and the settings file would both be"):
        leaves(Reserved, prefix="SLUICE_")
