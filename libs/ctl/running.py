"""Run the verbs that only read: gather, then show."""

import asyncio
import time

from libs.ctl.answers import NodeAnswer, Status
from libs.ctl.gather import gather_status, gather_why
from libs.ctl.options import Access
from libs.ctl.output import Format, show


def show_status(access: Access, name: str, output: Format | None) -> None:
    answer = asyncio.run(gather_status(access, name))
    if isinstance(answer, NodeAnswer):
        _show_node(answer, output)
    else:
        _show_pools(answer, output)


def show_why(access: Access, node: str, output: Format | None) -> None:
    _show_node(asyncio.run(gather_why(access, node)), output)


def _show_pools(status: Status, output: Format | None) -> None:
    from libs.ctl.views.status import status_view

    now = time.time()
    show(
        status,
        lambda width, wide: status_view(status, now=now, width=width, wide=wide),
        format=output,
    )


def _show_node(answer: NodeAnswer, output: Format | None) -> None:
    from libs.ctl.views.node import node_view

    now = time.time()
    show(answer, lambda _, wide: node_view(answer, now=now, wide=wide), format=output)
