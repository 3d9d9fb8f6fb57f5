"""What an engine is to the panel."""

from __future__ import annotations

from panel.domain.errors import UsageError
from panel.engines.base import Engine
from panel.engines.builtin import Builtin
from panel.engines.sglang import SGLang
from panel.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (Builtin(), SGLang(), VLLM())}


def find_engine(name: str) -> Engine:
    """Return the engine of a profile, or raise `UsageError`."""
    try:
        return ENGINES[name]
    except KeyError:
        raise UsageError(f"no engine {name!r}", f"known: {', '.join(ENGINES)}") from None
