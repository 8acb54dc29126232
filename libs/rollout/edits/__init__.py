"""What people and other managers did to a node, and what follows (docs/states.md#people).

Looked at before anything else about a node, whether it is leased or at rest: one module for each
kind of thing that is edited. Who did it is read from the managers of the fields, never remembered.
"""

from libs.rollout.edits.dispatch import handle_edits
from libs.rollout.edits.requests import consume_requests

__all__ = ["consume_requests", "handle_edits"]
