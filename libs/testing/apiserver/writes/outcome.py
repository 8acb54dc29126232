"""What a write is about, and what came of it.

The modules here carry writes out: `changing` takes each verb on its way, and in `writing` what is
wanted becomes what is stored. Must not know how others read it, nor of faults and the journal.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.strategies import KindStrategy

Strategies = Callable[[ResourceKind], KindStrategy]


class WriteTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where somebody writes, as whom."""

    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str
    dry_run: bool = False


class WriteOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    code: int = 200
    raw: bytes
    """The body of the answer."""
    bare: bool = False
    """Whether the body is no object of the kind."""
    name: str = ""
    uid: str = ""
    revision: int = 0
    """Of the object in the answer; 0 where that shows none."""
    gone: bool = False
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    """As the answer has it where it shows the object."""
