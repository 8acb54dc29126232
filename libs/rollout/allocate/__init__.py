"""Who of a pool's candidates starts now, who is asked first, and why the others wait.

`allocate` goes along the candidates in their order while there are places. Must not know what a
start consists of, nor write anything.
"""

from libs.rollout.allocate.allocation import Allocation, allocate
from libs.rollout.allocate.queues import CandidateQueue, CandidateQueues

__all__ = ["Allocation", "CandidateQueue", "CandidateQueues", "allocate"]
