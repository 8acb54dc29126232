"""The target of a write, and its outcome."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.strategies import KindStrategy

Strategies = Callable[[ResourceKind], KindStrategy]


class WriteTarget(msgspec.Struct, frozen=True, kw_only=True):
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str
    dry_run: bool = False


class WriteOutcome(msgspec.Struct, frozen=True, kw_only=True):
    code: int = 200
    raw: bytes
    """The body of the response."""
    bare: bool = False
    """Whether the body is something else than an object of the kind."""
    name: str = ""
    uid: str = ""
    revision: int = 0
    """Of the object in the response; 0 without one."""
    gone: bool = False
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    """The object in the response."""
