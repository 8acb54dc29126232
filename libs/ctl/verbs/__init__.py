"""The verbs: each has its arguments, its help and what carries it out in one module.

Light to import: a verb imports what it needs when it runs.
"""

import typer

from libs.ctl.verbs import lease, mig, queries, upgrade


def register(app: typer.Typer) -> None:
    """Add all verbs to the command."""
    if app.registered_commands:
        return
    queries.register(app)
    upgrade.register(app)
    lease.register(app)
    mig.register(app)
