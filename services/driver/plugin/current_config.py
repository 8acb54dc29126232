"""The configuration in use: of the settings and of a file, which a ConfigMap may replace.

A node's label names one of the files, and the agent is told which by its commands. A node without
the label has the default of the policy, or no file.
"""

import asyncio
import re
from pathlib import Path
from typing import Final

from libs.host.machine import Offload
from libs.policy.plain_yaml import MAX_LENGTH
from libs.policy.plugin_config.config import PluginConfig, RefusedConfig
from libs.policy.plugin_config.file import load_config
from libs.runtime.logs import logger
from services.driver.plugin.settings import PluginSettings, with_settings

READ_INTERVAL: Final = 10.0
"""Seconds until a change is noticed; the kubelet itself takes about a minute."""

_NAME: Final = re.compile(r"(?!\.\.|\.$)[-._a-zA-Z0-9]{1,253}")
"""A key of a ConfigMap, without the names that the kubelet keeps for itself in the folder."""

_log = logger()


class CurrentConfig:
    """A file that is refused changes nothing; without an earlier one there is no configuration."""

    def __init__(self, settings: PluginSettings, offload: Offload) -> None:
        self._settings = settings
        self._offload = offload
        self._chosen = ""
        self._text: str | None = None
        # An older file must not be read later than a newer one.
        self._lock = asyncio.Lock()
        self.problem = ""
        """Why the file is not in use; empty if it is."""
        self.current: PluginConfig | None = None

    async def choose(self, name: str) -> None:
        """Use the file with this name from now on; empty: the default."""
        self._chosen = name
        await self.read()

    async def read(self) -> None:
        """Read the file, if there is one."""
        async with self._lock:
            settings = self._settings
            name = self._chosen or settings.plugin_config
            if not (name and settings.plugin_config_dir):
                self.current = with_settings(PluginConfig(), settings)
                self._text, self.problem = None, ""
                return
            try:
                await self._read(name)
                self.problem = ""
            except RefusedConfig as error:
                problem = f"the configuration {name[:80]} is not in use: {error}"
                if problem != self.problem:
                    _log.error(problem, folder=settings.plugin_config_dir)
                self.problem, self._text = problem, None

    async def _read(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise RefusedConfig("no key of a ConfigMap has this name: name another")
        path = Path(self._settings.plugin_config_dir) / name
        text = await self._offload.run(lambda: _text_of(path))
        if text == self._text:
            return
        loaded = await self._offload.run(lambda: load_config(text))
        self.current, self._text = with_settings(loaded.config, self._settings), text
        _log.info("configuration read", file=str(path))
        if loaded.ignored:
            _log.warning("parts of the configuration have no effect", parts=list(loaded.ignored))


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LENGTH + 1)
    except FileNotFoundError:
        raise RefusedConfig(
            "the ConfigMap that spec.devicePlugin.config.name of the policy names has no such key:"
            " add it, or name another"
        ) from None
    except OSError as error:
        raise RefusedConfig(f"it cannot be read: {error.strerror}") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RefusedConfig("it is not UTF-8: write text") from None
