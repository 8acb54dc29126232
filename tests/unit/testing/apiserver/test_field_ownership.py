"""Laws of ownership that hold whatever is written, applied and dropped, by whomever."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from libs.testing.apiserver.objects.apply import apply
from libs.testing.apiserver.objects.fields import difference, paths, stated, union
from libs.testing.apiserver.objects.managed_fields import stripped, track
from libs.testing.apiserver.objects.patches import without_nulls
from libs.testing.apiserver.objects.shapes import MergeShape, from_schema
from libs.testing.apiserver.status import StatusError

Object = dict[str, Any]

NUMBER = {"type": "integer"}
ITEM = {"type": "object", "properties": {"name": {"type": "string"}, "v": NUMBER, "w": NUMBER}}
SPEC = {
    "plain": NUMBER,
    "map": {"type": "object", "additionalProperties": NUMBER},
    "one": {"type": "object", "additionalProperties": NUMBER, "x-kubernetes-map-type": "atomic"},
    "list": {"type": "array", "items": NUMBER},
    "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    "keyed": {
        "type": "array",
        "items": ITEM,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
}
SHAPE: MergeShape = from_schema(
    {"type": "object", "properties": {"spec": {"type": "object", "properties": SPEC}}}
)

NUMBERS = st.integers(0, 2)
MAPS = st.dictionaries(st.sampled_from("abc"), NUMBERS, min_size=1, max_size=3)
ITEMS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("xyz")}, optional={"v": NUMBERS, "w": NUMBERS}),
    min_size=1,
    max_size=3,
    unique_by=lambda item: item["name"],
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "plain": NUMBERS,
        "map": MAPS,
        "one": MAPS,
        "list": st.lists(NUMBERS, min_size=1, max_size=3),
        "set": st.lists(st.sampled_from("pqr"), min_size=1, max_size=3, unique=True),
        "keyed": ITEMS,
    },
)


def thing(spec: Object) -> Object:
    return {"metadata": {"name": "t"}, **({"spec": spec} if spec else {})}


def applied(live: Object | None, spec: Object, by: str, *, force: bool = True) -> Object:
    before = copy.deepcopy(live)
    result = apply(
        live,
        thing(spec),
        manager=by,
        force=force,
        api_version="v1",
        subresource="",
        time="2026-01-01T00:00:00Z",
        shape=SHAPE,
    )
    assert live == before
    return result


def written(live: Object | None, spec: Object, by: str) -> Object:
    new = thing(spec)
    if live is not None:
        new = {**live, "spec": spec}
    return track(
        live,
        new,
        manager=by,
        api_version="v1",
        subresource="",
        time="2026-01-01T00:00:00Z",
        shape=SHAPE,
    )


def fields_of(obj: Object, by: str) -> Object:
    managed = obj["metadata"].get("managedFields", [])
    return next((entry["fieldsV1"] for entry in managed if entry["manager"] == by), {})


def all_owned(obj: Object) -> Object:
    result: Object = {}
    for entry in obj["metadata"].get("managedFields", []):
        result = union(result, entry["fieldsV1"])
    return result


def bare(obj: Object) -> Object:
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": meta}


STEPS = st.lists(st.tuples(st.sampled_from("PA"), st.sampled_from("mno"), SPECS), max_size=4)


def lived(steps: list[tuple[str, str, Object]]) -> Object:
    obj = written(None, {"plain": 0}, "m")
    for kind, by, spec in steps:
        obj = applied(obj, spec, by) if kind == "A" else written(obj, spec, by)
    return obj


@settings(deadline=None)
@given(STEPS)
def test_every_value_has_an_owner(steps: list[tuple[str, str, Object]]) -> None:
    obj = lived(steps)
    # A list that lost its last item stands as null, which is nobody's.
    there = stripped(stated(without_nulls(bare(obj)), SHAPE))
    ownerless = [path for path in paths(difference(there, all_owned(obj))) if path != ".spec"]
    # The item or map itself may have lost its owner; what stands in it has one.
    leaves = [
        path
        for path in ownerless
        if not any(o.startswith(path) and o != path for o in paths(there))
    ]
    assert leaves == []


@settings(deadline=None)
@given(STEPS)
def test_nobody_owns_what_is_not_there(steps: list[tuple[str, str, Object]]) -> None:
    obj = lived(steps)
    there = set(paths(stated(bare(obj), SHAPE)))
    inner = {path for path in paths(all_owned(obj)) if path not in there}
    # A structure that somebody wrote is owned itself, though an apply would not say it.
    assert all(any(o.startswith(path) for o in there) or path == ".spec" for path in inner)


@settings(deadline=None)
@given(STEPS, SPECS, st.sampled_from("mno"))
def test_an_apply_is_done_once(steps: Any, spec: Object, by: str) -> None:
    obj = applied(lived(steps), spec, by)
    assert applied(obj, spec, by) is obj
    assert applied(obj, spec, by, force=False) is obj


@settings(deadline=None)
@given(STEPS, SPECS, st.sampled_from("mno"))
def test_what_was_applied_is_there_and_owned(steps: Any, spec: Object, by: str) -> None:
    obj = applied(lived(steps), spec, by)
    again = applied(obj, spec, "somebody else", force=False)
    assert bare(again) == bare(obj), "so it holds everything that was said"
    [entry] = [
        entry
        for entry in obj["metadata"].get("managedFields", [])
        if (entry["manager"], entry["operation"]) == (by, "Apply")
    ] or [{"fieldsV1": {}}]
    assert entry["fieldsV1"] == stripped(stated(thing(spec), SHAPE))


@settings(deadline=None)
@given(STEPS, SPECS)
def test_who_applies_and_drops_it_all_leaves_no_trace(steps: Any, spec: Object) -> None:
    obj = applied(lived(steps), {}, "guest")
    visited = obj
    if fits(obj, spec):
        visited = applied(applied(obj, spec, "guest", force=False), {}, "guest")
    assert fields_of(visited, "guest") == {}
    assert stated(bare(visited), SHAPE) == stated(bare(obj), SHAPE)


def fits(obj: Object, spec: Object) -> bool:
    try:
        applied(obj, spec, "guest", force=False)
    except StatusError:
        return False
    return True


@settings(deadline=None)
@given(SPECS, SPECS)
def test_conflicts_are_the_same_both_ways(one: Object, other: Object) -> None:
    def told(first: Object, second: Object) -> set[str]:
        obj = applied(None, first, "first")
        try:
            applied(obj, second, "second", force=False)
        except StatusError as refused:
            return {str(cause["field"]) for cause in refused.causes}
        return set()

    assert told(one, other) == told(other, one)


@settings(deadline=None)
@given(STEPS, SPECS, st.sampled_from("mno"))
def test_with_force_there_is_no_conflict_left(steps: Any, spec: Object, by: str) -> None:
    obj = applied(lived(steps), spec, by)
    claims = stripped(stated(thing(spec), SHAPE))
    assert difference(claims, fields_of_apply(obj, by)) == {}


def fields_of_apply(obj: Object, by: str) -> Object:
    for entry in obj["metadata"].get("managedFields", []):
        if (entry["manager"], entry["operation"]) == (by, "Apply"):
            return entry["fieldsV1"]
    return {}
