"""The configuration file is read where it delays no answer to the kubelet."""

import threading
from pathlib import Path

import pytest

from libs.host.machine import ThreadOffload
from libs.policy.plugin_config.file import LoadedConfig, load_config
from services.driver.plugin import current_config
from services.driver.plugin.current_config import CurrentConfig
from services.driver.plugin.settings import PluginSettings


async def test_a_file_is_parsed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(text: str) -> LoadedConfig:
        threads.append(threading.current_thread())
        return load_config(text)

    monkeypatch.setattr(current_config, "load_config", noted)
    (tmp_path / "ours").write_text("flags: {gdsEnabled: true}")
    settings = PluginSettings(node="n", plugin_config_dir=str(tmp_path), plugin_config="ours")
    async with ThreadOffload("test") as offload:
        config = CurrentConfig(settings, offload)
        await config.read()
    assert config.current is not None
    assert config.current.gds
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
