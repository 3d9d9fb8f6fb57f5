"""vLLM, V1: API server, EngineCore and workers, each the child of the one before.

Its exit codes lie: 0 also after a crash. Its `/health` answers 200 through a hang.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from panel.domain.errors import UsageError
from panel.domain.flags import Toggle
from panel.engines.base import MetricNames
from panel.engines.external import External

_LOOKUP = 4
"""Tokens of the prompt that n-gram speculation looks up at most."""


class VLLM(External):
    """`vllm serve`."""

    name = "vllm"
    module = ("-m", "vllm.entrypoints.cli.main", "serve")
    metric_names = MetricNames(
        generated="vllm:generation_tokens_total",
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        kv_share="vllm:kv_cache_usage_perc",
        kv_blocks="vllm:cache_config_info",
        drafts="vllm:spec_decode_num_drafts_total",
        accepted="vllm:spec_decode_num_accepted_tokens_total",
        first_token="vllm:time_to_first_token_seconds",
        inter_token="vllm:inter_token_latency_seconds",
    )

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
                most, sizes = "max-cudagraph-capture-size", "cudagraph-capture-sizes"
                if text == "off":
                    return {"enforce-eager": "true", most: None, sizes: None}
                flag, other = (most, sizes) if text.isdecimal() else (sizes, most)
                return {"enforce-eager": None, flag: text, other: None}

    def world_size(self, values: Mapping[str, str]) -> int:
        """Return TP x PP x DP."""
        kinds = ("tensor", "pipeline", "data")
        return math.prod(self.number(values, f"{kind}-parallel-size", 1) for kind in kinds)

    def chips(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return parallelism, speculation and graphs, such as tp8 ep8 ngram:4 graphs≤128."""
        chips = [f"tp{self.number(values, 'tensor-parallel-size', 1)}"]
        for kind in ("pipeline", "data"):
            size = self.number(values, f"{kind}-parallel-size", 1)
            if size > 1:
                chips.append(f"{kind[0]}p{size}")
        if self.value(values, "enable-expert-parallel", "false") == "true":
            chips.append(f"ep{self._ep_size(values)}")
        if config := self._speculative(values):
            number = config.get("num_speculative_tokens")
            chips.append(f"{config.get('method', 'spec')}" + (f":{number}" if number else ""))
        limit = self.value(values, "max-cudagraph-capture-size", "")
        limit = limit or self.value(values, "cudagraph-capture-sizes", "").split(",")[-1]
        if self.value(values, "enforce-eager", "false") == "true":
            chips.append("no graphs")
        elif limit:
            chips.append(f"graphs≤{limit}")
        return tuple(chips)

    def node_flags(self, index: int, count: int, address: str) -> dict[str, str]:
        """Return its place among the nodes; all but the first have workers alone, and no API."""
        place = {"nnodes": str(count), "node-rank": str(index), "master-addr": address}
        return place | ({"headless": "true"} if index else {})

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """Return the arguments; `serve` wants its model ahead of the flags."""
        settled = self.table.settle(values).values
        model = settled.pop("model", None)
        return [*([model] if model else []), *self.table.argv(settled)]

    def _ep_size(self, values: Mapping[str, str]) -> int:
        stages = self.number(values, "pipeline-parallel-size", 1)
        return self.world_size(values) // max(1, stages)

    def _experts(self, text: str, values: Mapping[str, str]) -> dict[str, str | None]:
        size = self._ep_size(values)
        if text in ("off", "1"):
            return {"enable-expert-parallel": None}
        if text not in ("on", str(size)):
            raise UsageError(
                f"ep: {text!r}: vLLM shares experts over all of TP x DP, {size} ranks here, or"
                " not at all",
                "take on or off",
            )
        return {"enable-expert-parallel": "true"}

    def _speculation(self, text: str, values: Mapping[str, str]) -> dict[str, str | None]:
        method, _, number = text.partition(":")
        config = self._speculative(values)
        if method == "off":
            return {"speculative-config": None}
        if method not in ("ngram", "eagle3") or not (number or "1").isdecimal():
            raise UsageError(f"spec: {text!r} is not off, ngram[:N] or eagle3[:N]")
        if method == "ngram":
            config = {"prompt_lookup_max": _LOOKUP}
        elif "model" not in config:
            raise UsageError(
                "spec: eagle3 needs a draft model",
                'set speculative-config={"method": "eagle3", "model": …} in the profile',
            )
        config |= {"method": method, "num_speculative_tokens": int(number or 3)}
        return {"speculative-config": json.dumps(config)}

    def _speculative(self, values: Mapping[str, str]) -> dict[str, object]:
        text = self.value(values, "speculative-config", "")
        try:
            config = json.loads(text) if text else {}
        except ValueError:
            config = None
        if not isinstance(config, dict):
            raise UsageError(f"speculative-config: {text!r} is no JSON object")
        return config
