"""Who of a pool's candidates starts now, who is asked first, and why the others wait.

`allocate` goes along the candidates in their order while there are places. Must not know what a
start consists of, nor write anything.
"""

from libs.rollout.allocate.granting import Grant, allocate
from libs.rollout.allocate.queues import Queue, Queues

__all__ = ["Grant", "Queue", "Queues", "allocate"]
