"""What the front end and rank 0 say to each other.

A stream socket pair carries frames: four bytes of length (little endian), then one msgpack value of
`ToEngine` or `FromEngine`. Rank 0 owns every decision about tokens; the front end owns text.
"""

from __future__ import annotations

import struct
from typing import Literal

import msgspec

_LENGTH = struct.Struct("<I")

Finish = Literal["stop", "length", "abort", "error"]


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """Start one sequence."""

    rid: str
    tokens: list[int]
    max_new_tokens: int
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is no limit."""
    min_p: float = 0.0
    seed: int | None = None
    stop_tokens: list[int] = []
    """Ids that end the sequence; the ending id is reported too."""
    logprobs: int | None = None
    """None: none; n: the chosen token's and those of the n most probable tokens."""
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    """Logits of tokens in prompt or answer are divided by it where positive, else multiplied."""
    priority: int = 0
    """The highest goes first."""
    prompt_logprobs: bool = False
    """With `logprobs`: also those of the prompt's tokens after the first."""

    @property
    def penalised(self) -> bool:
        """True where a token's chances depend on the text before it by more than the model."""
        return bool(self.frequency_penalty or self.presence_penalty or self.repetition_penalty != 1)


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """End one sequence, or all where `rid` is None."""

    rid: str | None = None


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Take no new sequences, finish those that run for at most `seconds`, then stop."""

    seconds: float


class Flush(msgspec.Struct, frozen=True, tag="flush"):
    """Forget the cached prompts that no sequence uses; answered by `Flushed`."""


class TokenLogprob(msgspec.Struct, frozen=True):
    """Log probability of one token, natural logarithm, before temperature."""

    token: int
    logprob: float
    top: list[tuple[int, float]] = []


class Tokens(msgspec.Struct, frozen=True):
    """What one step added to one sequence."""

    rid: str
    tokens: list[int]
    logprobs: list[TokenLogprob] | None = None
    finish: Finish | None = None
    error: str | None = None
    """With finish `error`: why, for the client."""
    cached_tokens: int = 0
    """With the first tokens: how many of the prompt were in the cache."""
    queued: float | None = None
    """With the first tokens of a sequence: seconds it waited for room in the batch."""
    prompt_logprobs: list[TokenLogprob] | None = None
    """Those of the prompt's next tokens, where they are wanted."""


class Step(msgspec.Struct, frozen=True, tag="step"):
    """The news of one step, all sequences together."""

    news: list[Tokens]


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """Counters since start and gauges of now; sent ten times a second and at the last end."""

    running: int
    waiting: int
    kv_used: int
    """Tokens of KV cache in use."""
    kv_total: int
    steps: int
    prompt_tokens: int
    generated_tokens: int
    preemptions: int
    kv_cached: int = 0
    """Tokens of KV cache that no sequence uses but a later one may."""
    cached_tokens: int = 0
    """Prompt tokens that were in the cache."""
    prefill_steps: int = 0
    """Steps that computed a prompt or a part of one."""
    decode_steps: list[tuple[int, int]] = []
    """(batch size after padding, steps of it), ascending."""
    spec_drafts: int = 0
    """Verify passes that had a draft."""
    spec_draft_tokens: int = 0
    spec_accepted_tokens: int = 0
    spec_accepted_per_position: list[int] = []
    spec_drafted_per_position: list[int] = []
    spec_draft_length: int = 0
    """Tokens drafted for each sequence in the last decode step; 0 where drafts do not pay."""
    spec_tokens_per_cycle: float | None = None
    """Mean tokens that the last steps with a draft gave a sequence."""
    spec_break_even: float | None = None
    """Tokens that such a step has to give to be worth its time; None where not known yet."""
    spec_cycles: int = 0
    """Steps with drafts of a draft head."""
    spec_foreseen: int = 0
    """Those of them whose verification the head laid out on the device."""
    spec_seconds: dict[str, float] = {}
    """Seconds of rank 0 in their parts: extend, draft, verify."""
    spec_simulated: float | None = None
    """The acceptance that is simulated: the text means nothing. None: it is real."""
    step_collectives: float = 0.0
    """Collectives of a decode step, median of the last ones."""
    step_collective_ms: float = 0.0
    """Time that rank 0 spends in them in a step."""
    step_ms: float = 0.0
    """Median wall time of the last decode steps."""
    rebalances: int = 0
    """How often experts were given new places."""
    expert_balancedness: float | None = None
    """Mean over maximum of the ranks' load since then, mean of the layers; None if not known."""


class RankMemory(msgspec.Struct, frozen=True):
    """What the memory of one rank goes to: bytes by category, in the order of allocation."""

    predicted: dict[str, int]
    """From the flags and the model's shape alone, where that can be."""
    measured: dict[str, int]
    weights_read: int
    """Bytes of the checkpoint that the rank read."""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """Rank 0 serves: what the engine settled on."""

    max_total_tokens: int
    max_context: int
    buckets: list[int]
    phases: dict[str, float]
    """Seconds spent in each phase of rank 0's start."""
    memory: list[RankMemory]
    """By rank."""
    collectives: list[tuple[int, str, float]]
    """(message bytes, path, microseconds) as measured at start."""
    nccl: str | None = None
    """Which NCCL the ranks have loaded, in words; None where they are on CPUs."""


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """Rank 0 is about to end."""

    reason: str


class Flushed(msgspec.Struct, frozen=True, tag="flushed"):
    """The answer to `Flush`."""

    tokens: int
    """Tokens of KV cache that were forgotten."""


class Rebalance(msgspec.Struct, frozen=True, tag="rebalance"):
    """Put the experts where their load asks for them; answered by `Rebalanced`."""


class Rebalanced(msgspec.Struct, frozen=True, tag="rebalanced"):
    """The answer to `Rebalance`. Balancedness is mean over maximum of the ranks' load."""

    before: float | None
    """With the load since the last time; None where there was none."""
    after: float | None
    """What that load would have been with the new places."""
    moved: int
    """Experts that changed their place, all layers together."""
    seconds: float


ToEngine = Generate | Abort | Drain | Flush | Rebalance
FromEngine = Step | Stats | Started | Stopped | Flushed | Rebalanced

_encoder = msgspec.msgpack.Encoder()


def encode(message: ToEngine | FromEngine) -> bytes:
    """Return the frame of a message."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cut a byte stream back into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; return the bodies that are now whole."""
        self._buffer += data
        bodies = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        return bodies
