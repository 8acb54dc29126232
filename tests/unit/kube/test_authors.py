"""Who is said to have written a field of an object."""

import msgspec
import pytest

from libs.contracts import rollout
from libs.kube.authors import Author, brake_author, release_author, user_of
from libs.kube.views import ManagedFields, Metadata

AT, NOON = "2027-01-15T12:00:00Z", 1_800_014_400.0
BRAKE = '{"f:spec":{"f:brake":{}}}'


def entry(
    manager: str, fields: str = BRAKE, time: str = AT, subresource: str = ""
) -> ManagedFields:
    raw = msgspec.Raw(fields.encode())
    return ManagedFields(manager=manager, time=time, fields_v1=raw, subresource=subresource)


def by(*entries: ManagedFields, **annotations: str) -> Author | None:
    """Return the author of the brake, after alice had set it by `sluice`."""
    keys = {"user": rollout.BRAKE_SET_BY, "reason": rollout.BRAKE_REASON}
    texts = {keys[name]: text for name, text in ({"user": "alice"} | annotations).items()}
    return brake_author(Metadata(name="gpus", annotations=texts, managed_fields=entries))


@pytest.mark.parametrize(
    ("manager", "name"),
    [
        ("kubectl-sluice", "alice"),
        ("kubectl-edit", "somebody with kubectl"),
        ("kubectl", "somebody with kubectl"),
        ("argocd-controller", "somebody with argocd-controller"),
        ("", "somebody"),
        ("sluice-scheduler", "Sluice"),
    ],
)
def test_a_user_is_named_only_while_sluice_wrote_the_field_last(manager: str, name: str) -> None:
    scheduler = entry("sluice-scheduler", subresource="status")
    assert by(scheduler, entry("other", "[]"), entry(manager)) == Author(name=name, at=NOON)


def test_the_last_of_several_owners_is_the_author() -> None:
    later = entry("helm", time="2027-01-15T13:00:00Z")
    assert by(later, entry("kubectl-sluice")) == Author(name=user_of("helm"), at=NOON + 3600)


def test_the_reason_is_cut_and_harms_no_terminal() -> None:
    author = by(entry("kubectl-sluice"), reason="bad \x1b[31m driver" + "!" * 300)
    assert author is not None
    assert author.reason.startswith("bad  [31m driver!")
    assert len(author.reason) == 200


def test_without_a_name_in_the_annotation_the_program_is_said() -> None:
    assert by(entry("kubectl-sluice"), user="") == Author(name="somebody with sluice", at=NOON)


def test_nobody_is_named_where_no_program_is_recorded() -> None:
    assert by() is None
    assert by(entry("kubectl-label", '{"f:metadata":{"f:labels":{}}}')) is None
    assert by(entry("kubectl-edit", time="")) == Author(name="somebody with kubectl")


def test_a_release_has_an_author_of_its_own() -> None:
    texts = {rollout.BRAKE_SET_BY: "alice", rollout.RELEASE_SET_BY: "bob"}
    release = entry("kubectl-sluice", '{"f:spec":{"f:release":{"f:target":{}}}}')
    metadata = Metadata(name="gpus", annotations=texts, managed_fields=(release,))
    assert release_author(metadata) == Author(name="bob", at=NOON)
    assert brake_author(metadata) is None
