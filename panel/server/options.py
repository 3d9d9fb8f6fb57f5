"""The engine's flags: one table that the parser, the panel and the docs read."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Literal

Kind = Literal["int", "float", "str", "choice", "ints", "switch"]
Toggle = Literal["ep", "spec", "graphs"]


class OptionError(ValueError):
    """A flag or value that cannot work: names the thing and the way out."""


@dataclass(frozen=True, slots=True)
class Option:
    """One flag."""

    name: str
    """Long name without dashes."""
    kind: Kind
    default: object
    help: str
    group: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    toggle: Toggle | None = None
    common: bool = False

    @property
    def attribute(self) -> str:
        """Name of the field of `Options`."""
        return self.name.replace("-", "_")


OPTIONS: tuple[Option, ...] = (
    Option("model-path", "str", "moe-tiny", "Folder of a Hugging Face checkpoint, or moe-tiny", "model", common=True),
    Option("served-model-name", "str", None, "Name in the API; default: the folder's", "model"),
    Option("load-format", "choice", "auto", "auto reads safetensors; dummy makes seeded random weights", "model", ("auto", "dummy")),
    Option("keep-weights", "switch", False, "Hold the weights in memory over a relaunch, which then reads no file; down and other launches let them go", "model"),
    Option("dtype", "choice", "auto", "Compute type; auto is float32 on CPU, bfloat16 on GPUs", "model", ("auto", "float32", "bfloat16", "float16")),
    Option("device", "choice", "auto", "Where the ranks compute", "model", ("auto", "cpu", "cuda")),
    Option("context-length", "int", None, "Longest prompt plus answer in tokens; default: the model's", "model", minimum=16),
    Option("seed", "int", 0, "Seed of sampling and of dummy weights", "model", minimum=0),
    Option("host", "str", "127.0.0.1", "Address of the API", "api"),
    Option("port", "int", 30000, "Port of the API", "api", minimum=1, maximum=65535, common=True),
    Option("api-key", "str", None, "Bearer token that clients must send", "api"),
    Option("tp-size", "int", 8, "Ranks that share each layer", "parallel", minimum=1, maximum=64, common=True),
    Option("ep-size", "int", 1, "Ranks that share the experts; 1 splits each expert over all ranks", "parallel", minimum=1, maximum=64, toggle="ep", common=True),
    Option("moe-a2a-backend", "choice", "none", "Path by which tokens go to their experts; none: tokens are on every rank", "parallel", ("none", "auto", "shm", "gloo", "nccl"), toggle="ep"),
    Option("dp-attention", "switch", False, "Each rank owns whole requests and their KV cache; needs an all-to-all", "parallel", toggle="ep"),
    Option("shared-experts-tp", "choice", "auto", "Shared experts split over all ranks or whole on each; auto splits them unless dp-attention", "parallel", ("auto", "sharded", "replicated"), toggle="ep"),
    Option("ep-num-redundant-experts", "int", 0, "Slots for second copies of hot experts, over all ranks", "parallel", minimum=0, maximum=4096, toggle="ep"),
    Option("init-expert-location", "str", "trivial", "trivial, or a JSON or PT file: experts by slot, or how often each was chosen", "parallel", toggle="ep"),
    Option("eplb-interval", "int", 0, "Model steps between two rebalances of the experts; 0: on demand alone", "parallel", minimum=0, toggle="ep"),
    Option("eplb-domains", "int", 1, "Groups of ranks, such as sockets, that groups of experts are kept in", "parallel", minimum=1, maximum=64, toggle="ep"),
    Option("allreduce-backend", "choice", "auto", "Path of the sums over ranks; auto takes the fastest for each size; peer: GPUs write to each other, NCCL for large sums", "parallel", ("auto", "shm", "gloo", "nccl", "peer")),
    Option("collectives-file", "str", None, "JSON file that keeps the measured times of the sums, so that a start need not measure; default: for GPUs collectives.json in ~/.cache/moepanel", "parallel"),
    Option("speculative-algorithm", "choice", "off", "Draft tokens and verify them in one step", "speculation", ("off", "ngram", "eagle3"), toggle="spec", common=True),
    Option("speculative-num-steps", "int", None, "Most tokens drafted for one verify step; default: 3 with eagle3, 4 with ngram", "speculation", minimum=1, maximum=16, toggle="spec"),
    Option("speculative-draft-model-path", "str", None, "Folder of an EAGLE-3 draft head; default: the folder draft inside the model's", "speculation", toggle="spec"),
    Option("speculative-draft-ranks", "choice", "auto", "Who drafts: all, each a part of the head, or rank 0 alone, which tells the others; auto is one on CPU, all on GPUs", "speculation", ("auto", "all", "one"), toggle="spec"),
    Option("speculative-adaptive", "switch", True, "Draft as much as pays; false: always as much as may be", "speculation", toggle="spec"),
    Option("speculative-simulate-acceptance", "float", None, "Speed tests: accept each drafted token with this probability, whatever the model says", "speculation", minimum=0, maximum=1, toggle="spec"),
    Option("speculative-ngram-max", "int", 4, "Longest suffix looked up in the sequence's own text", "speculation", minimum=1, maximum=16, toggle="spec"),
    Option("speculative-ngram-min", "int", 2, "Shortest such suffix", "speculation", minimum=1, maximum=16, toggle="spec"),
    Option("cuda-graph-bs", "ints", None, "Batch sizes captured for decode; default: 1 2 4 8 ... up to the maximum", "graphs", minimum=1, toggle="graphs", common=True),
    Option("cuda-graph-max-bs", "int", None, "Largest captured batch size; default: max-running-requests", "graphs", minimum=1, maximum=4096, toggle="graphs", common=True),
    Option("disable-cuda-graph", "switch", False, "Decode without captured graphs", "graphs", toggle="graphs"),
    Option("mem-fraction-static", "float", 0.85, "Share of a GPU's memory for weights and KV cache; on CPU of what is free, capped at 1 GiB for all ranks", "memory", minimum=0.05, maximum=0.98, common=True),
    Option("max-total-tokens", "int", None, "Tokens of KV cache; default: what the memory holds", "memory", minimum=64),
    Option("page-size", "int", 16, "Tokens of a page of KV cache", "memory", minimum=1, maximum=256),
    Option("max-running-requests", "int", 16, "Sequences in one step at most", "scheduler", minimum=1, maximum=4096, common=True),
    Option("chunked-prefill-size", "int", 0, "Prompt tokens in one step at most; 0: 512 on CPU ranks, 8192 on GPUs", "scheduler", minimum=0, maximum=131072, common=True),
    Option("max-queued-requests", "int", 1024, "Sequences that wait at most; more are refused with 503", "scheduler", minimum=0),
    Option("disable-prefix-cache", "switch", False, "Compute every prompt whole, also where it begins like one before", "scheduler"),
    Option("max-body-bytes", "int", 4194304, "Largest body of a request; a larger one is refused with 413", "api", minimum=1024),
    Option("stream-interval", "int", 1, "Tokens between two pieces of a stream", "api", minimum=1),
    Option("peer-timeout", "float", 300.0, "Seconds a rank waits for the others before it gives up", "failure", minimum=1),
    Option("drain-seconds", "float", 5.0, "Seconds that running requests get at a stop", "failure", minimum=0),
    Option("fault", "str", None, "Drill: rank=R,phase=P,kind=K[,after=T]", "failure"),
    Option("log-level", "choice", "info", "Least severe log line", "log", ("debug", "info", "warning", "error")),
    Option("decode-log-interval", "int", 40, "Decode steps between two log lines", "log", minimum=1),
    Option("events-file", "str", None, "JSON lines of startup events are appended here", "log"),
    Option("heartbeat-file", "str", None, "Mapped file of heartbeats; default: a private temporary one", "log"),
)  # fmt: skip

BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The parsed flags; fields are the names of `OPTIONS` with underscores."""

    model_path: str
    served_model_name: str | None
    load_format: str
    keep_weights: bool
    dtype: str
    device: str
    context_length: int | None
    seed: int
    host: str
    port: int
    api_key: str | None
    tp_size: int
    ep_size: int
    moe_a2a_backend: str
    dp_attention: bool
    shared_experts_tp: str
    ep_num_redundant_experts: int
    init_expert_location: str
    eplb_interval: int
    eplb_domains: int
    allreduce_backend: str
    collectives_file: str | None
    speculative_algorithm: str
    speculative_num_steps: int | None
    speculative_draft_model_path: str | None
    speculative_draft_ranks: str
    speculative_adaptive: bool
    speculative_simulate_acceptance: float | None
    speculative_ngram_max: int
    speculative_ngram_min: int
    cuda_graph_bs: tuple[int, ...] | None
    cuda_graph_max_bs: int | None
    disable_cuda_graph: bool
    mem_fraction_static: float
    max_total_tokens: int | None
    page_size: int
    max_running_requests: int
    chunked_prefill_size: int
    max_queued_requests: int
    disable_prefix_cache: bool
    max_body_bytes: int
    stream_interval: int
    peer_timeout: float
    drain_seconds: float
    fault: str | None
    log_level: str
    decode_log_interval: int
    events_file: str | None
    heartbeat_file: str | None


assert [field.name for field in fields(Options)] == [option.attribute for option in OPTIONS]


def convert(option: Option, text: str) -> object:
    """Return the typed value of `text`, or raise `OptionError` with the way out."""
    try:
        match option.kind:
            case "int":
                value: object = int(text)
            case "float":
                value = float(text)
            case "ints":
                value = tuple(sorted({int(part) for part in text.replace(",", " ").split()}))
                if not value:
                    raise ValueError
            case "switch":
                value = {"true": True, "false": False}[text.lower()]
            case _:
                value = text
    except (ValueError, KeyError):
        wanted = {
            "int": "a whole number", "float": "a number",
            "ints": "whole numbers joined by commas", "switch": "true or false",
        }[option.kind]  # fmt: skip
        raise OptionError(f"{option.name}: {text!r} is not {wanted}") from None
    if option.choices and value not in option.choices:
        raise OptionError(
            f"{option.name}: {text!r} is not one of {', '.join(option.choices)}{nearest(text, option.choices)}"
        )
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and not isinstance(number, bool):
            if option.minimum is not None and number < option.minimum:
                raise OptionError(f"{option.name}: {number} is below {option.minimum:g}")
            if option.maximum is not None and number > option.maximum:
                raise OptionError(f"{option.name}: {number} is above {option.maximum:g}")
    return value


def nearest(name: str, names: tuple[str, ...] | list[str]) -> str:
    """Return `; did you mean a or b?` for the names closest to `name`, or nothing."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def resolve(values: dict[str, str]) -> Options:
    """Return the options for flag texts by long name; unknown names and bad values are refused."""
    unknown = [name for name in values if name not in BY_NAME]
    if unknown:
        raise OptionError(f"unknown flag {unknown[0]}{nearest(unknown[0], list(BY_NAME))}")
    typed = {
        option.attribute: convert(option, values[option.name])
        if option.name in values
        else option.default
        for option in OPTIONS
    }
    return Options(**typed)  # type: ignore[arg-type]


def parse(argv: list[str]) -> Options:
    """Return the options of a command line: `--name value`, `--name=value`, switches bare."""
    values: dict[str, str] = {}
    position = 0
    while position < len(argv):
        word = argv[position]
        if not word.startswith("--"):
            raise OptionError(f"{word!r} is not a flag: flags start with --")
        name, equals, text = word[2:].partition("=")
        option = BY_NAME.get(name)
        position += 1
        if option is None:
            raise OptionError(f"unknown flag --{name}{nearest(name, list(BY_NAME))}")
        if not equals and option.kind == "switch":
            text = "true"
        elif not equals:
            parts = []
            while position < len(argv) and not argv[position].startswith("--"):
                parts.append(argv[position])
                position += 1
                if option.kind != "ints":
                    break
            if not parts:
                raise OptionError(f"--{name} needs a value")
            text = " ".join(parts)
        values[name] = text
    return resolve(values)


def to_argv(values: dict[str, str]) -> list[str]:
    """Return the command line of flag texts, in the table's order."""
    return [f"--{option.name}={values[option.name]}" for option in OPTIONS if option.name in values]
