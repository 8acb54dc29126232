"""Replays revisions into objects: the state of every Node, Rollout and policy at any position.

Replaying only reads. What is right or wrong is for `libs.audit.checks` to judge.
"""
