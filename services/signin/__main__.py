"""The program of sign-in."""

from typing import Any

from libs.runtime.program import OneShot, Role, run_program
from services.roles import LazyRoles


def server_role() -> Role[Any]:
    from services.signin.role import SERVER

    return SERVER


def setup_role() -> OneShot:
    from services.signin.setup.role import main

    return main


if __name__ == "__main__":
    run_program("signin", LazyRoles({"server": server_role, "setup": setup_role}))
