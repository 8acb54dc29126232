"""Grants: which candidates of a pool start now, and why the others wait."""

from libs.rollout.allocate.allocation import Allocation, allocate
from libs.rollout.allocate.queues import CandidateQueue, CandidateQueues

__all__ = ["Allocation", "CandidateQueue", "CandidateQueues", "allocate"]
