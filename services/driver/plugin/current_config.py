"""The configuration in use: of the settings and of a file, which a ConfigMap may replace."""

from pathlib import Path
from typing import Final

from libs.host.machine import Offload
from libs.runtime.logs import logger
from services.driver.plugin.config import PluginConfig, RefusedConfig
from services.driver.plugin.config_file import MAX_BYTES, load_config
from services.driver.plugin.settings import PluginSettings, with_settings

READ_INTERVAL: Final = 10.0
"""Seconds until a change is noticed; the kubelet itself takes about a minute."""

_log = logger()


class CurrentConfig:
    """A file that is refused changes nothing; without an earlier one there is no configuration."""

    def __init__(self, settings: PluginSettings, offload: Offload) -> None:
        self._settings = settings
        self._offload = offload
        self._text: str | None = None
        self.problem = ""
        """Why the file is not in use; empty if it is."""
        self.current: PluginConfig | None = None
        if not settings.plugin_config:
            self.current = with_settings(PluginConfig(), settings)

    async def read(self) -> None:
        """Read the file, if there is one."""
        path = self._settings.plugin_config
        if not path:
            return
        try:
            text = await self._offload.run(lambda: _read(path))
            if text != self._text:
                self._use(text)
            self._text, self.problem = text, ""
        except (OSError, RefusedConfig) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            problem = f"the configuration {Path(path).name} is not in use: {reason}"
            if problem != self.problem:
                _log.error(problem, file=path)
            self.problem = problem
            self._text = None

    def _use(self, text: str) -> None:
        loaded = load_config(text)
        self.current = with_settings(loaded.config, self._settings)
        _log.info("configuration read", file=self._settings.plugin_config)
        if loaded.ignored:
            _log.warning("parts of the configuration have no effect", parts=list(loaded.ignored))


def _read(path: str) -> str:
    with Path(path).open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RefusedConfig("it is not UTF-8: write text") from None
