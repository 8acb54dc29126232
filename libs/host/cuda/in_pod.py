"""Compute on the GPU that a pod asked for: `python -m libs.host.cuda.in_pod`.

The library is found as the programs of users find it. What is printed tells people what came of it.
"""

import os
import sys
from typing import Final

from libs.host.cuda.child import CudaError, Driver, compute

LIBRARY: Final = "libcuda.so.1"


def prove() -> tuple[bool, str]:
    """Return whether the GPU computes right, and what came of it."""
    try:
        device, wrong = compute(Driver(LIBRARY))
    except CudaError as error:
        return False, f"the pod has no GPU that it can use: {error}"
    if wrong:
        return False, f"GPU {device} computes wrong: {wrong} values differ"
    return True, f"GPU {device} computes right"


def main() -> None:
    passed, text = prove()
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    os._exit(0 if passed else 1)  # what the library does at exit may hang, and adds nothing


if __name__ == "__main__":
    main()
