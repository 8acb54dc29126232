"""Nodes without an upgrade lease: in place, or what is missing and which operation they need."""

from libs.rollout.at_rest.dispatch import step_at_rest

__all__ = ["step_at_rest"]
