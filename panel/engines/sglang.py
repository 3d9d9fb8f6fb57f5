"""SGLang 0.5: the HTTP server, and as its children a scheduler for each rank; one log for all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from panel.domain.errors import UsageError
from panel.domain.flags import Toggle
from panel.engines.base import MetricNames
from panel.engines.external import External

_SPECULATION = (
    "speculative-algorithm",
    "speculative-draft-model-path",
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
)
_MEETING_PORT = 20000
"""Where the ranks of several nodes find each other; below the ports that systems give away."""


class SGLang(External):
    """`python -m sglang.launch_server`."""

    name = "sglang"
    module = ("-m", "sglang.launch_server")
    premature = "Application startup complete"
    metric_names = MetricNames(
        generated="sglang:generation_tokens_total",
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        kv_used="sglang:num_used_tokens",
        kv_total="sglang:max_total_num_tokens",
        throughput="sglang:gen_throughput",
        acceptance="sglang:spec_accept_length",
        first_token="sglang:time_to_first_token_seconds",
        inter_token="sglang:inter_token_latency_seconds",
    )

    def environment(self) -> dict[str, str]:
        """Return also what keeps `/health` from generating a token each time it is asked."""
        return super().environment() | {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}

    def neutral(
        self, toggle: Toggle, text: str, values: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Return the flags that a neutral name stands for."""
        match toggle:
            case "ep":
                return self._experts(text, values)
            case "spec":
                return self._speculation(text, values)
            case "graphs":
                if text == "off":
                    return {"disable-cuda-graph": "true"}
                sizes = self.known("cuda-graph-bs-decode", "cuda-graph-bs")
                most = self.known("cuda-graph-max-bs-decode", "cuda-graph-max-bs")
                flag, other = (most, sizes) if text.isdecimal() else (sizes, most)
                return {"disable-cuda-graph": None, flag: text, other: None}

    def world_size(self, values: Mapping[str, str]) -> int:
        """Return TP x PP; data-parallel attention lies within TP, replicas multiply it."""
        shards = self.number(values, "tp-size", 1) * self.number(values, "pp-size", 1)
        replicas = 1 if self._dp_attention(values) else self.number(values, "dp-size", 1)
        return shards * replicas

    def chips(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return parallelism, speculation and graphs, such as tp8 ep8 eagle3:3 graphs≤128."""
        chips = [f"tp{self.number(values, 'tp-size', 1)}"]
        for name in ("ep", "pp", "dp"):
            size = self.number(values, f"{name}-size", 1)
            if size > 1:
                chips.append(f"{name}{size}")
        if (path := self.value(values, "moe-a2a-backend", "none")) != "none":
            chips.append(f"a2a {path}")
        if algorithm := self.value(values, "speculative-algorithm", ""):
            steps = self.value(values, "speculative-num-steps", "")
            chips.append(algorithm.lower() + (f":{steps}" if steps else ""))
        if self.value(values, "disable-cuda-graph", "false") == "true":
            chips.append("no graphs")
        else:
            most = self.known("cuda-graph-max-bs-decode", "cuda-graph-max-bs")
            sizes = self.known("cuda-graph-bs-decode", "cuda-graph-bs")
            listed = self.value(values, sizes, "").split(",")[-1]
            if limit := self.value(values, most, "") or listed:
                chips.append(f"graphs≤{limit}")
        return tuple(chips)

    def node_flags(self, index: int, count: int, address: str) -> dict[str, str]:
        """Return its place among the nodes, and where all of them meet."""
        return {
            "nnodes": str(count),
            "node-rank": str(index),
            "dist-init-addr": f"{address}:{_MEETING_PORT}",
        }

    def evidence_flags(self, folder: Path) -> dict[str, str]:
        """Return what makes it count."""
        return {"enable-metrics": "true"}

    def _dp_attention(self, values: Mapping[str, str]) -> bool:
        switched = self.value(values, "enable-dp-attention", "false") == "true"
        return switched or self.value(values, "attn-dp-size", "1") != "1"

    def _experts(self, text: str, values: Mapping[str, str]) -> dict[str, str | None]:
        if text == "off":
            return {"ep-size": None, "moe-a2a-backend": None}
        return {"ep-size": self.value(values, "tp-size", "1") if text == "on" else text}

    def _speculation(self, text: str, values: Mapping[str, str]) -> dict[str, str | None]:
        algorithm, colon, number = text.partition(":")
        match algorithm:
            case "off":
                return dict.fromkeys(_SPECULATION)
            case "ngram":
                chosen: dict[str, str | None] = dict.fromkeys(_SPECULATION)
                return chosen | {
                    "speculative-algorithm": "NGRAM",
                    "speculative-num-draft-tokens": number if colon else None,
                }
            case "eagle3":
                steps = number or self.value(values, "speculative-num-steps", "3")
                if not steps.isdecimal():
                    raise UsageError(f"spec: {text!r}: the number of steps is none")
                return {
                    "speculative-algorithm": "EAGLE3",
                    "speculative-num-steps": steps,
                    "speculative-eagle-topk": "1",
                    "speculative-num-draft-tokens": str(int(steps) + 1),
                }
        raise UsageError(f"spec: {text!r} is not off, ngram[:N] or eagle3[:N]")
