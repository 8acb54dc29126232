"""The bus on a NATS server. The only package that imports nats."""

import importlib
import sys
from typing import Any, cast

# nats-py imports aiohttp where it is installed, for WebSockets, which the bus does not use: without
# it an agent takes 7 MiB less. Where it is loaded already, it costs nothing.
if "aiohttp" not in sys.modules:
    cast(dict[str, Any], sys.modules)["aiohttp"] = None
    try:
        importlib.import_module("nats.aio.transport")
    finally:
        del sys.modules["aiohttp"]
