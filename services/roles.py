"""The roles of a program, each imported when it is chosen: a process holds one role's modules."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from libs.runtime.program import OneShot, Role


class LazyRoles(Mapping[str, Role[Any] | OneShot]):
    def __init__(self, loaders: Mapping[str, Callable[[], Role[Any] | OneShot]]) -> None:
        self._loaders = loaders

    def __getitem__(self, name: str) -> Role[Any] | OneShot:
        return self._loaders[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)
