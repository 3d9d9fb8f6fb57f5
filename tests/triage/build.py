"""Builds cases of trouble from compact descriptions (`corpus/*.toml`): evidence folders as real
launches leave them, each in several variations. All follows from the description: no chance.

A description has a script, a line a step: `SECONDS WHO VERB REST`. WHO is `r3`, `r0-2,5`, `all`,
`main`, `core`, `api`, `helper` or `host`. Verbs: `say` and `err` (through the engine's logger),
`raw` (written past it), `trace TYPE: message @ file:function: source; … || …` (cause first),
`exit`, `state`, `kernel`, `gpu`, `health`, `stop`, `quiet`. `{r}` is the rank, `{pid}` its process.
`early` is a script in front of the start; `since` is what `launch.json` has under that name.
"""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.triage.boot import BOOT, NOISE, ORDER

T0 = 10 * 3600
VARIATIONS = ("whole", "bare", "mixed")
"""All evidence; the log alone; ranks in another order with harmless noise of other engines."""


@dataclass
class Builder:
    """Writes one variation of one case."""

    case: dict[str, Any]
    variation: str
    t: float = 1.0
    logs: dict[str, bytearray] = field(default_factory=dict)
    times: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    phase: str = "args"

    def __post_init__(self) -> None:
        self.engine: str = self.case["engine"]
        self.world: int = self.case.get("world", 4)
        seed = f"{self.case['name']}/{self.variation}"
        self.random = random.Random(seed)
        self.order = list(range(self.world))
        if self.variation == "mixed":
            self.random.shuffle(self.order)

    def build(self, folder: Path) -> None:
        """Write the folder."""
        self._spawn()
        for step in self.case.get("early", ()):
            self._step(step)
        self._boot()
        for step in self.case["script"]:
            self._step(step)
        self._write(folder)

    # Who

    def pid(self, who: str) -> int:
        """Return the process of a target."""
        fixed = {"main": 100, "api": 100, "core": 101, "helper": 190}
        return fixed[who] if who in fixed else 110 + int(who[1:])

    def targets(self, who: str) -> list[str]:
        """Return the single processes of a target, in the order of this variation."""
        if who == "all":
            return [f"r{rank}" for rank in self.order]
        if who[0] != "r" or not who[1:2].isdigit():
            return [who]
        wanted = set()
        for part in who[1:].split(","):
            first, _, last = part.partition("-")
            wanted |= set(range(int(first), int(last or first) + 1))
        return [f"r{rank}" for rank in self.order if rank in wanted]

    def source(self, who: str) -> str:
        """Return the log that a process writes to."""
        if self.engine != "builtin":
            return "engine"
        return f"rank-{who[1:]}" if who[0] == "r" else "frontend"

    # What happens

    def _spawn(self) -> None:
        builtin = self.engine == "builtin"
        main = "frontend" if builtin else "engine"
        self._event(kind="spawn", source=main, pid=100, command="python -m serve")
        parent = 100
        if self.engine == "vllm":
            self._event(kind="spawn", source="engine", pid=101, ppid=100, command="spawn_main")
            self._event(kind="title", pid=101, title="VLLM::EngineCore")
            parent = 101
        for rank in range(self.world):
            pid = self.pid(f"r{rank}")
            extra: dict[str, Any] = {"rank": rank} if builtin else {"ppid": parent}
            source = self.source(f"r{rank}")
            self._event(kind="spawn", source=source, pid=pid, command="spawn_main", **extra)
            if not builtin and self.case.get("titles", True):
                names = {"sglang": "sglang::scheduler_TP", "vllm": "VLLM::Worker_TP"}
                title = names.get(self.engine, "worker_") + str(rank)
                self._event(kind="title", pid=pid, title=title, rank=rank)
        if self.engine == "sglang":
            self._event(kind="spawn", source="engine", pid=190, ppid=100, command="spawn_main")
            self._event(kind="title", pid=190, title="sglang::detokenizer")

    def _boot(self) -> None:
        until = self.case.get("phase", "serving")
        for phase, who, text in BOOT[self.engine]:
            if ORDER.index(phase) > ORDER.index(until):
                break
            self.t += 2.0
            self.phase = phase
            for target in self.targets(who):
                self._say(target, text.format(world=self.world, r=target[1:]), "INFO")
            if self.variation == "mixed" and self.engine != "builtin":
                self._put("engine", self.random.choice(NOISE))
        self.phase = until
        if until == "draft":
            self.t += 2.0
            for target in self.targets("all"):
                self._say(target, "Load weight begin. avail mem=6.10 GB", "INFO")

    def _step(self, step: str) -> None:
        wait, who, rest = step.split(" ", 2)
        verb, _, text = rest.partition(" ")
        self.t += float(wait)
        act = self._verbs()[verb]
        for target in self.targets(who):
            rank = target[1:] if target[0] == "r" else ""
            line = text.replace("{r}", rank)
            if "{pid}" in line:
                line = line.replace("{pid}", str(self.pid(target)))
            act(target, line)
            self.t += 0.01

    def _verbs(self) -> dict[str, Callable[[str, str], None]]:
        note = self._event
        return {
            "say": lambda who, text: self._say(who, text, "INFO"),
            "err": lambda who, text: self._say(who, text, "ERROR"),
            "raw": lambda who, text: self._put(self.source(who), text),
            "trace": self._trace,
            "exit": lambda who, code: note(kind="exit", pid=self.pid(who), code=int(code)),
            "state": lambda who, state: note(kind="state", pid=self.pid(who), state=state),
            "kernel": lambda _, text: note(kind="kernel", text=text),
            "gpu": lambda _, text: note(kind="gpu", **json.loads(text)),
            "health": lambda _, code: note(
                kind="health", endpoint="/health", code=int(code), ms=1.0
            ),
            "stop": lambda _, action: note(kind="operator", action=action),
            "quiet": lambda _, seconds: self._quiet(float(seconds)),
        }

    def _quiet(self, seconds: float) -> None:
        self.t += seconds
        self._event(kind="health", endpoint="/metrics", code=200, ms=1.0)

    # How it looks

    def _clock(self) -> str:
        seconds = T0 + int(self.t)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def _head(self, who: str, level: str, place: str = "worker.py:10") -> str:
        rank = who[1:] if who[0] == "r" else ""
        if self.engine == "sglang":
            tags = f" TP{rank}" if rank else ""
            return f"[2026-03-04 {self._clock()}{tags}] "
        if self.engine == "vllm":
            name = f"Worker_TP{rank}" if rank else {"core": "EngineCore"}.get(who, "APIServer")
            return f"({name} pid={self.pid(who)}) {level} 03-04 {self._clock()} [{place}] "
        if self.engine == "builtin":
            tags = f" TP{rank} {self.phase}" if rank else ""
            return f"[2026-03-04 {self._clock()}.000{tags}] {level} "
        return ""

    def _say(self, who: str, text: str, level: str) -> None:
        self._put(self.source(who), self._head(who, level) + text)

    def _trace(self, who: str, text: str) -> None:
        lines: list[str] = []
        for part in text.split(" || "):
            if lines:
                lines += [
                    "",
                    "During handling of the above exception, another exception occurred:",
                    "",
                ]
            lines += trace_lines(part)
        head, each = self._record(who)
        body = [each + line for line in lines]
        if head and self.engine == "sglang":
            body[0] = head + body[0]
        elif head:
            body.insert(0, head)
        self._put(self.source(who), "\n".join(body) + ("\n" if self.engine == "sglang" else ""))

    def _record(self, who: str) -> tuple[str, str]:
        """Return the head of a record with a traceback, and what stands before each line."""
        ranked = who[0] == "r"
        if self.engine == "sglang":
            return (self._head(who, "") + ("Scheduler hit an exception: " if ranked else ""), "")
        if self.engine == "vllm":
            words = {"core": "EngineCore failed to start."}.get(who, "WorkerProc hit an exception.")
            each = self._head(who, "ERROR", "multiproc_executor.py:710")
            return (
                each + words if who != "api" else "",
                each if who != "api" else f"(APIServer pid={self.pid(who)}) ",
            )
        if self.engine == "builtin":
            return "", self._head(who, "ERROR")
        return "", f"[rank{who[1:]}]: " if ranked else ""

    def _put(self, source: str, text: str) -> None:
        log = self.logs.setdefault(source, bytearray())
        self.times.setdefault(source, []).append((round(self.t, 4), len(log)))
        log += text.encode() + b"\n"

    def _event(self, **event: Any) -> None:
        self.events.append({"t": round(self.t, 4), **event})

    # Files

    def _write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        for source, log in self.logs.items():
            (folder / f"{source}.log").write_bytes(bytes(log))
        if self.variation != "bare":
            for source, pairs in self.times.items():
                lines = [json.dumps({"t": t, "offset": offset}) for t, offset in pairs]
                (folder / f"{source}.times").write_text("\n".join(lines) + "\n")
            lines = [json.dumps(event) for event in self.events]
            (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
            spec = {
                "engine": self.engine if self.engine != "torch" else "",
                "version": self.case.get("version", ""),
                "argv": ["python", *self.case.get("argv", "").split()],
                "world_size": self.world,
                "since": self.case.get("since"),
            }
            (folder / "launch.json").write_text(json.dumps(spec))
        expect = self.case["expect"] | self.case.get(f"expect_{self.variation}", {})
        (folder / "expect.json").write_text(json.dumps({"input": "."} | expect))


def trace_lines(text: str) -> list[str]:
    """Return the lines of one traceback: `TYPE: message @ file:function: source; …`."""
    raised, _, frames = text.partition(" @ ")
    lines = ["Traceback (most recent call last):"]
    for frame in filter(None, (frames or "engine/run.py:step: step()").split("; ")):
        file, function, source = frame.split(":", 2)
        lines += [f'  File "/srv/{file}", line 12, in {function}', f"    {source.strip()}"]
    return [*lines, *raised.replace("\\n", "\n").split("\n")]


def cases(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the descriptions of a folder."""
    for path in sorted(folder.glob("*.toml")):
        yield from tomllib.loads(path.read_text("utf-8"))["case"]


def build(folder: Path, into: Path) -> None:
    """Build all cases that a folder describes."""
    for case in cases(folder):
        for variation in VARIATIONS:
            if variation not in case.get("without", ()):
                Builder(case, variation).build(into / f"{case['name']}.{variation}")
