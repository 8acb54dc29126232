"""What tests ask of a driver container: a file per version, in the folder of the stand-in."""

from dataclasses import dataclass
from typing import Final

INCIDENTS: Final = "incidents"
"""The file in the folder of the stand-in with what must never happen, a line each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverSettings:
    install_seconds: float = 1.0
    failure: str = ""
    """Why the installation fails; empty if it does not."""
    hangs: bool = False
    """Whether the installation goes on until the file says otherwise."""
    loads: str = ""
    """The version of the modules, if it is not that of the libraries."""
    leaves_modules: bool = False
    """Whether modules and root stay when the container ends."""
    lives_seconds: float = 0.0
    """After how long a container that is ready is killed; 0: it is not."""
    end_seconds: float = 0.0
    """How long the container takes to end."""


def settings_file(version: str) -> str:
    """Return the path of the file in the folder of the stand-in."""
    return f"driver-{version}.json"
