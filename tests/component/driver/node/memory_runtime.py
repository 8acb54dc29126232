"""A container runtime that reads the files of a folder when it starts, as containerd 1.7 does.

In version 2 it has its own `runc` only as long as no file names a runtime. It does not start
without its default runtime.
"""

import tomllib
from fnmatch import fnmatchcase
from typing import Any

from libs.host.runtimes import containerd
from libs.host.runtimes.port import RestartRefused, RuntimeStatus, RuntimeUnavailable
from libs.host.tree import Tree

UNIT = "containerd.service"


class MemoryRuntime:
    def __init__(self, tree: Tree, *, unit: str = UNIT, main: str = containerd.MAIN) -> None:
        self._tree = tree
        self._unit = unit
        self._main = main
        self._pid = 100
        self._config: dict[str, Any] | None = None
        self.restarts = list[str]()
        """How each restart was asked for."""
        self.questions = 0
        self.fails_with_drop_in = False
        self.refusal = ""
        self.start()

    def start(self) -> None:
        self._pid += 1
        self._config = None
        if self.fails_with_drop_in and self._tree.exists(containerd.DROP_IN):
            return
        text = self._tree.read_text(self._main) or "version = 2\n"
        config = tomllib.loads(text)
        section = _section(config)
        for pattern in containerd.imports_of(text, self._main):
            folder, _, names = pattern.rpartition("/")
            for name in self._tree.names(folder):
                if fnmatchcase(name, names):
                    imported = tomllib.loads(self._tree.read_text(f"{folder}/{name}") or "")
                    section = _section(imported) or section
        of_containers = section.get("containerd", {})
        runtimes = of_containers.setdefault("runtimes", {})
        if config["version"] == 3 or not runtimes:
            runtimes = {"runc": {}, **runtimes}
        if of_containers.get("default_runtime_name", "runc") in runtimes:
            self._config = {**section, "runtimes": runtimes}

    def instance(self) -> object:
        return None if self._config is None else self._pid

    def status(self) -> RuntimeStatus:
        self.questions += 1
        if self._config is None:
            raise RuntimeUnavailable("the container runtime does not answer")
        return RuntimeStatus(
            name="containerd",
            handlers=frozenset(self._config["runtimes"]),
            reads_cdi=self._config.get("enable_cdi", False),
            pid=self._pid,
            unit=self._unit,
        )

    def stop(self, pid: int) -> None:
        assert pid == self._pid
        self.restarts.append("signal")
        self.start()

    def restart_unit(self, unit: str) -> None:
        assert unit == self._unit
        if self.refusal:
            raise RestartRefused(self.refusal)
        self.restarts.append(unit)
        self.start()


def _section(config: dict[str, Any]) -> dict[str, Any]:
    plugins = config.get("plugins", {})
    return next((plugins[name] for name in containerd.SECTIONS.values() if name in plugins), {})
