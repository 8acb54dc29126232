"""Run a plan in a process of its own.

A plan of thousands of nodes computes for a minute in hundreds of megabytes. In a thread it would
stop the event loop for more than a second at a time, because the garbage collector holds the
interpreter. The process has limits of memory and CPU time, and is killed when its query ends.
"""

import asyncio
import gc
import os
import pickle
import resource
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from libs.contracts.lengths import JobLengths
from libs.contracts.message import decode, encode
from libs.contracts.queries import PlanAnswer
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView

if TYPE_CHECKING:
    from libs.forecast.options import PlanOptions

MEMORY: Final = 2 << 30
CPU_SECONDS: Final = 300
NICE: Final = 10
_NODES_AT_ONCE: Final = 100
"""Nodes that are pickled without a pause: about 10 ms."""
_LENGTH: Final = struct.Struct(">Q")


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    fleet: Fleet
    now: Instant
    pool: str
    options: "PlanOptions"
    finish_by: float | None = None
    seed: int = 0
    job_lengths: JobLengths | None = None
    """How long the jobs of the pool ran; None: it is not known."""


PlanRunner = Callable[[PlanRequest], Awaitable[PlanAnswer]]


class PlanFailed(Exception):
    """The process ended without an answer."""


def answer_plan(request: PlanRequest) -> PlanAnswer:
    """Compute the plan here; the simulator is imported with the first one."""
    from libs.forecast.plan import plan

    return plan(
        request.fleet,
        request.now,
        pool=request.pool,
        options=request.options,
        finish_by=request.finish_by,
        seed=request.seed,
        job_lengths=request.job_lengths,
    ).answer


async def run_in_process(request: PlanRequest) -> PlanAnswer:
    """Compute the plan in a process, which ends with this call."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.scheduler.plan_process",
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        raise RuntimeError("the process of the plan has no pipes, although they were requested")
    try:
        _, answer, errors = await asyncio.gather(
            _send(stdin, request), stdout.read(), stderr.read()
        )
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise PlanFailed(f"the plan could not be computed: {last or f'its process ended: {code}'}")
    return decode(PlanAnswer, answer)


async def _send(pipe: asyncio.StreamWriter, request: PlanRequest) -> None:
    try:
        for part in _parts(request):
            frame = pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL)
            pipe.write(_LENGTH.pack(len(frame)) + frame)
            await pipe.drain()
            await asyncio.sleep(0)
        pipe.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the process has ended: its error says why


def _parts(request: PlanRequest) -> Iterator[PlanRequest | tuple[NodeView, ...]]:
    """Yield the request without nodes, then its nodes."""
    fleet = msgspec.structs.replace(request.fleet, nodes={})
    yield msgspec.structs.replace(request, fleet=fleet)
    nodes = iter(request.fleet.nodes.values())
    while some := tuple(islice(nodes, _NODES_AT_ONCE)):
        yield some


def _read(pipe: BinaryIO) -> PlanRequest:
    frames = iter(lambda: pipe.read(_LENGTH.size), b"")
    parts = (
        pickle.loads(pipe.read(_LENGTH.unpack(length)[0]))  # noqa: S301 - from the parent process
        for length in frames
    )
    request: PlanRequest = next(parts)
    nodes = {node.name: node for some in parts for node in some}
    return msgspec.structs.replace(
        request, fleet=msgspec.structs.replace(request.fleet, nodes=nodes)
    )


def collect_rarely() -> None:
    """Look for garbage rarely: what a plan allocates is mostly kept until its process ends."""
    gc.set_threshold(50_000, 50, 100)


def main() -> None:
    collect_rarely()
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    sys.stdout.buffer.write(encode(answer_plan(_read(sys.stdin.buffer))))


if __name__ == "__main__":
    main()
