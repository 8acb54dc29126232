"""The work of one leader: what differs is brought to where it should be, each object on its own.

A look at everything says on which objects something is to be done; each is then decided on again
and written by itself, so that one which is refused, or hangs, holds up no other. What the server
does not take is said in the status of its policy and by an event, and tried again now and then.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from libs.kube.client import Kube
from libs.kube.controller import Controller, Done, Later, Outcome, Refused
from libs.kube.errors import Forbidden, Invalid, UnknownKind
from libs.kube.metering import Meters
from libs.kube.queue import WorkQueue
from libs.kube.resources import PODS
from libs.kube.views import Lease, Object
from libs.policy.rendering.rendered import Rendered
from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.runtime.logs import logger
from services.driver.cluster import statuses, things
from services.driver.cluster.deciding import Action, Apply, Delete, Refuse
from services.driver.cluster.differing import difference
from services.driver.cluster.hands import Hands
from services.driver.cluster.meters import DriverMeters
from services.driver.cluster.plan import Key
from services.driver.cluster.sources import Sources
from services.driver.cluster.survey import Survey
from services.driver.cluster.telling import Telling
from services.driver.cluster.troubles import troubles

if TYPE_CHECKING:
    from libs.policy.observed import Trouble

NAME: Final = "operands"
"""Of the controller, in its metrics."""
_LOOK: Final = Key("look", "")
_PODS: Final = "pods"
_TOGETHER: Final = 0.2
"""Seconds in which changes are gathered before everything is looked at."""
_SAY: Final = 0.5
"""Seconds in which changes of a status are gathered."""
_AGAIN: Final = 60.0
"""Seconds after which what the server does not take is tried again."""
_EXPLAIN: Final = 30.0
_HANDS: Final = 8
_PERMANENT: Final = (Invalid, Forbidden, UnknownKind)

_log = logger()


class Unproven(Exception):
    """Nothing is taken away on old news."""


class Work:
    """From the begin of a term to its end."""

    def __init__(
        self,
        *,
        kube: Kube,
        namespace: str,
        sources: Sources,
        survey: Survey,
        hands: Hands,
        telling: Telling,
        meters: DriverMeters,
        controllers: Meters,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._sources = sources
        self._survey = survey
        self._hands = hands
        self._telling = telling
        self._meters = meters
        self._queue = WorkQueue[Key](clock=clock)
        self._controller = Controller(
            name=NAME,
            reconcile=self._reconcile,
            queue=self._queue,
            concurrency=_HANDS,
            timeout=30.0,
            grace=0.0,
            clock=clock,
            ids=ids,
            meters=controllers,
        )
        self._refused: dict[Key, str] = {}
        # What was tried last and failed: it has its own back-off, unless something else is wanted.
        self._failed: dict[Key, object] = {}
        # What the server keeps in another form than we send it: sent once for each wish.
        self._stubborn: dict[Key, object] = {}
        self._explained: dict[str, Sequence[Trouble]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        end = self._sources.on_change(self._changed)
        try:
            self._queue.add(_LOOK)
            await self._controller.run()
        finally:
            end()

    def _changed(self, before: Object | None, after: Object | None) -> None:
        if isinstance(before, things.Node) and isinstance(after, things.Node):
            same = before.metadata.labels == after.metadata.labels
            if same and before.record == after.record:
                return  # a heartbeat
        if isinstance(before, Lease) and isinstance(after, Lease):
            holders = {one.spec.holder_identity for one in (before, after)}
            if len(holders) == 1 and self._survey.holding:
                return  # a renewal; the end of what counts as being at work is looked at in time
        self._look_soon()

    def _look_soon(self) -> None:
        self._queue.add_after(_LOOK, _TOGETHER)

    async def _reconcile(self, key: Key) -> Outcome:
        if key == _LOOK:
            return await self._look()
        if key.kind == _PODS:
            return await self._explain(key.name)
        intent = self._intent(key)
        if intent is None:
            self._went_well(key)
            return Done()
        if isinstance(intent, Refuse):
            return self._refuse(key, intent.why)
        try:
            await self._act(key, intent)
        except _PERMANENT as error:
            self._failed[key] = _timeless(intent)
            self._queue.add_after(key, _AGAIN)
            return self._refuse(key, str(error))
        except BaseException:
            self._failed[key] = _timeless(intent)
            raise
        self._went_well(key)
        return Done()

    # Looking.

    async def _look(self) -> Outcome:
        if self._sources.unknown():
            return Later(1.0)
        try:
            await self._look_now()
        except Exception:
            self._meters.broke()
            raise
        for key in dict.fromkeys((*self._survey.affected(), *self._failed, *self._refused)):
            self._put(key)
        for one in self._survey.lacking():
            if one.metadata.name not in self._explained:
                self._explained[one.metadata.name] = ()
                self._queue.add(Key(_PODS, one.metadata.name))
        self._meters.looked(self._survey.plan, held=bool(self._survey.holding))
        return Later(self._survey.next)

    def _put(self, key: Key) -> None:
        """In line, if there is anything to do about it that is not being tried already."""
        intent = self._intent(key)
        if intent is None:
            if key in self._failed or key in self._refused:
                self._queue.add(key)
        elif self._failed.get(key) != _timeless(intent):
            self._queue.add_after(key, _SAY if key.kind in things.POLICIES else 0.0)

    async def _look_now(self) -> None:
        known = tuple(one for some in self._explained.values() for one in some)
        refused = {str(key): why for key, why in self._refused.items()}
        await self._survey.look(troubles=known, refused=refused)

    def _intent(self, key: Key) -> Action | Mapping[str, Any] | None:
        """What is to be done about it as things are."""
        if key.kind == things.NODES.kind:
            return self._survey.owner(key.name)
        if key.kind in things.POLICIES:
            return self._survey.status(key)
        if self._survey.holding:
            return None
        action = self._survey.operand(key)
        if not isinstance(action, Apply) or key not in self._stubborn:
            return action
        return None if self._stubborn[key] == self._wish(key, action.made) else action

    def _wish(self, key: Key, made: Rendered) -> object:
        """What is wanted of an operand, and which edit of it is there."""
        there = self._survey.there(key)
        if there is None:
            return None
        metadata = there.metadata
        edit = metadata.generation or metadata.resource_version
        return made, edit, metadata.labels, metadata.annotations

    async def _explain(self, name: str) -> Outcome:
        """Why a DaemonSet lacks pods, for as long as it does."""
        before = self._explained.get(name, ())
        one = next((one for one in self._survey.lacking() if one.metadata.name == name), None)
        if one is None:
            self._explained.pop(name, None)
        else:
            chosen: Mapping[str, str] = one.spec["selector"]["matchLabels"]
            labels = ",".join(f"{label}={value}" for label, value in chosen.items())
            page = await self._kube.page(PODS, namespace=self._namespace, labels=labels, within=10)
            self._explained[name] = tuple(troubles(name, one.metadata.uid, page.items))
        if self._explained.get(name, ()) != before:
            self._look_soon()
        return Done() if one is None else Later(_EXPLAIN)

    # Doing.

    async def _act(self, key: Key, intent: Apply | Delete | Mapping[str, Any]) -> None:
        match intent:
            case Apply():
                await self._apply(key, intent)
            case Delete():
                if await self._still(key, intent):
                    await self._hands.delete(key, intent)
                    _log.info("operand deleted", why=intent.because)
            case _:
                await self._write(key, intent)

    async def _apply(self, key: Key, what: Apply) -> None:
        view = await self._hands.apply(what.made)
        _log.info("operand applied", why=what.because)
        self._stubborn.pop(key, None)
        path = difference(what.made.object, view)
        if path:
            _log.warning("the server keeps it otherwise", field=path)
            self._stubborn[key] = self._wish(key, what.made)

    async def _write(self, key: Key, change: Mapping[str, Any]) -> None:
        kind, name = key
        if kind in things.POLICIES:
            there = self._sources.policies[kind].cache.get(name)
            if there is not None:
                await self._hands.say(kind, there, change)
                self._telling.stated(kind, there, change)
            return
        taken = None in change.values()
        node = self._sources.nodes.cache.get(name)
        if node is not None and not (taken and not await self._still(key, change)):
            await self._hands.label(node, change)

    async def _still(self, key: Key, intent: object) -> bool:
        """Whether that is to be done on what is proved to be of now."""
        doubts = await self._sources.doubts()
        if doubts:
            raise Unproven(f"nothing is taken away while it is not known what there is: {doubts}")
        await self._look_now()
        return self._intent(key) == intent

    # What becomes of it.

    def _refuse(self, key: Key, why: str) -> Refused:
        if self._refused.get(key) != why:
            self._refused[key] = why
            self._telling.refused(key, why, self._survey.plan)
            self._look_soon()
        return Refused(why)

    def _went_well(self, key: Key) -> None:
        self._failed.pop(key, None)
        if self._refused.pop(key, None) is not None:
            self._look_soon()


def _timeless(intent: Action | Mapping[str, Any]) -> object:
    """What it is about, whenever it is decided."""
    if isinstance(intent, Mapping) and "conditions" in intent:
        return statuses.timeless(dict(intent))
    return intent
