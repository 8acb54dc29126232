"""Which paths an artefact may bring to a machine. Pure."""


def refusal(path: str) -> str:
    """Return why a path cannot be used; empty if it can."""
    if not _is_utf8(path):
        return "is not UTF-8"
    return ""


def printable(text: str) -> str:
    """Return a text such that it can be sent, whatever names are in it."""
    return text.encode(errors="backslashreplace").decode()


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
