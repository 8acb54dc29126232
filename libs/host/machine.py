"""One machine, whole: what an agent is given of it."""

import msgspec

from libs.host.access import Access
from libs.host.gpus.port import Gpus
from libs.host.linux import Linux
from libs.host.tree import Tree


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Its files, its kernel and its GPUs, and how they are reached without holding up a loop."""

    tree: Tree
    access: Access
    gpus: Gpus
    linux: Linux | None = None
    """None: this agent may not change the machine."""
