"""One epoll: descriptors are handled in the order in which they became ready."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

Handler = Callable[[], None]


class Loop:
    """Calls the handler of each readable descriptor."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self.signalled: Callable[[int], None] = lambda number: None
        """Called with the number of each caught signal."""

    def add(self, fd: int, handler: Handler) -> None:
        """Call `handler` whenever `fd` is readable or at its end."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def remove(self, fd: int) -> None:
        """Forget `fd`. To be called before it is closed."""
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def turn(self, timeout: float | None) -> None:
        """Wait at most `timeout` seconds (None: for ever) and handle what is ready."""
        ready = [(fd, self._handlers[fd]) for fd, _ in self._epoll.poll(timeout)]
        for fd, handler in ready:
            # An earlier handler of this turn may have closed the descriptor, and a new one may
            # have got its number.
            if self._handlers.get(fd) is handler:
                handler()

    def catch(self, signals: tuple[int, ...]) -> None:
        """Take `signals` in turn with everything else, in place of what they do by default."""
        reading, writing = os.pipe()
        for fd in (reading, writing):
            os.set_blocking(fd, False)

        def read() -> None:
            for number in os.read(reading, 4096):
                self.signalled(number)

        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in signals:
            # Not SIG_IGN, which a program inherits.
            signal.signal(number, lambda *_: None)
        self.add(reading, read)
