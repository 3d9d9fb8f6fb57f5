"""Our own engine (`panel.server`), seen from outside: nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from panel import __version__
from panel.domain.errors import UsageError
from panel.domain.flags import Flag, Installation, Toggle
from panel.engines.base import (
    Command,
    MetricNames,
    Policy,
    Progress,
    Pulse,
    SpawnerJob,
)
from panel.server.exits import WORDS, Exit
from panel.server.faults import parse_fault
from panel.server.graphs import bucket_table
from panel.server.heartbeat import RECORD_SIZE, HeartbeatFile
from panel.server.options import BY_NAME, OPTIONS, Option, OptionError, nearest, resolve, to_argv
from panel.server.sizes import draft_tokens

_NEEDED = ("torch", "numpy", "safetensors", "tokenizers", "jinja2")


class Builtin:
    """The engine that comes with the package."""

    name = "builtin"
    exit_words: Mapping[int, str] = WORDS
    victim_codes = frozenset({int(Exit.PEER), int(Exit.ORPHAN)})
    outside = False
    spawner: tuple[str, ...] = ("-m", "panel.server.spawner")
    metric_names = MetricNames(
        generated="moepanel_generation_tokens_total",
        running="moepanel_requests_running",
        waiting="moepanel_requests_waiting",
        kv_used="moepanel_kv_used_tokens",
        kv_total="moepanel_kv_capacity_tokens",
        drafts="moepanel_spec_drafts_total",
        accepted="moepanel_spec_accepted_tokens_total",
        speculation="moepanel_",
        first_token="moepanel_time_to_first_token_seconds",
        inter_token="moepanel_inter_token_latency_seconds",
    )
    health = "/ready"
    policy = Policy()

    def at(self, installation: Installation) -> Builtin:
        """Return itself: there is no other place for it than this interpreter."""
        if installation != Installation():
            raise UsageError(
                "builtin runs in the panel's own interpreter", "take the keys under engine away"
            )
        return self

    def environment(self) -> dict[str, str]:
        """Return what keeps a spawner fit to fork."""
        return {
            # A process may be forked only while it has one thread, not after CUDA was initialised.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def version(self) -> str:
        """Return the package's version: engine and panel are one."""
        return __version__

    def missing(self) -> str | None:
        """Return the sentence that names the missing modules and the extra that brings them."""
        absent = [module for module in _NEEDED if find_spec(module) is None]
        if not absent:
            return None
        return (
            f"the engine is not installed ({', '.join(absent)} missing): pip install"
            " 'moepanel[engine]', or [cuda12] or [cuda13] to match an NVIDIA driver"
        )

    def flags(self) -> tuple[Flag, ...]:
        """Return the engine's own table."""
        return tuple(_flag(option) for option in OPTIONS)

    def neutral(
        self, toggle: Toggle, text: str, values: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Return the flags that a neutral name stands for."""
        match toggle:
            case "ep":
                all_ranks = values.get("tp-size", _default("tp-size"))
                sizes: dict[str, str | None] = {"on": all_ranks, "off": None}
                return {"ep-size": sizes.get(text, text)}
            case "spec":
                algorithm, colon, drafts = text.partition(":")
                known = BY_NAME["speculative-algorithm"].choices
                if algorithm not in known:
                    hint = nearest(algorithm, known).removeprefix("; ")
                    raise UsageError(f"spec: {text!r} is not off, ngram[:N] or eagle3[:N]", hint)
                chosen: dict[str, str | None] = {"speculative-algorithm": algorithm}
                # How many tokens are drafted at best is a matter of the algorithm.
                if colon or algorithm != values.get("speculative-algorithm"):
                    chosen["speculative-num-steps"] = drafts if colon else None
                return chosen
            case "graphs":
                if text == "off":
                    return {"disable-cuda-graph": "true"}
                flag, other = ("cuda-graph-bs", "cuda-graph-max-bs")
                if text.isdecimal():
                    flag, other = other, flag
                return {"disable-cuda-graph": None, flag: text, other: None}

    def check(self, values: Mapping[str, str]) -> None:
        """Raise `UsageError` for what the engine's own parser refuses."""
        try:
            options = resolve(dict(values))
            if options.fault is not None:
                parse_fault(options.fault, options.tp_size)
        except OptionError as error:
            raise UsageError(str(error)) from None

    def world_size(self, values: Mapping[str, str]) -> int:
        """Return the number of ranks, which is TP's."""
        return resolve(dict(values)).tp_size

    def sources(self, values: Mapping[str, str]) -> dict[str, int | None]:
        """Return the ranks, the front end and the spawner."""
        ranks = {f"rank-{rank}": rank for rank in range(self.world_size(values))}
        return {**ranks, "frontend": None, "spawner": None}

    def chips(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return parallelism, speculation and graphs, such as tp8 ep8 ngram:4 graphs≤16."""
        options = resolve(dict(values))
        chips = [f"tp{options.tp_size}"]
        if options.ep_size > 1:
            chips.append(f"ep{options.ep_size}")
        if options.speculative_algorithm != "off":
            chips.append(f"{options.speculative_algorithm}:{draft_tokens(options)}")
        buckets = bucket_table(options)
        chips.append(f"graphs≤{max(buckets)}" if buckets else "no graphs")
        if options.fault:
            chips.append("drill")
        return tuple(chips)

    def address(self, values: Mapping[str, str]) -> tuple[str, int]:
        """Return host and port that the front end binds."""
        options = resolve(dict(values))
        return options.host, options.port

    def api_key(self, values: Mapping[str, str]) -> str | None:
        """Return the bearer token that clients must send."""
        return values.get("api-key")

    def node_flags(self, index: int, count: int, address: str) -> dict[str, str]:
        """Refuse: its ranks meet over one machine's memory."""
        raise UsageError(
            "the embedded engine runs on one node only", "take sglang or vllm for several"
        )

    def evidence_flags(self, folder: Path) -> dict[str, str]:
        """Return where events and heartbeats go."""
        return {
            "events-file": str(folder / "events.jsonl"),
            "heartbeat-file": str(folder / "heartbeats"),
        }

    def command(self, values: Mapping[str, str], folder: Path) -> Command:
        """Return the job of the spawner."""
        logs = {source: str(folder / f"{source}.log") for source in self.sources(values)}
        return Command(spawner=SpawnerJob(argv=to_argv(dict(values)), logs=logs))

    def pulse(self, folder: Path, world_size: int) -> Pulse | None:
        """Return the heartbeats once the engine has made the file at its full size."""
        path = folder / "heartbeats"
        try:
            if path.stat().st_size < world_size * RECORD_SIZE:
                return None
            return _Pulse(HeartbeatFile(path, world_size))
        except OSError:
            return None


class _Pulse:
    def __init__(self, file: HeartbeatFile) -> None:
        self._file = file

    def read(self) -> tuple[Progress | None, ...]:
        return tuple(
            Progress(
                beat.phase,
                beat.done,
                beat.total,
                beat.detail,
                beat.step,
                beat.age(),
                beat.meetings,
                beat.waiting,
            )
            if beat.mono_ns
            else None
            for beat in self._file.read_all()
        )

    def memory(self) -> Mapping[int, Mapping[str, int]]:
        return {}

    def close(self) -> None:
        self._file.close()


def _flag(option: Option) -> Flag:
    default = option.default
    return Flag(
        name=option.name,
        kind=option.kind,
        default=None if default is None else _text(default),
        help=option.help,
        group=option.group,
        choices=option.choices,
        toggle=option.toggle,
        common=option.common,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _default(name: str) -> str:
    return next(_text(option.default) for option in OPTIONS if option.name == name)
