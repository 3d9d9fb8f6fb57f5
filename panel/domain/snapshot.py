"""The snapshot: everything a panel shows of one node, at one moment."""

from __future__ import annotations

import msgspec

from panel.domain.flags import BrokenProfile, Profile, Request
from panel.domain.gpu import Gpu
from panel.domain.hang import Suspicion
from panel.domain.plan import Measured
from panel.domain.states import LaunchState, ProcessState
from panel.domain.verdict import Verdict

PROTOCOL = 1
"""Of client and supervisor; a client that meets another number only reads."""


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended."""

    t: float
    """Seconds since launch."""
    code: int | None
    words: str
    """The code in words: `killed by SIGKILL`, `ended by an exception (exit code 1)`."""


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """A rank (with a number) or another process of the gang."""

    source: str
    """Name of its log: rank-3, frontend, engine."""
    pid: int
    state: ProcessState
    rank: int | None = None
    node: str = ""
    """Where it runs, in a launch over several nodes."""
    title: str = ""
    """What it calls itself, such as sglang::detokenizer; empty where it does not."""
    phase: str = "spawn"
    done: int = 0
    total: int = 0
    """Progress inside the phase: done of total."""
    detail: int = 0
    """Goes with the progress: the batch size being captured."""
    step: int = 0
    beat_age: float | None = None
    """Seconds, to a tenth; None where the process has no heartbeat."""
    cpu: float = 0.0
    """Per cent of one core."""
    rss: int = 0
    threads: int = 0
    last_line: str = ""
    exit: ProcessExit | None = None
    stopped: bool = False
    """Somebody stopped it by a signal; it goes on by SIGCONT."""
    late: float = 0.0
    """Share of the looks of the last minute at which the others waited for this rank."""

    @property
    def label(self) -> str:
        """What people call a process without a rank: `frontend`, `EngineCore`."""
        return self.title.rpartition("::")[2] or self.source


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts bring and cost, lately; times in milliseconds."""

    drafts: int = 0
    """Tokens drafted for a sequence in the last step; 0 where that does not pay."""
    break_even: float | None = None
    """Tokens that a cycle has to give to be worth its time; None before that is known."""
    accepted: tuple[float, ...] = ()
    """Share of the tokens drafted that was taken, by place in the draft."""
    cycle_ms: dict[str, float] = {}
    """Mean time of a cycle in its parts: extend, draft, verify; empty where nobody measures."""
    collectives: float = 0.0
    """Of a decode step."""
    collective_ms: float = 0.0
    """Time of rank 0 in those."""
    simulated: float | None = None
    """The acceptance that is simulated: text and speed mean nothing; None where it is real."""
    fell_from: float | None = None
    """Tokens a cycle before acceptance fell suddenly; None where it did not."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the engine, from its own endpoint."""

    tok_s: float = 0.0
    history: tuple[float, ...] = ()
    """tok/s of the last 60 seconds, oldest first."""
    running: int = 0
    waiting: int = 0
    kv_used: int = 0
    kv_total: int = 0
    acceptance: float | None = None
    """Tokens a verify pass, lately; None without speculation."""
    speculation: Speculation | None = None
    """More about it, where the engine tells."""
    ttft_ms: float | None = None
    """Median of the last requests."""


class LaunchView(msgspec.Struct, frozen=True, kw_only=True):
    """The running launch, or the last one."""

    id: int
    uuid: str
    request: Request
    engine: str
    version: str
    state: LaunchState
    world_size: int
    t0_unix: float
    t: float
    """Seconds since launch; stands still once the gang is down."""
    url: str
    chips: tuple[str, ...] = ()
    flags: dict[str, str] = {}
    """Resolved flags without the program's own, secrets redacted."""
    phase: str = "spawn"
    """The phase of the rank that is furthest behind."""
    ready_s: float | None = None
    start: dict[str, float] = {}
    """Seconds of the start by what took them, see `start_seconds`."""
    usual_ready_s: float | None = None
    """Median of earlier launches of this profile that got there."""
    processes: tuple[ProcessView, ...] = ()
    """Ranks in order, then the others."""
    metrics: Metrics | None = None
    memory: tuple[Measured, ...] = ()
    """A rank's memory, planned and measured; empty before the engine tells."""
    folder: str = ""
    """Path of the evidence folder on the node."""
    log_sizes: dict[str, int] = {}
    verdict: Verdict | None = None
    suspicion: Suspicion | None = None
    """Why it is taken to be hanging; None where it is not."""
    held: tuple[str, ...] = ()
    """What it still holds of the GPUs after its end, a sentence a GPU."""
    note: str = ""
    """One line for the operator, such as `adopted after a restart of the supervisor`."""

    @property
    def ranks(self) -> tuple[ProcessView, ...]:
        """The processes that are ranks."""
        return tuple(process for process in self.processes if process.rank is not None)


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The node itself."""

    name: str
    cpus: int
    load: float
    memory_total: int
    memory_available: int
    gpu_note: str
    """Why there are no GPU figures, in words; empty where there are."""
    kernel_log_note: str = ""
    """Why the kernel's log is not read; empty where it is."""


class Supervisor(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon that answers."""

    pid: int
    version: str
    started_unix: float
    home: str
    socket: str
    warm: bool = False
    """A spawner with torch imported waits for the next launch."""


class KeptWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights that stay in memory from launch to launch."""

    pid: int
    """The process that holds them."""
    bytes: int = 0
    ranks: int = 0
    """Whose memory is held."""
    whole: int = 0
    """Ranks whose weights are complete."""
    users: int = 0
    """Ranks that live and use them."""
    leaving: bool = False
    """They go as soon as no rank uses them."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What `GET /v1/snapshot` and each `snapshot` event carry."""

    seq: int
    supervisor: Supervisor
    host: Host
    protocol: int = PROTOCOL
    profiles: tuple[Profile, ...] = ()
    launch: LaunchView | None = None
    gpus: tuple[Gpu, ...] = ()
    """In the order of the PCI bus."""
    elsewhere: tuple[Gpu, ...] = ()
    """The GPUs of a launch's ranks where those are on several nodes, as their nodes see them."""
    kept: KeptWeights | None = None
    """None where none are kept."""
    broken_profiles: tuple[BrokenProfile, ...] = ()
