"""How SGLang splits a model and its GPUs' memory: facts that rules and memory plan share."""

from __future__ import annotations

from panel.planning.scene import GIB, Scene

A2A_FORCES_EP = (
    "deepep", "mooncake", "ascend_fuseep", "flashinfer", "mori", "nixl", "megamoe", "pplx",
    "deepep_v2", "flashinfer_megamoe",
)  # fmt: skip
EAGLE = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
DISPATCH_TOKENS = "SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
_WITHOUT_HOOK = ("KimiK25ForConditionalGeneration",)
"""Wrapper classes that have no `get_model_config_for_expert_location` before 0.5.10."""
_MIB = 1 << 20


def tp(scene: Scene) -> int:
    """Return the ranks that share a layer."""
    return scene.count("tp-size")


def ep(scene: Scene) -> int:
    """Return the groups of ranks that share the experts."""
    return scene.number("ep-size", 1)


def a2a(scene: Scene) -> str:
    """Return the all-to-all, `none` without."""
    return scene.text("moe-a2a-backend", "none")


def attention_dp(scene: Scene) -> int:
    """Return the ranks over which whole requests are spread, 1 without."""
    if scene.on("enable-dp-attention"):
        return scene.count("dp-size")
    return scene.count("attn-dp-size")


def speculation(scene: Scene) -> str:
    """Return the algorithm, empty without."""
    return scene.text("speculative-algorithm").upper()


def quantisation(scene: Scene) -> str:
    """Return the method, that of the model where no flag says another."""
    return scene.text("quantization") or (scene.model.quantisation.method if scene.model else "")


def lacks_hook(scene: Scene) -> bool:
    """Whether the model's class cannot tell where its experts are."""
    return scene.model is not None and scene.model.shape.model_class in _WITHOUT_HOOK


def graph_flags(scene: Scene) -> tuple[str, str]:
    """Return the names of the flags for the largest captured batch and for all of them."""
    suffix = "-decode" if scene.of(">=0.5.15") else ""
    return f"cuda-graph-max-bs{suffix}", f"cuda-graph-bs{suffix}"


def largest_graph(scene: Scene) -> int:
    """Return the largest batch that is captured; before any flag is applied: by GPU memory."""
    most, sizes = graph_flags(scene)
    if sizes in scene.values:
        return max(int(text) for text in scene.text(sizes).split(","))
    if most in scene.values:
        return scene.number(most)
    memory, wide = _memory(scene), tp(scene) >= 4
    newest = scene.of(">=0.5.23")
    for limit, narrow_size, wide_size in (
        (20, 8, 8),
        (35, 48 if newest else 24, 160 if newest else 80),
        (60, 32, 160),
        (160, 256, 512),
    ):
        if memory < limit * GIB:
            return wide_size if wide else narrow_size
    return 512


def chunk(scene: Scene) -> int:
    """Return the prompt tokens of a step; before any flag is applied: by GPU memory."""
    if "chunked-prefill-size" in scene.values:
        return scene.number("chunked-prefill-size")
    memory = _memory(scene)
    small = 4096 if scene.of(">=0.5.23") else 2048
    steps = ((20, 2048), (35, small), (60, 4096), (160, 8192))
    return next((size for limit, size in steps if memory < limit * GIB), 16384)


def default_fraction(scene: Scene) -> float:
    """Return what the engine takes for mem-fraction-static where no flag says it."""
    total = _memory(scene) / _MIB
    batch, dp = largest_graph(scene), attention_dp(scene)
    reserved = 512 + 1.5 * max(chunk(scene), 2048) + 2 * batch
    reserved += 1024 * tp(scene) * scene.count("pp-size") / 8
    if dp > 1:
        reserved += 3 * batch * dp + (1.5 * batch * dp if batch > 300 else 0)
    if total > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if scene.of("<0.5.23") and speculation(scene) not in ("", "NGRAM"):
        reserved += 6 * 1024 if speculation(scene) == "STANDALONE" else 2 * 1024
    if scene.of(">=0.5.23") and a2a(scene) == "deepep":
        reserved += 2 * 1024
    fraction = round((total - reserved) / total, 3)
    return round(fraction * _vision_factor(scene), 4)


def _vision_factor(scene: Scene) -> float:
    """Return by what a multimodal model lowers the fraction: by the size of its vision tower."""
    tower = scene.model.vision if scene.model else None
    if tower is None:
        return 1.0
    complexity = tower.layers * tower.hidden**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1 - 0.1 * (complexity - 1)))


def _memory(scene: Scene) -> int:
    return scene.hardware.memory if scene.hardware else 80 * GIB
