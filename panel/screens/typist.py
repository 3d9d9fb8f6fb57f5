"""Keys one after another: each acts where the one before it has led, however fast they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

_ROUNDS = 3
"""A key bubbles from queue to queue up to the application, which acts on it; what the action opens
asks for the focus, what it submits bubbles in turn."""
_PASS_S = 0.2
"""Longest wait for a queue; one whose owner is closed while we wait never answers."""
_HOLD_S = 10.0
"""Longest that a screen holds a key."""
_LOOK_S = 0.01

Typed = events.Key | events.Paste


class Typist:
    """Types for the operator: a key is handed over once the one before it has done all it does.

    Textual sends keys that come in one burst to the widget that has the focus at that moment, all
    of them, although the first may open a prompt or a screen that the others are meant for.
    """

    def __init__(
        self,
        app: App[None],
        hand_over: Callable[[Typed], Awaitable[None]],
        holds: Callable[[str], bool],
    ) -> None:
        """`holds`: whether the screen shown has to learn something before this key can act."""
        self._app, self._hand_over, self._holds = app, hand_over, holds
        self._typed: deque[Typed] = deque()
        self._came = asyncio.Event()

    def take(self, typed: Typed) -> None:
        """Type this when it is its turn."""
        self._typed.append(typed)
        self._came.set()

    async def run(self) -> None:
        """Type for ever."""
        while True:
            await self._came.wait()
            while self._typed:
                await self._hold()
                await self._type(self._typed.popleft())
            self._came.clear()

    async def _hold(self) -> None:
        """Wait for what the screen has to learn; Escape leaves it, and voids what waits."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + _HOLD_S
        while self._holds(_key(self._typed[0])) and clock() < deadline:
            keys = [_key(typed) for typed in self._typed]
            if "escape" in keys:
                for _ in range(keys.index("escape")):
                    self._typed.popleft()
                return
            await asyncio.sleep(_LOOK_S)

    async def _type(self, typed: Typed) -> None:
        """Hand over, and wait until what came of it is done too."""
        focus = self._app.focused or self._app.screen
        await self._hand_over(typed)
        for _ in range(_ROUNDS):
            for pump in (*focus.ancestors_with_self, self._app.screen):
                await _passed(pump)


def _key(typed: Typed) -> str:
    return typed.key if isinstance(typed, events.Key) else ""


async def _passed(pump: MessagePump) -> None:
    """Wait until a pump has handled what is in its queue."""
    passed = asyncio.Event()
    if pump.is_running and pump.call_later(passed.set):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(passed.wait(), _PASS_S)
