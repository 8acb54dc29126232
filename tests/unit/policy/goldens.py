"""The golden files of rendering: what is applied in each situation, for a person to read.

`python -m tests.unit.policy.goldens` writes them anew; what has changed shows in the diff.
"""

from pathlib import Path
from typing import Any

import yaml

from libs.policy.installation.objects import installation_objects
from tests.unit.policy.situations import SETTINGS, SITUATIONS

GOLDEN = Path(__file__).parent / "golden"
INSTALLATION = "installation"


class _Readable(yaml.SafeDumper):
    """Scripts as they are, lists under their key, and nothing said by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)


def golden_objects(name: str) -> list[dict[str, Any]]:
    """What is rendered."""
    if name == INSTALLATION:
        return list(installation_objects(SETTINGS.namespace))
    return [made.object for made in SITUATIONS[name].rendering().objects]


def golden_text(name: str) -> str:
    """The golden file as it should be."""
    return yaml.dump_all(
        golden_objects(name), Dumper=_Readable, sort_keys=False, width=100, explicit_start=True
    )


def golden_path(name: str) -> Path:
    """Where it is."""
    return GOLDEN / f"{name}.yaml"


NAMES = (INSTALLATION, *SITUATIONS)

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for one in NAMES:
        golden_path(one).write_text(golden_text(one))
