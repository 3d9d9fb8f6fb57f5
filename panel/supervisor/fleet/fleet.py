"""The gang over several nodes: up together, and down together."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from panel.domain.errors import PanelError
from panel.domain.events import Alarm, Event
from panel.domain.events import Gang as GangEvent
from panel.domain.states import LaunchState
from panel.supervisor.evidence import Folder, append_event, write_json
from panel.supervisor.fleet.looks import LOOK_S, LOOKS, together
from panel.supervisor.fleet.mirror import Place, served_elsewhere
from panel.supervisor.fleet.order import BEGUN, Begun, FleetOrder
from panel.supervisor.fleet.part import LostError, Part
from panel.supervisor.fleet.silence import Silences

T = TypeVar("T")
Stage = Literal["up", "failing", "stopping", "down", "refused", "helper_died"]

PULL_S = 0.2
_SOUND = (LaunchState.LAUNCHING, LaunchState.SERVING)


class Fleet:
    """All parts, and the policy over them."""

    def __init__(self, order: FleetOrder) -> None:
        self._order = order
        self._folder = Folder(Path(order.folder))
        self._sockets = Path(tempfile.mkdtemp(prefix="moepanel-"))
        names = tuple(node.name for node in order.nodes)
        self._places = [
            Place(index=index, nodes=names, world_size=order.world_size)
            for index in range(len(names))
        ]
        self._parts = [
            Part(node, place, self._folder, self._since)
            for node, place in zip(order.nodes, self._places, strict=True)
        ]
        self._silences = Silences()
        self._look_due = 0.0
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()

    def stop(self) -> None:
        """The operator asks for the end, and by asking again insists."""
        if self._stop.is_set():
            self._kill.set()
        self._stop.set()

    def kill(self) -> None:
        """The operator wants it gone at once."""
        self._kill.set()
        self._stop.set()

    async def run(self) -> None:
        """Launch, watch, stop; return once nothing is left."""
        try:
            if await self._unless_stopped(self._launch):
                self._say("up")
                await self._watch()
            elif self._stop.is_set():
                self._say("stopping", "the operator stops it")
            await self._end()
        finally:
            await asyncio.gather(*(part.close() for part in self._parts))
            shutil.rmtree(self._sockets, ignore_errors=True)

    async def _launch(self) -> bool:
        """Bring all parts up, none unless all can; return whether they are."""
        try:
            await _all(part.open(self._sockets / str(at)) for at, part in enumerate(self._parts))
            for part, plan in zip(
                self._parts, await _all(part.plan() for part in self._parts), strict=True
            ):
                refusals = [each.text for each in plan.problems if each.severity == "refusal"]
                if refusals:
                    raise PanelError(f"node {part.node.name}: {'; '.join(refusals)}")
            await _all(part.up() for part in self._parts)
            write_json(self._folder.path / BEGUN, self._begun())
        except (PanelError, LostError, OSError) as error:
            self._say("refused", str(error))
            return False
        return True

    def _begun(self) -> Begun:
        bare = [msgspec.structs.replace(part.node, recipe=None) for part in self._parts]
        return Begun(
            nodes=bare,
            launches=[part.number for part in self._parts],
            started=[part.started for part in self._parts],
        )

    async def _unless_stopped(self, do: Callable[[], Awaitable[bool]]) -> bool:
        doing = asyncio.ensure_future(do())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([doing, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not doing.done():
            doing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await doing
            return False
        return doing.result()

    async def _watch(self) -> None:
        """Copy evidence until the gang has to end."""
        while not self._stop.is_set():
            await self._pull()
            await self._look()
            if self._lost():
                return
            for part in self._parts:
                if part.state not in _SOUND:
                    reason = f"{part.node.name}: {part.outcome or part.state}"
                    self._say("failing", reason)
                    await self._last_words()
                    return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), PULL_S)
        self._say("stopping", "the operator stops it")

    async def _last_words(self) -> None:
        until = time.monotonic() + self._order.policy.evidence_s
        while time.monotonic() < until and not self._stop.is_set():
            await self._pull()
            await asyncio.sleep(PULL_S)

    async def _end(self) -> None:
        """Stop every part and see it gone."""
        told_now = False
        for part in self._parts:
            await part.down(now=self._kill.is_set())
        while any(self._going(part) for part in self._parts):
            if self._kill.is_set() and not told_now:
                told_now = True
                for part in self._parts:
                    await part.down(now=True)
            await self._pull()
            await asyncio.sleep(PULL_S)
        left = [part for part in self._parts if part.number is not None and not part.over]
        if left:
            names = " and ".join(part.node.name for part in left)
            why = next((part.trouble for part in left if part.trouble), "no answer")
            reason = f"node {names} went away ({why}): what still runs there is not known"
            self._say("helper_died", reason)
        else:
            self._say("down")

    def _going(self, part: Part) -> bool:
        return part.number is not None and not part.over and not self._gone(part)

    def _gone(self, part: Part) -> bool:
        since = part.silent_since
        return since is not None and time.monotonic() - since > self._order.lost_s

    def _lost(self) -> bool:
        """Return whether a node went away; the others cannot go on without it."""
        for part in self._parts:
            if self._gone(part):
                reason = f"node {part.node.name} does not answer for {self._order.lost_s:g} s"
                self._say("failing", reason)
                return True
        return False

    async def _pull(self) -> None:
        """Copy what is new on all nodes, in the order in which it happened."""
        going = [part for part in self._parts if part.number is not None and not part.over]
        pulled = await asyncio.gather(*(_pulled(part) for part in going))
        for event in sorted((each for news in pulled for each in news), key=lambda each: each.t):
            for each in (event, *served_elsewhere(event, self._places[0])):
                append_event(self._folder, each)
        for part in going:
            now, name = time.monotonic(), part.node.name
            if text := self._silences.look(name, part.silent_since, now, part.trouble):
                append_event(self._folder, Alarm(t=round(self._since(), 6), text=text))

    async def _look(self) -> None:
        """Keep what the nodes see of their parts, once a second."""
        if (now := time.monotonic()) >= self._look_due:
            self._look_due = now + LOOK_S
            going = [part for part in self._parts if part.silent_since is None]
            looks = await asyncio.gather(*(part.look() for part in going))
            write_json(self._folder.path / LOOKS, together(looks))

    def _say(self, state: Stage, reason: str = "") -> None:
        event = GangEvent(t=round(self._since(), 6), state=state, reason=reason)
        append_event(self._folder, event)

    def _since(self) -> float:
        return (time.monotonic_ns() - self._order.t0_mono_ns) / 1e9


async def _pulled(part: Part) -> list[Event]:
    try:
        return await part.pull()
    except LostError:
        return []


async def _all(doing: Iterable[Awaitable[T]]) -> list[T]:
    """Do all at once; raise the first error only when none is under way any more."""
    done = await asyncio.gather(*doing, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [each for each in done if not isinstance(each, BaseException)]
