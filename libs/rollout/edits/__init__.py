"""Edits by people and other managers, and what follows from them (docs/states.md#people).

Handled before anything else, for nodes with and without a lease. The author of an edit is read from
the field managers.
"""

from libs.rollout.edits.dispatch import handle_edits
from libs.rollout.edits.requests import consume_requests

__all__ = ["consume_requests", "handle_edits"]
