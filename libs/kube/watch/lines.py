"""Lines out of bytes that come cut anywhere."""


class Lines:
    """What is fed in comes out by whole lines; a long line is put together only once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this completes, without their ends; none of them is empty."""
        if b"\n" not in chunk:
            if chunk:
                self._parts.append(chunk)
            return []
        if self._parts:
            chunk = b"".join((*self._parts, chunk))
        *whole, rest = chunk.split(b"\n")
        self._parts = [rest] if rest else []
        return [line for line in whole if line]

    @property
    def begun(self) -> bool:
        """Whether a line has begun that has not ended."""
        return bool(self._parts)
