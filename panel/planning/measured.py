"""A plan's memory beside what the ranks said they took. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from panel.domain.plan import Fit, Measured, Memory

_OTHERS = {
    "context and NCCL": "",
    "activations": "",
    "KV cache": "kv_cache",
    "graphs": "graphs",
    "draft": "draft",
    "workspace": "workspace",
    "all-to-all workspace": "workspace",
}
"""Lines of the table that are no weights; with an empty name nobody measures them alone."""
_WEIGHTS = ("weights", "shared_experts")
_WORDS = {
    "weights": "weights",
    "workspace": "workspace",
    "draft": "draft",
    "kv_cache": "KV cache",
    "graphs": "graphs",
}


def measured(
    memory: Sequence[Memory], fit: Fit | None, ranks: Mapping[int, Mapping[str, int]]
) -> tuple[Measured, ...]:
    """Return each part that was measured, of the rank that has most of it, and the cache in tokens,
    of the rank that has least."""
    return tuple(_measured(memory, fit, ranks))


def _measured(
    memory: Sequence[Memory], fit: Fit | None, ranks: Mapping[int, Mapping[str, int]]
) -> Iterator[Measured]:
    predicted: dict[str, int] = {}
    for line in memory:
        name = _OTHERS.get(line.category, "weights")
        predicted[name] = predicted.get(name, 0) + line.predicted
    for name, words in _WORDS.items():
        names = _WEIGHTS if name == "weights" else (name,)
        found = max((sum(each.get(n, 0) for n in names) for each in ranks.values()), default=0)
        if found:
            yield Measured(part=words, predicted=predicted.get(name), measured=found)
    tokens = [each["kv_tokens"] for each in ranks.values() if "kv_tokens" in each]
    if tokens:
        planned = fit.kv_tokens if fit else None
        yield Measured(part="KV tokens", predicted=planned, measured=min(tokens), unit="tokens")
