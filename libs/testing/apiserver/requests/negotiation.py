"""The form of a response that the Accept header requests: JSON, or a Table as JSON."""

from libs.testing.apiserver.status import StatusError

JSON = "application/json"
_ANY = ("", "*/*", "application/*", JSON)
_TABLE = {"as": "Table", "g": "meta.k8s.io", "v": "v1"}


def wants_table(accept: str, *, offered: bool = True) -> bool:
    """Return whether the first acceptable form is a Table; False is plain JSON."""
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media.lower() not in _ANY:
            continue
        form = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if "as" not in form:
            return False
        if offered and {name: form.get(name) for name in _TABLE} == _TABLE:
            return True
    table = ", or as Table" if offered else ""
    message = f"only the following media types are accepted: {JSON}{table}; not {accept!r}"
    raise StatusError(406, "NotAcceptable", message)
