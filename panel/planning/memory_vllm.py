"""vLLM's memory of a GPU: a share of the whole, less weights, activations and graphs."""

from __future__ import annotations

from panel.domain.plan import Memory
from panel.planning.memory import A_BATCH, CONTEXT, Budget, draft_layer, kv_cell, weight_lines
from panel.planning.scene import Scene
from panel.planning.vllm import batched_tokens, dp, drafts, largest_graph, tp
from panel.planning.weights import Part

_PAGE = 16


def predict(scene: Scene) -> Budget:
    """Return the memory of a rank; `scene` is settled and has model, weights and hardware."""
    assert scene.model is not None
    assert scene.weights is not None
    assert scene.hardware is not None
    shape, weights = scene.model.shape, scene.weights
    stages = scene.count("pipeline-parallel-size")
    ranks = {
        Part.ATTENTION: tp(scene) * stages,
        Part.WHOLE: stages,
        Part.DENSE: tp(scene) * stages,
        Part.EXPERTS: tp(scene) * dp(scene) * stages,
        Part.SHARED: tp(scene) * stages,
        Part.EMBEDDING: tp(scene),
        Part.VISION: 1,
    }
    own_draft = drafts(scene).trained and Part.MTP in weights.parts
    if own_draft:
        ranks[Part.MTP] = tp(scene) * dp(scene)
    loaded = weight_lines(weights, ranks, {})
    head = draft_layer(scene, tp(scene)) if drafts(scene).trained and not own_draft else 0

    choices = shape.experts.routing.experts_per_token
    width = 8 * shape.hidden_size
    width += choices * (shape.hidden_size + 2 * shape.experts.width // tp(scene))
    activations = batched_tokens(scene) * width * 2
    graphs = 0 if scene.on("enforce-eager") else largest_graph(scene) * A_BATCH
    total = scene.hardware.memory
    after = total - CONTEXT - sum(line.predicted for line in loaded) - head
    taken = total - after + activations + graphs
    room = int(total * float(scene.text("gpu-memory-utilization"))) - taken
    cell, page = kv_cell(scene, tp(scene)) // stages, max(1, scene.number("block-size", _PAGE))
    if "kv-cache-memory-bytes" in scene.values:
        room = min(scene.number("kv-cache-memory-bytes"), total - taken)
    tokens = max(0, room // cell // page * page)
    lines = (
        Memory(category="context and NCCL", predicted=CONTEXT, note="rule of thumb"),
        *loaded,
        Memory(category="draft", predicted=head, note="one layer"),
        Memory(category="activations", predicted=activations, note="rule of thumb"),
        Memory(category="graphs", predicted=graphs, note="rule of thumb"),
        Memory(category="KV cache", predicted=tokens * cell, note=f"{tokens} tokens"),
    )
    return Budget.closed(lines, weights, total, after, tokens, short=cell * page - room)
