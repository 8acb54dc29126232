"""CUDA through the driver's own library, in a process for each GPU.

A process sees one GPU or MIG instance alone. A call that hangs in the driver cannot be interrupted,
and delays no other GPU; the end of a process closes its device files.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from libs.host import driver_files
from libs.host.cuda.outcome import judge
from libs.host.cuda.port import Computation, CudaProblem
from libs.host.gpus.library import find_library, folders_beside
from libs.host.tree import Tree

NAME: Final = "libcuda.so.1"
UVM: Final = "/dev/nvidia-uvm"

DEADLINE: Final = 30.0
"""Seconds for one GPU. The first context after a load takes seconds for each GPU of the machine."""
KILL_SECONDS: Final = 1.5
"""Seconds until a killed process is given up: one in a call of a broken driver cannot end."""
AT_ONCE: Final = 8
"""Processes at once: each takes the memory of a CUDA context, and the agent's is limited."""


class CudaProcesses:
    """CUDA on the machine below `tree`."""

    def __init__(
        self,
        tree: Tree,
        *,
        library: str = "",
        driver_root: str = driver_files.ROOT,
        deadline: float = DEADLINE,
        command: Sequence[str] = (),
    ) -> None:
        """`library` and `driver_root` are those of `find_library`."""
        self._tree = tree
        self._setting = library
        self._driver_root = driver_root
        self._deadline = deadline
        self._command = [*(command or (sys.executable, "-m", "libs.host.cuda.child"))]
        self._lock = threading.Lock()
        self._running = list[subprocess.Popen[bytes]]()
        self._is_closed = False

    def compute(self, uuids: Sequence[str]) -> tuple[Computation, ...]:
        batches = (uuids[start : start + AT_ONCE] for start in range(0, len(uuids), AT_ONCE))
        return tuple(each for batch in batches for each in self._compute(batch))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for process in self._running:
                process.kill()

    def _compute(self, uuids: Sequence[str]) -> list[Computation]:
        library = find_library(
            self._tree, name=NAME, setting=self._setting, driver_root=self._driver_root
        )
        folders = folders_beside(self._tree, library, driver_root=self._driver_root)
        processes = [self._start([library or NAME, *folders], uuid) for uuid in uuids]
        end = time.monotonic() + self._deadline
        try:
            pairs = zip(uuids, processes, strict=True)
            return [self._result(uuid, process, end) for uuid, process in pairs]
        finally:
            with self._lock:
                self._running.clear()

    def _start(self, arguments: Sequence[str], uuid: str) -> subprocess.Popen[bytes]:
        with self._lock:
            process = subprocess.Popen(  # noqa: S603  (this program itself)
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env={
                    **os.environ,
                    "CUDA_VISIBLE_DEVICES": uuid,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
            )
            self._running.append(process)
            if self._is_closed:
                process.kill()
        return process

    def _result(self, uuid: str, process: subprocess.Popen[bytes], end: float) -> Computation:
        # A result is far shorter than what a pipe holds, so that reading can wait for the end.
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(KILL_SECONDS)
            except subprocess.TimeoutExpired:
                return Computation(uuid=uuid, problem=CudaProblem.DRIVER_HUNG)
            return Computation(
                uuid=uuid, problem=CudaProblem.NO_ANSWER, detail=f"{self._deadline:g} s"
            )
        finally:
            output = b"" if process.returncode is None else process.communicate()[0]
        return judge(uuid, output, has_uvm=os.path.exists(UVM))
