"""How much memory this process has, as Linux counts it. Imports nothing: it adds nothing."""


def resident() -> float:
    """MiB now."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
