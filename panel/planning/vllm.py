"""How vLLM splits a model and sizes a step: facts that rules and memory plan share."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from panel.planning.scene import GIB, Scene

_UNTRAINED = ("ngram", "ngram_gpu", "suffix")


class Drafts(NamedTuple):
    """Speculation, as the JSON of its flag says."""

    method: str
    tokens: int
    trained: bool
    """Whether the drafts come from weights."""


def tp(scene: Scene) -> int:
    """Return the ranks that share a layer."""
    return scene.count("tensor-parallel-size")


def dp(scene: Scene) -> int:
    """Return the replicas of attention."""
    return scene.count("data-parallel-size")


def drafts(scene: Scene) -> Drafts:
    """Return the speculation; an empty method for none."""
    config = read_json(scene, "speculative-config")
    method = str(config.get("method") or scene.text("spec-method"))
    tokens = config.get("num_speculative_tokens") or scene.number("spec-tokens")
    return Drafts(method, int(tokens), method not in ("", *_UNTRAINED))


def read_json(scene: Scene, name: str) -> dict[str, Any]:
    """Return the object that a JSON flag and its dotted parts say; empty for what is no object."""
    try:
        found = json.loads(scene.text(name, "{}"))
    except ValueError:
        found = {}
    parts = {
        key.removeprefix(f"{name}."): text
        for key, text in scene.values.items()
        if key.startswith(f"{name}.")
    }
    return {**found, **parts} if isinstance(found, dict) else parts


def sequences(scene: Scene) -> int:
    """Return the sequences of a step at most."""
    large = scene.hardware is None or scene.hardware.memory >= 70 * GIB
    return scene.number("max-num-seqs", 1024 if large else 256)


def batched_tokens(scene: Scene) -> int:
    """Return the tokens of a step at most."""
    memory = scene.hardware.memory if scene.hardware else 80 * GIB
    usual = 16384 if memory >= 160 * GIB else 8192 if memory >= 70 * GIB else 2048
    return scene.number("max-num-batched-tokens", usual)


def largest_graph(scene: Scene) -> int:
    """Return the largest captured size, in tokens."""
    if "cudagraph-capture-sizes" in scene.values:
        return max(int(text) for text in scene.text("cudagraph-capture-sizes").split(","))
    capability = scene.hardware.capability if scene.hardware else ""
    most = 1024 if capability.startswith("10.") else 512
    usual = min(sequences(scene) * (1 + drafts(scene).tokens) * 2, most)
    return min(scene.number("max-cudagraph-capture-size", usual), batched_tokens(scene))
