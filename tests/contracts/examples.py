"""Examples of messages, with their bodies if they are envelopes."""

from typing import Any, NamedTuple


class Example(NamedTuple):
    """The decoded content of a golden file."""

    message: Any
    body: Any = None


NODE = "gpu-1.rack-7.example"
NODE_UID = "2b7c1c52-9f0e-4b47-8d4e-5a3c90c1a001"
BOOT = "6a1d2f0b-3c44-4d1e-9a57-0e6f5b7c8d90"
POOL = "clusterpolicy-cluster-policy"
TARGET = "t-5f1c9a02"
LABEL = "d-8e21b7c4"
LABEL_BEFORE = "d-1f40aa93"
INSTALL = "sha256:0c5d9f7e"
ARTEFACT = "sha256:77aa31b0"
OLD_POD = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01"
NEW_POD = "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
JOB_POD = "0f5b7a0e-3333-4c1d-8f2e-0a1b2c3d4e03"
KERNEL = "6.8.0-48-generic"
GPU = "GPU-5d0a1c9e-7f3b-4a21-b9d4-1e2f3a4b5c6d"
T0 = 1793530800.0
"""The time of the first example, in Unix seconds."""
EPOCH, TOKEN, OP = 7, 12, 3
