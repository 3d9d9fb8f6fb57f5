"""What the lines of a log tell besides troubles: who is who, the flags, the phase, the time."""

from __future__ import annotations

import re

from panel.domain.phases import Phase
from panel.logs.phases import Phases
from panel.logs.records import rank_of
from panel.triage.speaker import Said

_WORLD = re.compile(
    r"(?:tp_size|tensor_parallel_size|world[_ ]size|nranks|in world size)[=: ]+(?P<size>\d+)"
)
_VERSION = re.compile(r"vLLM API server version v?(\d[\w.]+)|LLM engine \(v(\d[\w.]+)\)")
_DEVICE = re.compile(r"^rank \d+ of \d+, (cpu|cuda)\b")
_USAGE = re.compile(r"\[--([a-z0-9][a-z0-9-]*)")
_COMM = re.compile(
    r"ncclCommInitRank\w* comm \S+ rank (?P<rank>\d+) nranks (?P<nranks>\d+) "
    r".*busId (?P<bus>[0-9a-f]+)"
)
_ARGS = re.compile(r"server_args=ServerArgs\((?P<args>.*)\)|non-default args: \{(?P<more>.*)\}")
_PAIR = re.compile(r"'?(\w+)'?[=:] ?('[^']*'|\"[^\"]*\"|\[[^\]]*\]|[^,]+)")
_CLOCK = re.compile(
    r"(?:(?P<month>\d\d)-(?P<day>\d\d)[ T]|(?P<name>[A-Z][a-z]{2}) +(?P<date>\d+) )?"
    r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<part>\d+))?"
)
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


class Lore:
    """Of one log."""

    def __init__(self, source: str) -> None:
        self.phases = Phases()
        self.engine = ""
        self.version = ""
        self.world = 0
        self.device = ""
        """Where the ranks compute, `cpu` or `cuda`; empty where they do not say."""
        self.arguments: dict[str, str] = {}
        """Flags by long name, as the engine prints them at its start."""
        self.usage: set[str] = set()
        """Flags that a usage text lists."""
        self.spoke: set[int] = set()
        """Ranks that said anything."""
        self.pids: dict[int, int] = {}
        """Rank by pid."""
        self.buses: dict[str, int] = {}
        """Rank by PCI address, as NCCL tells."""
        self.serving: tuple[float, int] | None = None
        """When the engine last said that it serves."""
        self.known = False
        """Whether any line was written the way an engine, a library of one or the kernel writes."""
        self._own_rank = rank_of(source)
        self.now = 0.0
        """The engine's own clock at the last line; it never goes back."""
        self._nranks = 0

    def rank(self, said: Said) -> int | None:
        """Return the rank that said a line."""
        if self._own_rank is not None:
            return self._own_rank
        if said.rank is None and said.pid is not None:
            return self.pids.get(said.pid)
        return said.rank

    def learn(self, said: Said, arrived: float | None, offset: int) -> float:
        """Take in a line; return its time, by the engine's own clock where nobody noted it."""
        # Libraries print the time too, but in a zone of their own.
        if said.engine or said.process == "kernel":
            self.now = max(self.now, seconds_of(said.printed))
        t = self.now if arrived is None else arrived
        self.engine = said.engine or self.engine
        # Prose speaks of Xids too: a line of the kernel's has its time, or is a mark.
        self.known = self.known or not (
            said.bare or (said.process == "kernel" and not said.printed)
        )
        rank = self.rank(said)
        if rank is not None:
            self.spoke.add(rank)
            if said.pid is not None:
                self.pids[said.pid] = rank
        if said.phase is not None:
            self.phases.enter(said.phase, rank)
        elif self.phases.see(said.text, rank) is Phase.SERVING:
            self.serving = (t, offset)
        if match := _WORLD.search(said.text):
            self.world = max(self.world, int(match["size"]))
        if match := _DEVICE.search(said.text):
            self.device = match[1]
        if match := _VERSION.search(said.text):
            self.version = match[1] or match[2]
        if said.bare and "[--" in said.text:
            self.usage.update(_USAGE.findall(said.text))
        if match := _COMM.search(said.text):
            self._joined(said.pid, match)
        if match := _ARGS.search(said.text):
            self.arguments = _arguments(match["args"] or match["more"])
        return t

    def _joined(self, pid: int | None, match: re.Match[str]) -> None:
        """NCCL tells ranks of every group: the largest one is the world."""
        rank, size, bus = int(match["rank"]), int(match["nranks"]), int(match["bus"], 16)
        if size < self._nranks:
            return
        self._nranks = size
        self.buses[f"{bus >> 12 & 0xFF:02x}:{bus >> 4 & 0xFF:02x}"] = rank
        if pid is not None:
            self.pids[pid] = rank


def seconds_of(printed: str) -> float:
    """Return a printed time as seconds, comparable within a year; 0 where it is none."""
    match = _CLOCK.search(printed)
    if match is None:
        return 0.0
    month = int(match["month"] or (_MONTHS.find(match["name"]) // 3 + 1 if match["name"] else 0))
    day = month * 31 + int(match["day"] or match["date"] or 0)
    minutes = (day * 24 + int(match["h"])) * 60 + int(match["m"])
    return minutes * 60 + int(match["s"]) + float(f"0.{match['part'] or 0}")


def _arguments(text: str) -> dict[str, str]:
    """Return the flags that are set; switches are `true`."""
    pairs = {name: value.strip("'\" ") for name, value in _PAIR.findall(text)}
    return {
        name.replace("_", "-"): "true" if value == "True" else value
        for name, value in pairs.items()
        if value not in ("None", "False", "")
    }
