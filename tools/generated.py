"""Files of the checkout that tools write, or find stale."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def write(files: Mapping[str, str], *, check: bool) -> int:
    """Write the files that differ, or with `check` list them; return the exit status."""
    status = 0
    for path, text in files.items():
        file = ROOT / path
        if file.exists() and file.read_text() == text:
            continue
        if check:
            print(f"{path} is stale: run `make fix`", file=sys.stderr)
            status = 1
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            print(f"wrote {path}")
    return status
