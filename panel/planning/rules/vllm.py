"""What vLLM refuses, changes in silence, or lets pass to its harm."""

from __future__ import annotations

from panel.planning.rules.rule import Rule, Silent
from panel.planning.scene import Scene
from panel.planning.vllm import batched_tokens, dp, drafts, largest_graph, read_json, sequences, tp

_CONFIG = "config/vllm.py"
_PARALLEL = "config/parallel.py"
_USUAL = "allgather_reducescatter"
_GONE_BACKENDS = ("naive", "pplx")
_NO_EPLB = ("KimiK25ForConditionalGeneration",)


def _utilisation(scene: Scene) -> str:
    return "0.92" if scene.of(">=0.24") else "0.9"


SILENTS: tuple[Silent, ...] = (
    Silent("", "gpu-memory-utilization", lambda s: "gpu-memory-utilization" not in s.values,
           _utilisation, "the engine's default, a share of the whole GPU", "config/cache.py"),
    Silent("", "max-num-seqs", lambda s: "max-num-seqs" not in s.values,
           lambda s: str(sequences(s)), "chosen by the GPU's memory", "engine/arg_utils.py"),
    Silent("", "max-num-batched-tokens", lambda s: "max-num-batched-tokens" not in s.values,
           lambda s: str(batched_tokens(s)), "chosen by the GPU's memory", "engine/arg_utils.py"),
    Silent("", "max-cudagraph-capture-size", lambda s: not s.on("enforce-eager")
           and not {"max-cudagraph-capture-size", "cudagraph-capture-sizes"} & set(s.values),
           lambda s: str(largest_graph(s)), "tokens: sequences times drafts, doubled, at most 512",
           _CONFIG),
    Silent("", "all2all-backend", lambda s: s.text("all2all-backend") in _GONE_BACKENDS,
           _USUAL, "that backend is gone; the engine falls back with a warning", _PARALLEL),
)  # fmt: skip


def _alone(scene: Scene) -> bool:
    return tp(scene) * dp(scene) == 1


def _eplb(scene: Scene) -> dict[str, object]:
    return read_json(scene, "eplb-config")


def _heads_do_not_fit(scene: Scene) -> bool:
    return scene.model is not None and scene.model.shape.heads % tp(scene) != 0


def _slots(scene: Scene) -> int:
    routed = scene.model.shape.experts.routed if scene.model else 0
    return routed + int(str(_eplb(scene).get("num_redundant_experts", 0)))


def _backend_without_use(scene: Scene) -> bool:
    given = "all2all-backend" in scene.values and scene.text("all2all-backend") != _USUAL
    return given and dp(scene) == 1


RULES: tuple[Rule, ...] = (
    Rule("refusal", "", lambda s: s.on("enable-eplb")
         and (not s.on("enable-expert-parallel") or _alone(s)),
         "EPLB moves experts between ranks: it needs enable-expert-parallel and TP x DP above 1",
         "enable-eplb", _PARALLEL, lambda s: {"enable-expert-parallel": "true"}),
    Rule("refusal", "", lambda s: not s.on("enable-eplb")
         and bool(_eplb(s).get("num_redundant_experts")),
         "redundant experts need enable-eplb", "eplb-config", _PARALLEL,
         lambda s: {"enable-eplb": "true"}),
    Rule("refusal", "", lambda s: _eplb(s).get("use_async", True) not in (False, "false")
         and _eplb(s).get("communicator") in ("torch_nccl", "pynccl"),
         "eplb-config: its NCCL communicators do not work asynchronously; set use_async to false",
         "eplb-config", _PARALLEL),
    Rule("refusal", "", lambda s: s.model is not None and s.on("enable-eplb")
         and _slots(s) % (tp(s) * dp(s)) != 0,
         lambda s: f"{_slots(s)} experts, redundant ones included, cannot be shared evenly by"
         f" {tp(s) * dp(s)} ranks", "eplb-config", _PARALLEL),
    Rule("refusal", "", _heads_do_not_fit,
         lambda s: f"tensor-parallel-size {tp(s)}: the model's attention heads cannot be shared"
         " evenly", "tensor-parallel-size", _CONFIG),
    Rule("refusal", "", lambda s: s.model is not None and s.on("enable-eplb")
         and s.model.shape.model_class in _NO_EPLB,
         "this model class cannot rebalance its experts in vLLM yet; leave enable-eplb out",
         "enable-eplb", "vllm-project/vllm #40752"),
    Rule("warning", "", _backend_without_use,
         lambda s: f"all2all-backend {s.text('all2all-backend')} is not used with TP alone: all"
         " ranks hold the same tokens, and one all-reduce completes a layer",
         "all2all-backend", _PARALLEL),
    Rule("note", "", lambda s: s.on("enable-expert-parallel") and _alone(s),
         "enable-expert-parallel does nothing on one rank", "enable-expert-parallel", _PARALLEL),
    Rule("warning", "", lambda s: drafts(s).trained and s.text("attention-backend") == "TRITON_MLA",
         "TRITON_MLA lowers the graph mode to PIECEWISE under speculation, measured 4.3 times"
         " slower at 30k tokens of context; look for cudagraph_mode in the log",
         "attention-backend", "rtx6kpro notes, kimi-k26-mtp-long-ctx"),
)  # fmt: skip
