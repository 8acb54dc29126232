"""The selection of objects by namespace, name, labels and fields."""

from collections.abc import Callable, Mapping

from libs.testing.apiserver.kinds.kind import NAME_FIELDS, ResourceKind
from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.objects.encoding import decoded
from libs.testing.apiserver.objects.selectors import field_selector, label_selector
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.store import StoredObject, field


class Selection:
    def __init__(
        self, kind: ResourceKind, *, namespace: str, name: str, query: Mapping[str, str]
    ) -> None:
        self.namespace = namespace
        self._name = name
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        self._labels = label_selector(labels) if labels else None
        self._fields = _by_fields(kind, fields) if fields else None
        self._indexed = not kind.custom
        self._indexes = {path: index for index, path in enumerate(kind.selectable)}

    @property
    def by_selector(self) -> bool:
        """Whether labels or fields select: then a page does not count what remains."""
        return self._labels is not None or self._fields is not None

    def matches(self, stored: StoredObject) -> bool:
        if self.namespace and stored.namespace != self.namespace:
            return False
        if self._name and stored.name != self._name:
            return False
        if self._labels is not None and not self._labels(stored.labels):
            return False
        return self._fields is None or self._fields(self._getter(stored))

    def _getter(self, stored: StoredObject) -> Callable[[str], str]:
        if self._indexed:
            return lambda path: stored.fields[self._indexes[path]]
        thing = decoded(stored.raw)
        return lambda path: field(thing, path)


def _by_fields(kind: ResourceKind, text: str) -> Callable[[Callable[[str], str]], bool]:
    try:
        return field_selector(text, supported=kind.selectable)
    except StatusError as error:
        path = error.message.removeprefix("field label not supported: ")
        if kind.custom or set(kind.selectable) - set(NAME_FIELDS) or path == error.message:
            raise
        known = ", ".join(f'"{each}"' for each in NAME_FIELDS)
        raise bad_request(f'"{path}" is not a known field selector: only {known}') from error
