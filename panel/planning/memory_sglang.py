"""SGLang's memory of a GPU, by the formulas of its releases."""

from __future__ import annotations

from panel.domain.plan import Memory
from panel.planning.memory import A_BATCH, CONTEXT, Budget, draft_layer, kv_cell, weight_lines
from panel.planning.scene import Scene
from panel.planning.sglang import (
    DISPATCH_TOKENS,
    EAGLE,
    a2a,
    attention_dp,
    chunk,
    ep,
    largest_graph,
    quantisation,
    speculation,
    tp,
)
from panel.planning.weights import Part

WORKSPACE = "all-to-all workspace"
_PROMPT_TOKEN = 3 << 19
"""The engine's own rule of thumb for activations: 1.5 MiB for each token of a chunk."""


def predict(scene: Scene) -> Budget:
    """Return the memory of a rank; `scene` is settled and has model, weights and hardware."""
    assert scene.model is not None
    assert scene.weights is not None
    assert scene.hardware is not None
    weights = scene.weights
    stages = scene.count("pp-size")
    whole_shared = replicates_shared(scene)
    spread = tp(scene) // attention_dp(scene)
    ranks = {
        Part.ATTENTION: spread * stages,
        Part.WHOLE: stages,
        Part.DENSE: scene.number("moe-dense-tp-size", tp(scene)) * stages,
        Part.EXPERTS: tp(scene) * stages,
        Part.SHARED: stages if whole_shared else tp(scene) * stages,
        Part.EMBEDDING: spread,
        Part.VISION: 1,
    }
    own_draft = speculation(scene) in EAGLE and Part.MTP in weights.parts
    if own_draft:
        ranks[Part.MTP] = tp(scene)
    notes = {Part.SHARED: f"whole on each rank: a2a {a2a(scene)}"} if whole_shared else {}
    loaded = weight_lines(weights, ranks, notes)
    exchange = workspace(scene)

    free = scene.hardware.memory - CONTEXT
    after = free - sum(line.predicted for line in loaded) - exchange
    room = after - int(free * (1 - float(scene.text("mem-fraction-static"))))
    cell, page = kv_cell(scene, spread) // stages, scene.count("page-size")
    tokens = max(0, room // cell // page * page)
    if "max-total-tokens" in scene.values:
        tokens = min(tokens, scene.number("max-total-tokens"))

    draft = 0
    if speculation(scene) in EAGLE:
        draft = tokens * cell // scene.model.shape.layers
        draft += 0 if own_draft else draft_layer(scene, tp(scene))
    graphs = 0 if scene.on("disable-cuda-graph") else largest_graph(scene) * A_BATCH
    lines = (
        Memory(category="context and NCCL", predicted=CONTEXT, note="rule of thumb"),
        *loaded,
        Memory(category=WORKSPACE, predicted=exchange, note=_tokens_sent(scene)),
        Memory(category="KV cache", predicted=tokens * cell, note=f"{tokens} tokens"),
        Memory(category="draft", predicted=draft, note="one layer and its KV cache"),
        Memory(category="graphs", predicted=graphs, note="rule of thumb"),
        Memory(
            category="activations",
            predicted=max(chunk(scene), 2048) * _PROMPT_TOKEN,
            note="rule of thumb",
        ),
    )
    total = scene.hardware.memory
    return Budget.closed(lines, weights, total, after, tokens, short=cell * page - room)


def replicates_shared(scene: Scene) -> bool:
    """Whether each rank holds the shared experts whole, as it does beside an all-to-all."""
    return a2a(scene) != "none" and not scene.on("enable-shared-experts-attn-tp")


def workspace(scene: Scene) -> int:
    """Return the buffers of the all-to-all on each rank."""
    assert scene.model is not None
    shape, ranks = scene.model.shape, ep(scene)
    hidden, choices = shape.hidden_size, shape.experts.routing.experts_per_token
    match a2a(scene):
        case "flashinfer":
            tokens = int(scene.env.get(DISPATCH_TOKENS, 1024)) * ranks
            values = hidden // 2 + hidden // 16 if _sends_nvfp4(scene) else 2 * hidden
            # With each token go the numbers of its experts and their weights; bf16 comes back.
            return ranks * tokens * (values + 8 * choices + 2 * hidden)
        case "deepep" | "deepep_v2":
            most = int(scene.env.get("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 128))
            # Sent and received, dispatch and combine.
            return 4 * most * shape.experts.routed * 2 * hidden
    return 0


def _sends_nvfp4(scene: Scene) -> bool:
    # The draft of EAGLE is not quantised, and shares the one workspace.
    if speculation(scene) in EAGLE:
        return False
    if scene.of("<0.5.15"):
        return scene.env.get("SGLANG_MOE_NVFP4_DISPATCH", "").lower() in ("1", "true")
    return quantisation(scene) == "modelopt_fp4"


def _tokens_sent(scene: Scene) -> str:
    if a2a(scene) != "flashinfer":
        return "rule of thumb"
    return f"tokens go as {'NVFP4' if _sends_nvfp4(scene) else 'BF16'}; sized by {DISPATCH_TOKENS}"
