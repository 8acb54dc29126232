"""The golden files of rendering: the objects of each situation.

`python -m tests.unit.policy.goldens` rewrites them.
"""

from pathlib import Path
from typing import Any

import yaml

from libs.policy.installation import installation_objects
from tests.unit.policy.situations import SETTINGS, SITUATIONS

GOLDEN = Path(__file__).parent / "golden"
INSTALLATION = "installation"


class _Readable(yaml.SafeDumper):
    """Writes scripts as block text, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Readable.add_representer(str, _text)


def golden_objects(name: str) -> list[dict[str, Any]]:
    if name == INSTALLATION:
        return list(installation_objects(SETTINGS.namespace))
    return [rendered.object for rendered in SITUATIONS[name].rendering().objects]


def golden_text(name: str) -> str:
    return yaml.dump_all(
        golden_objects(name), Dumper=_Readable, sort_keys=False, width=100, explicit_start=True
    )


def golden_path(name: str) -> Path:
    return GOLDEN / f"{name}.yaml"


NAMES = (INSTALLATION, *SITUATIONS)

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in NAMES:
        golden_path(name).write_text(golden_text(name))
