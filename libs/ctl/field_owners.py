"""Whose a field is that a person is about to write: a chart's, a pipeline's, or people's. Pure.

A field that a program keeps writing is not taken from it: it would write its value again, or, with
server-side apply, refuse its whole next change because of this field.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from libs.contracts.node import COMMAND
from libs.ctl.failures import ExitCode, Failure
from libs.kube.ownership import owned_fields
from libs.kube.views import ManagedFields, Metadata

_PEOPLES: Final = "kubectl"
"""How the field managers begin by which people write once: of kubectl, and of this command."""
_APPLY: Final = "Apply"
_HELM: Final = "helm"
_RELEASE: Final = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
_KNOWN: Final = {
    "argocd-controller": "Argo CD",
    "helm-controller": "Flux",
    "kustomize-controller": "Flux",
    "kubectl": "`kubectl apply --server-side` of a file",
}


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of an object, and how a chart's values name it, if they do."""

    path: tuple[str, ...]
    value: str = ""
    """The value of the chart; empty: no chart of Sluice or NVIDIA writes the field."""

    def __str__(self) -> str:
        return ".".join(self.path)


class FieldOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A program that keeps writing a field."""

    manager: str
    applies: bool
    """By server-side apply, which refuses to change what another has written since."""
    release: str
    """The release of Helm that the object belongs to: ` sluice in the namespace gpu-operator`."""

    def __str__(self) -> str:
        if self.manager == _HELM:
            return f"Helm, as release{self.release}" if self.release else "Helm"
        return _KNOWN.get(self.manager, self.manager)

    def line(self, field: Field, wanted: str) -> str:
        """Return what to change there."""
        if self.manager == _HELM and field.value:
            return f"set `{field.value}: {wanted}` in the values and run `helm upgrade`"
        return f"set `{field}: {wanted}` where it takes it from"

    def way_back(self, field: Field, wanted: str) -> str:
        """Return how the program gets a field back that was taken from it."""
        if not self.applies:
            return (
                f"The field is written by {self} too, which may write it back:"
                f" {self.line(field, wanted)}"
            )
        name = str(field)
        forced = "has to force conflicts once"
        if self.manager == _HELM:
            name, forced = field.value or name, "needs `helm upgrade --force-conflicts` once"
        return (
            f"The field was taken from {self}, which meets a conflict as long as its {name} is"
            f" another. To give it back, set `{name}: {wanted}` there; the next change of it there"
            f" {forced}"
        )


def owner_of(metadata: Metadata, field: Field) -> FieldOwner | None:
    """Return the program that keeps writing a field; None: people do, or nobody has."""
    found = [each for each in _owners(metadata.managed_fields, field) if _keeps_writing(each)]
    last = max(found, key=lambda each: (each.operation == _APPLY, each.time), default=None)
    if last is None:
        return None
    name, namespace = (metadata.annotations.get(key, "") for key in _RELEASE)
    release = f" {name} in the namespace {namespace}" if name and namespace else ""
    return FieldOwner(manager=last.manager, applies=last.operation == _APPLY, release=release)


def refuse_to_take(owner: FieldOwner, about: str, field: Field, wanted: str) -> Failure:
    """Return the refusal to write a field of a program."""
    harm = "meets a conflict at its next change" if owner.applies else "may write it back"
    return Failure(
        ExitCode.REFUSED,
        f"{about}: {field} is managed by {owner}, which {harm} if it is written here; nothing was"
        f" written: {owner.line(field, wanted)}. `--force` takes the field",
    )


def _owners(entries: Sequence[ManagedFields], field: Field) -> Iterator[ManagedFields]:
    return (each for each in entries if not each.subresource and _owns(each, field.path))


def _keeps_writing(entry: ManagedFields) -> bool:
    if entry.manager == COMMAND:
        return False
    return entry.operation == _APPLY or not entry.manager.startswith(_PEOPLES)


def _owns(entry: ManagedFields, path: Sequence[str]) -> bool:
    try:
        fields: Any = msgspec.to_builtins(owned_fields(entry))
    except ValueError:  # not as an API server writes them
        return False
    for part in path:
        fields = fields.get(f"f:{part}")
        if fields is None:
            return False
    return True
