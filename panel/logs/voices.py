"""Who speaks in a line, and how severely: prefixes, what stands between them, and what carries on.

Free of dependencies, because search workers start with it.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from panel.logs.decode import Line
from panel.logs.grammars import Dialect
from panel.logs.grammars.native import native
from panel.logs.grammars.wrappers import strip
from panel.logs.prefix import Prefix
from panel.logs.severity import TRACEBACK, Level, inferred

LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_BAR = re.compile(r"\d+%(?: Completed)? ?\|.*?(?:it/s|s/it|\?)[^\]\[]*\]")
_ASSIGNED = re.compile(r"rank (\d+) in world size \d+ is assigned as ")
_JOINED = re.compile(r"ncclCommInitRank\w* comm \S+ rank (\d+) nranks (\d+) ")


class Piece(NamedTuple):
    """A line, or the part of one that is a record of its own."""

    prefix: str
    text: str
    printed: str | None
    level: Level
    rank: int | None
    phase: str | None
    pid: int | None


class Voices:
    """Reads the lines of one log in order; lines without a prefix continue the record before."""

    def __init__(
        self, dialect: Dialect, rank: int | None = None, ranks: dict[int, int] | None = None
    ) -> None:
        """`rank`: the only one that writes here. `ranks`: by pid, as far as known; it grows."""
        self.ranks = {} if ranks is None else ranks
        self._grammar, self._wrappers = dialect.grammar.read, dialect.wrappers
        self._head = dialect.grammar.head
        self._rank = rank
        self._last = Prefix(0, "", Level.INFO, None, None)
        self._open = True
        self._failing: set[int] = set()
        """Processes in the middle of a traceback that no logger prints."""
        self._world = 0

    def pieces(self, line: Line) -> list[Piece]:
        """Return the parts of a line; nearly always one."""
        if not line.overwritten:
            return self._state(line.text, False)
        kept: list[Piece] = []
        prefixed = False
        for state in line.overwritten:
            found = self._state(state, prefixed)
            # A bar's earlier states show nothing; records that stand before it do.
            kept += [piece for piece in found if piece.prefix and piece.text]
            prefixed = prefixed or any(piece.prefix for piece in found)
        return kept + self._state(line.text, prefixed)

    def _state(self, text: str, prefixed: bool) -> list[Piece]:
        start, rank, pid = strip(text, self._wrappers) if self._wrappers else (0, None, None)
        parts = self._parts(text[start:] if start else text)
        if parts is None:
            pieces = [self._piece(text[start:] if start else text, rank, pid, prefixed)]
        else:
            pieces = []
            for part in parts:
                pieces.append(self._piece(part, rank, pid, prefixed))
                prefixed = prefixed or pieces[-1].prefix != ""
        if start:
            pieces[0] = pieces[0]._replace(prefix=text[:start] + pieces[0].prefix)
        return pieces

    def _parts(self, text: str) -> list[str] | None:
        """Return the records that stand in one line; None where it is one."""
        cuts = {match.start() for match in self._head.finditer(text, 1)}
        if "%" in text and "|" in text:
            ends = (match.end() for match in _BAR.finditer(text))
            cuts |= {end for end in ends if text[end:].strip()}
        if not cuts:
            return None
        places = [0, *sorted(cuts), len(text)]
        return [text[a:b] for a, b in itertools.pairwise(places)]

    def _piece(self, text: str, rank: int | None, pid: int | None, prefixed: bool) -> Piece:
        prefix = self._grammar(text)
        if prefix is None:
            prefix = native(text)
            if prefix is None:
                return self._bare(text, rank, pid, prefixed)
            prefix = prefix._replace(phase=self._last.phase)
        head, text = text[: prefix.end], text[prefix.end :]
        if prefix.pid is None and pid is not None:
            prefix = prefix._replace(pid=pid)
        if prefix.pid is not None:
            prefix = self._of_process(prefix, prefix.pid, text)
        if self._rank is not None:
            rank = self._rank
        elif prefix.rank is not None:
            rank = prefix.rank
        if rank != prefix.rank:
            prefix = prefix._replace(rank=rank)
        self._last, self._open = prefix, True
        if not prefix.end and prefix.level < Level.ERROR:
            # A warning of the interpreter is one line; what follows is no part of it.
            self._last = prefix._replace(level=Level.INFO)
        return Piece(
            head, text, prefix.printed or None, prefix.level, rank, prefix.phase, prefix.pid
        )

    def _of_process(self, prefix: Prefix, pid: int, text: str) -> Prefix:
        """Return the prefix with what is known of its process."""
        self._learn(prefix, pid, text)
        if prefix.rank is None and pid in self.ranks:
            prefix = prefix._replace(rank=self.ranks[pid])
        if not prefix.logged:
            # A traceback goes on until the process says something else, or nothing.
            level = max(prefix.level, Level.ERROR if text and pid in self._failing else Level.INFO)
            prefix = prefix._replace(level=level)
        if not prefix.logged and prefix.level is Level.ERROR:
            self._failing.add(pid)
        else:
            self._failing.discard(pid)
        return prefix

    def _bare(self, text: str, rank: int | None, pid: int | None, prefixed: bool) -> Piece:
        last = self._last
        if _BAR.search(text):
            level, speaks = Level.INFO, prefixed
        else:
            if not text.strip():
                self._open = False
            elif not self._open and not text.startswith(LINKS):
                self._last = last = last._replace(level=Level.INFO, rank=None, pid=None)
                self._open = True
            if TRACEBACK in text:
                self._last = last = last._replace(level=Level.ERROR)
            level, speaks = max(last.level, inferred(text)), True
        own = self._rank if self._rank is not None else rank
        inherited = last.rank if speaks else None
        return Piece(
            "",
            text,
            None,
            level,
            inherited if own is None else own,
            last.phase,
            last.pid if speaks and pid is None else pid,
        )

    def _learn(self, prefix: Prefix, pid: int, text: str) -> None:
        if prefix.rank is not None:
            self.ranks[pid] = prefix.rank
        elif assigned := _ASSIGNED.match(text):
            self.ranks[pid] = int(assigned[1])
        elif "ncclCommInitRank" in text and (joined := _JOINED.match(text)):
            rank, size = int(joined[1]), int(joined[2])
            # Only in the communicator of all does a rank number mean the global one.
            if size >= self._world:
                self._world = size
                self.ranks[pid] = rank
