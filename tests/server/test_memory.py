"""Memory known before the launch, against published figures of real models."""

from __future__ import annotations

from typing import Any

import pytest

from panel.server.config import parse_config
from panel.server.memory import Category, Demand
from panel.server.options import resolve
from panel.server.parallel import shard_of

V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
    "num_attention_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3, "max_position_embeddings": 163840,
}  # fmt: skip
KIMI = V3 | {
    "model_type": "kimi_k2", "vocab_size": 163840, "num_attention_heads": 64,
    "n_routed_experts": 384, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "max_position_embeddings": 262144,
}  # fmt: skip
V2_LITE: dict[str, Any] = {
    "model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 2048,
    "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27,
    "num_attention_heads": 16, "n_shared_experts": 2, "n_routed_experts": 64,
    "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "topk_method": "greedy", "num_experts_per_tok": 6,
    "first_k_dense_replace": 1, "max_position_embeddings": 163840,
}  # fmt: skip
QWEN3_30B: dict[str, Any] = {
    "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    "num_experts_per_tok": 8, "max_position_embeddings": 40960,
}  # fmt: skip


def demand(raw: dict[str, Any], **flags: object) -> Demand:
    """Return the demand of rank 0 on GPUs in a two-byte type."""
    options = resolve({name.replace("_", "-"): str(value) for name, value in flags.items()})
    return Demand(parse_config(raw), shard_of(options, 0), options, 2, on_gpu=True)


@pytest.mark.parametrize(
    ("raw", "billions"), [(V3, 671.0), (KIMI, 1026.0), (V2_LITE, 15.7), (QWEN3_30B, 30.5)]
)
def test_weights_are_as_many_as_published(raw: dict[str, Any], billions: float) -> None:
    whole = demand(raw, tp_size=1)
    assert (whole.weights + whole.shared_experts) / 2e9 == pytest.approx(billions, rel=0.005)


def test_a_token_of_latents_takes_what_it_takes_everywhere() -> None:
    assert demand(V3, page_size=1).page == 70272
    assert demand(V3, page_size=1, tp_size=1).page == 70272
    assert demand(QWEN3_30B, page_size=1, tp_size=1).page == 2 * 2 * 4 * 128 * 48
    assert demand(QWEN3_30B, page_size=1, tp_size=4).page == 2 * 2 * 1 * 128 * 48


def test_whole_shared_experts_are_the_gap_of_the_story() -> None:
    flags = {"tp_size": 8, "ep_size": 8, "moe_a2a_backend": "auto"}
    sharded = demand(KIMI, shared_experts_tp="sharded", **flags)
    whole = demand(KIMI, shared_experts_tp="replicated", **flags)
    gap = whole.shared_experts - sharded.shared_experts
    assert gap / 2**30 == pytest.approx(4.31, abs=0.01)
    assert whole.weights == sharded.weights
    table = whole.table()
    assert sum(table.values()) - sum(sharded.table().values()) == gap
    assert list(table) == [category for category in Category if category is not Category.OTHER]


def test_attention_is_whole_on_each_rank_that_owns_requests() -> None:
    flags = {"tp_size": 8, "ep_size": 8, "moe_a2a_backend": "auto"}
    split, owned = demand(V3, **flags), demand(V3, dp_attention=True, **flags)
    assert owned.weights > split.weights
    assert owned.page == split.page
    grouped, owning = demand(QWEN3_30B, **flags), demand(QWEN3_30B, dp_attention=True, **flags)
    assert owning.page == 4 * grouped.page


@pytest.mark.parametrize("room", [10**9, 10**12])
def test_pages_are_bounded_by_room_and_by_use(room: int) -> None:
    some = demand(V2_LITE, context_length=4096, max_running_requests=8)
    useful = 8 * (4096 + 16) // 16
    assert some.pages(room) == min(useful, room // some.page)
    assert demand(V2_LITE, max_total_tokens=1600).pages(room) == 100
