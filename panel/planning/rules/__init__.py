"""Rules between flags, and between flags and the model they name: data, an engine a file."""

from __future__ import annotations

from panel.planning.rules import sglang, vllm
from panel.planning.rules.rule import Rule, Silent

RULES: dict[str, tuple[Rule, ...]] = {"sglang": sglang.RULES, "vllm": vllm.RULES}
SILENTS: dict[str, tuple[Silent, ...]] = {"sglang": sglang.SILENTS, "vllm": vllm.SILENTS}
