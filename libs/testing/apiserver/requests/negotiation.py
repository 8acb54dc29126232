"""In which form an answer is wanted, as the Accept header has it: plain, a Table, metadata alone.

Must know no kinds and no objects. The server speaks JSON; what is asked for in nothing else is
refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from libs.testing.apiserver.status import StatusError

JSON = "application/json"


class ResponseForm(StrEnum):
    """What an answer may be, beside the object or the list itself."""

    PLAIN = ""
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"
    PARTIAL_LIST = "PartialObjectMetadataList"
    DISCOVERY = "APIGroupDiscoveryList"


OBJECT = (ResponseForm.TABLE, ResponseForm.PARTIAL)
"""What one object, or a watch, can be had as."""
LIST = (ResponseForm.TABLE, ResponseForm.PARTIAL_LIST)
"""What a list can be had as."""
GROUPS = (ResponseForm.DISCOVERY,)
"""What the groups of an API can be had as."""

_SPOKEN = {
    ResponseForm.TABLE: ("meta.k8s.io", "v1"),
    ResponseForm.PARTIAL: ("meta.k8s.io", "v1"),
    ResponseForm.PARTIAL_LIST: ("meta.k8s.io", "v1"),
    ResponseForm.DISCOVERY: ("apidiscovery.k8s.io", "v2"),
}
_ANY = ("", "*/*", "application/*", JSON)


def negotiate(accept: str, offered: Sequence[ResponseForm]) -> ResponseForm:
    """The first in the header that is offered; plain is offered always."""
    for media, parameters in _clauses(accept):
        if media not in _ANY:
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return ResponseForm.PLAIN
        for offer in offered:
            if wanted == offer and (parameters.get("g"), parameters.get("v")) == _SPOKEN[offer]:
                return offer
    forms = "".join(f", or as {offer}" for offer in offered)
    raise StatusError(
        406,
        "NotAcceptable",
        f"only the following media types are accepted: {JSON}{forms}; asked for was {accept!r}",
    )


def content_type(form: ResponseForm) -> str:
    """Of the answer. Only discovery's names its form, and a client looks for it there."""
    if form is not ResponseForm.DISCOVERY:
        return JSON
    group, version = _SPOKEN[form]
    return f"{JSON};g={group};v={version};as={form}"


def _clauses(accept: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    for clause in accept.split(","):
        media, *parameters = clause.split(";")
        pairs = (parameter.partition("=") for parameter in parameters)
        yield media.strip().lower(), {name.strip(): value.strip() for name, _, value in pairs}
