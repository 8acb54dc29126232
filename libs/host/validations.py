"""The folder of the files that tell pods on the machine what is proven in this boot.

Names and contents are those of the GPU Operator, because pods of others wait for them.
"""

from typing import Final

FOLDER: Final = "/run/nvidia/validations"
CUDA: Final = f"{FOLDER}/cuda-ready"
"""Each GPU that works has computed."""
