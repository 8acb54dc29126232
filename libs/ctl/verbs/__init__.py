"""The verbs' arguments and help. Light to import: each verb imports what it needs when it runs."""

import typer

from libs.ctl.verbs import mig, people, queries


def register(app: typer.Typer) -> None:
    """Add all verbs to the command."""
    if app.registered_commands:
        return
    queries.register(app)
    people.register(app)
    mig.register(app)
