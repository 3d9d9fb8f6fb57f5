"""What SGLang refuses, changes in silence, or lets pass to its harm."""

from __future__ import annotations

from panel.planning.rules.rule import Rule, Silent
from panel.planning.scene import Scene
from panel.planning.sglang import (
    A2A_FORCES_EP,
    EAGLE,
    a2a,
    attention_dp,
    chunk,
    default_fraction,
    ep,
    graph_flags,
    lacks_hook,
    largest_graph,
    quantisation,
    speculation,
    tp,
)

_ARGS = "srt/server_args.py"
_OFF = {"moe-a2a-backend": "none"}


def _eagle(scene: Scene) -> bool:
    return speculation(scene) in EAGLE


def _topk(scene: Scene) -> int:
    return scene.number("speculative-eagle-topk", 1)


def _chain_of_wrong_length(scene: Scene) -> bool:
    drafts = scene.number("speculative-num-draft-tokens")
    return _eagle(scene) and _topk(scene) == 1 and drafts != _steps(scene) + 1


def _steps(scene: Scene) -> int:
    return scene.number("speculative-num-steps", 3)


def _overlap_lost(scene: Scene) -> bool:
    forced = scene.env.get("SGLANG_ENABLE_SPEC_V2", "").lower() in ("1", "true")
    return speculation(scene) == "NGRAM" or (_eagle(scene) and not forced)


SILENTS: tuple[Silent, ...] = (
    Silent("", "chunked-prefill-size", lambda s: "chunked-prefill-size" not in s.values,
           lambda s: str(chunk(s)), "chosen by the GPU's memory", f"{_ARGS} memory settings"),
    Silent("<0.5.15", "cuda-graph-max-bs", lambda s: graph_flags(s)[0] not in s.values,
           lambda s: str(largest_graph(s)), "chosen by the GPU's memory and tp-size",
           f"{_ARGS} memory settings"),
    Silent(">=0.5.15", "cuda-graph-max-bs-decode", lambda s: graph_flags(s)[0] not in s.values,
           lambda s: str(largest_graph(s)), "chosen by the GPU's memory and tp-size",
           f"{_ARGS} memory settings"),
    # Before the all-to-all is resolved: no version keeps memory for what that takes.
    Silent("", "mem-fraction-static", lambda s: "mem-fraction-static" not in s.values,
           lambda s: f"{default_fraction(s):g}",
           "the engine's formula; it keeps nothing for replicated shared experts or an all-to-all",
           f"{_ARGS} memory settings"),
    Silent("", "chunked-prefill-size", lambda s: attention_dp(s) > 1 and chunk(s) > 0,
           lambda s: str(chunk(s) // attention_dp(s)),
           "data-parallel attention divides it by its ranks", f"{_ARGS} data parallelism"),
    Silent("", "ep-size", lambda s: a2a(s) in A2A_FORCES_EP,
           lambda s: str(tp(s)), lambda s: f"a2a {a2a(s)} forces it to tp-size",
           f"{_ARGS} _handle_a2a_moe"),
    Silent("<0.5.15", "disable-shared-experts-fusion", lambda s: a2a(s) == "flashinfer",
           "true", "a2a flashinfer keeps shared experts apart", f"{_ARGS} _handle_a2a_moe"),
    Silent("<0.5.15", "SGLANG_MOE_NVFP4_DISPATCH", lambda s: a2a(s) == "flashinfer"
           and "SGLANG_MOE_NVFP4_DISPATCH" not in s.env,
           "true", "a2a flashinfer sends tokens as NVFP4", f"{_ARGS} _handle_a2a_moe"),
    Silent("", "disable-cuda-graph",
           lambda s: a2a(s) == "deepep" and s.text("deepep-mode") == "normal",
           "true", "deepep-mode normal cannot be captured", f"{_ARGS} _handle_a2a_moe"),
    Silent("", "expert-distribution-recorder-mode", lambda s: s.on("enable-eplb"),
           "stat", "EPLB counts by it", f"{_ARGS} EPLB"),
    Silent("", "ep-dispatch-algorithm",
           lambda s: s.on("enable-eplb") and "ep-dispatch-algorithm" not in s.values,
           lambda s: "dynamic" if s.of(">=0.5.23") and a2a(s) == "none" else "static",
           "EPLB needs one", f"{_ARGS} EPLB"),
    Silent("", "speculative-algorithm", lambda s: speculation(s) == "NEXTN",
           "EAGLE", "NEXTN is another name of EAGLE", f"{_ARGS} speculation"),
    Silent("", "max-running-requests",
           lambda s: bool(speculation(s)) and "max-running-requests" not in s.values,
           "48", "speculation caps it where it is not set: set it to keep more",
           f"{_ARGS} speculation"),
    Silent("<0.5.15", "disable-overlap-schedule", _overlap_lost,
           "true", "speculation schedules between steps; the variable SGLANG_ENABLE_SPEC_V2=True"
           " keeps the overlap for EAGLE", f"{_ARGS} speculation"),
    Silent("", "speculative-num-draft-tokens", _chain_of_wrong_length,
           lambda s: str(_steps(s) + 1), "a chain verifies its steps and one more",
           f"{_ARGS} speculation"),
    Silent("", "disable-overlap-schedule", lambda s: s.count("pp-size") > 1,
           "true", "a pipeline schedules between steps", f"{_ARGS} pipeline"),
)  # fmt: skip


def _hook(scene: Scene) -> bool:
    return a2a(scene) != "none" and lacks_hook(scene)


def _hook_text(scene: Scene) -> str:
    assert scene.model is not None
    return (
        f"a2a {a2a(scene)} on {scene.model.shape.model_class}: will assert in graph capture: the"
        " model class has no expert-location hook; take a2a none, or 0.5.10 or later, or a config"
        " of the text model alone (DeepseekV3ForCausalLM)"
    )


def _spread(scene: Scene) -> bool:
    return attention_dp(scene) == tp(scene) > 1


_CUTLASS_TAKES = ("", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed")
_FLASHINFER_RUNNERS = (
    "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm", "flashinfer_trtllm_routed",
    "deep_gemm",
)  # fmt: skip


def _runner(scene: Scene) -> str:
    return scene.text("moe-runner-backend", "auto")


def _slots(scene: Scene) -> int:
    routed = scene.model.shape.experts.routed if scene.model else 0
    return routed + scene.number("ep-num-redundant-experts")


def _some_but_not_all(scene: Scene) -> bool:
    names = ("num-steps", "eagle-topk", "num-draft-tokens")
    given = sum(f"speculative-{name}" in scene.values for name in names)
    return _eagle(scene) and 0 < given < 3


def _paged_tree(scene: Scene) -> bool:
    backends = ("flashinfer", "fa3", *(("triton",) if scene.of(">=0.5.23") else ()))
    return (
        _eagle(scene)
        and _topk(scene) > 1
        and scene.count("page-size") > 1
        and scene.text("attention-backend") not in backends
    )


def _heads_do_not_fit(scene: Scene) -> bool:
    if scene.model is None:
        return False
    return scene.model.shape.heads % max(tp(scene) // attention_dp(scene), 1) != 0


def _verify_bytes(scene: Scene) -> int:
    tokens = scene.number("speculative-num-draft-tokens", 4)
    return tokens * scene.model.shape.hidden_size * 2 if scene.model else 0


def _slow_verify(scene: Scene) -> bool:
    pcie = scene.hardware is not None and scene.hardware.link == "pcie"
    return pcie and _eagle(scene) and tp(scene) > 1 and _verify_bytes(scene) > 48 * 1024


RULES: tuple[Rule, ...] = (
    Rule("refusal", "<0.5.10", _hook, _hook_text, "moe-a2a-backend",
         "srt/eplb/expert_location_dispatch.py init_new; srt/eplb/expert_location.py hasattr",
         lambda s: _OFF),
    Rule("refusal", ">=0.5.15", lambda s: a2a(s) == "flashinfer" and not _spread(s),
         lambda s: f"a2a flashinfer needs data-parallel attention over all {tp(s)} ranks from"
         " 0.5.15; set it, or take a2a none",
         "moe-a2a-backend", "srt/arg_groups/moe_hook.py", lambda s: _OFF),
    Rule("refusal", "<0.5.15",
         lambda s: a2a(s) == "flashinfer" and _runner(s) != "flashinfer_cutlass",
         lambda s: f"a2a flashinfer works with moe-runner-backend flashinfer_cutlass alone, not"
         f" {_runner(s)}",
         "moe-runner-backend", f"{_ARGS} _handle_a2a_moe",
         lambda s: {"moe-runner-backend": "flashinfer_cutlass"}),
    Rule("refusal", ">=0.5.15",
         lambda s: a2a(s) == "flashinfer" and _runner(s) not in _FLASHINFER_RUNNERS,
         lambda s: f"a2a flashinfer does not work with moe-runner-backend {_runner(s)}; take one"
         f" of {', '.join(_FLASHINFER_RUNNERS)}",
         "moe-runner-backend", "srt/arg_groups/moe_hook.py"),
    Rule("refusal", ">=0.5.15", lambda s: a2a(s) == "flashinfer" and chunk(s) <= 0,
         "a2a flashinfer needs a chunked-prefill-size above 0: its workspace is sized by it",
         "chunked-prefill-size", "srt/arg_groups/moe_hook.py"),
    Rule("refusal", ">=0.5.23",
         lambda s: a2a(s) == "pplx" and (attention_dp(s) < 2 or _runner(s) != "deep_gemm"),
         "a2a pplx needs data-parallel attention over two ranks or more and moe-runner-backend"
         " deep_gemm", "moe-a2a-backend", "srt/arg_groups/moe_hook.py", lambda s: _OFF),
    Rule("refusal", ">=0.5.23", lambda s: a2a(s) == "flashinfer_megamoe" and not _spread(s),
         "a2a flashinfer_megamoe needs data-parallel attention over all ranks, and compute"
         " capability 10.0", "moe-a2a-backend", "srt/arg_groups/moe_hook.py", lambda s: _OFF),
    Rule("refusal", "", lambda s: _runner(s) == "flashinfer_cutlass"
         and quantisation(s) not in _CUTLASS_TAKES,
         lambda s: f"moe-runner-backend flashinfer_cutlass cannot compute {quantisation(s)}; take"
         " auto", "moe-runner-backend", f"{_ARGS} _handle_moe_kernel_config",
         lambda s: {"moe-runner-backend": "auto"}),
    Rule("refusal", "", lambda s: _runner(s) == "flashinfer_cutlass"
         and ep(s) not in (1, tp(s)),
         lambda s: f"moe-runner-backend flashinfer_cutlass takes ep-size 1 or {tp(s)}, not"
         f" {ep(s)}", "ep-size", f"{_ARGS} _handle_moe_kernel_config",
         lambda s: {"ep-size": str(tp(s))}),
    Rule("refusal", "", lambda s: _runner(s) == "cutlass" and quantisation(s) == "fp8"
         and ep(s) != 1, "moe-runner-backend cutlass computes fp8 with ep-size 1 alone", "ep-size",
         f"{_ARGS} _handle_moe_kernel_config", lambda s: {"ep-size": "1"}),
    Rule("refusal", "", lambda s: ep(s) < 1 or tp(s) % ep(s) != 0,
         lambda s: f"ep-size {ep(s)} does not divide tp-size {tp(s)}", "ep-size",
         "srt/distributed/parallel_state.py", lambda s: {"ep-size": str(tp(s))}),
    Rule("refusal", "", lambda s: s.model is not None and ep(s) > 1 and _slots(s) % ep(s) != 0,
         lambda s: f"ep-size {ep(s)} does not divide {_slots(s)} experts, redundant ones included",
         "ep-size", "srt/eplb/expert_location.py", lambda s: {"ep-size": "1"}),
    Rule("refusal", "", _heads_do_not_fit,
         lambda s: f"tp-size {tp(s)}: the model's attention heads cannot be shared evenly",
         "tp-size", "srt/models/deepseek_v2.py"),
    Rule("refusal", "", lambda s: attention_dp(s) < 1 or tp(s) % attention_dp(s) != 0,
         lambda s: f"data-parallel attention over {attention_dp(s)} ranks does not divide tp-size"
         f" {tp(s)}", "dp-size", f"{_ARGS} data parallelism"),
    Rule("refusal", "", lambda s: s.text("moe-dense-tp-size") not in ("", "1", str(tp(s))),
         lambda s: f"moe-dense-tp-size is 1 or {tp(s)}", "moe-dense-tp-size", _ARGS),
    Rule("refusal", "", lambda s: tp(s) % s.count("nnodes") != 0,
         lambda s: f"tp-size {tp(s)} cannot be shared by {s.number('nnodes')} nodes", "nnodes",
         _ARGS),
    Rule("refusal", "", _some_but_not_all,
         "speculative-num-steps, -eagle-topk and -num-draft-tokens: set all three or none",
         "speculative-num-steps", f"{_ARGS} speculation",
         lambda s: {"speculative-num-steps": "3", "speculative-eagle-topk": "1",
                    "speculative-num-draft-tokens": "4"}),
    Rule("refusal", "", _paged_tree,
         lambda s: f"speculative-eagle-topk {_topk(s)} with page-size {s.text('page-size')} gives"
         " wrong results but with attention-backend flashinfer or fa3; take topk 1 or page-size 1",
         "speculative-eagle-topk", f"{_ARGS} speculation",
         lambda s: {"page-size": "1"}),
    Rule("refusal", "", lambda s: _eagle(s) and _topk(s) > 1 and "trtllm_mha" in (
         s.text("attention-backend"), s.text("decode-attention-backend"),
         s.text("prefill-attention-backend")),
         "attention backend trtllm_mha verifies chains alone; take speculative-eagle-topk 1",
         "speculative-eagle-topk", f"{_ARGS} speculation"),
    Rule("refusal", "<0.5.15", lambda s: _eagle(s) and not _overlap_lost(s) and _topk(s) > 1,
         "SGLANG_ENABLE_SPEC_V2 drafts chains alone; take speculative-eagle-topk 1",
         "speculative-eagle-topk", f"{_ARGS} speculation"),
    Rule("refusal", "", lambda s: speculation(s) in ("STANDALONE", "NGRAM")
         and attention_dp(s) > 1,
         lambda s: f"{speculation(s)} does not work with data-parallel attention",
         "speculative-algorithm", f"{_ARGS} speculation"),
    Rule("refusal", "", lambda s: s.on("enable-eplb") and ep(s) == 1,
         "EPLB moves experts between ranks: it needs an ep-size above 1", "enable-eplb",
         f"{_ARGS} EPLB", lambda s: {"ep-size": str(tp(s))}),
    Rule("refusal", ">=0.5.23", lambda s: a2a(s) == "none" and ep(s) > 1
         and s.text("ep-dispatch-algorithm") in ("static", "lp"),
         lambda s: f"ep-dispatch-algorithm {s.text('ep-dispatch-algorithm')} needs an all-to-all:"
         " without one all ranks must pick the same replica", "ep-dispatch-algorithm",
         "srt/arg_groups/parallel_hook.py", lambda s: {"ep-dispatch-algorithm": "dynamic"}),
    Rule("warning", "<0.5.23", lambda s: a2a(s) == "none" and ep(s) > 1
         and s.text("ep-dispatch-algorithm") in ("static", "lp", "dynamic"),
         "ep-dispatch-algorithm without an all-to-all: ranks may pick different replicas, and the"
         " output is silently wrong", "ep-dispatch-algorithm", "sgl-project/sglang #32962"),
    Rule("refusal", ">=0.5.23", lambda s: s.on("disable-cuda-graph-padding")
         and s.on("enable-torch-compile"),
         "disable-cuda-graph-padding does not go with enable-torch-compile",
         "disable-cuda-graph-padding", _ARGS),
    Rule("refusal", "", lambda s: ":" in s.text("served-model-name"),
         "served-model-name must not contain a colon", "served-model-name", _ARGS),
    Rule("warning", "", lambda s: a2a(s) != "none" and attention_dp(s) == 1,
         "an all-to-all beside plain TP attention replaces two all-reduces a layer by four steps"
         " that wait on one another; it pays with data-parallel attention",
         "moe-a2a-backend", "srt/layers/communicator.py", lambda s: _OFF),
    Rule("warning", "", _slow_verify,
         lambda s: f"each all-reduce of a verify step carries {_verify_bytes(s) // 1024} KiB, past"
         " the 48 KiB where one-shot sums over PCIe lose to NCCL: measure against no speculation",
         "speculative-algorithm", "rtx6kpro notes, pcie-oneshot-allreduce"),
)  # fmt: skip
