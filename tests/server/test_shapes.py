"""What configs mean, which part each rank holds, and the rotation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from panel.server.config import ModelError, parse_config
from panel.server.options import OptionError, resolve
from panel.server.parallel import Shard
from panel.server.rope import interleave_rows, rotate_, rotation_table
from panel.server.shape import RopeShape
from panel.server.split import check_split
from tests.server.checkpoints import BASE, QWEN3

V3 = BASE | {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
V2 = BASE | {"model_type": "deepseek_v2", "topk_method": "group_limited_greedy", "n_group": 4}
QWEN = QWEN3.shape | {"model_type": "qwen3_moe"}
OLD_YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "llama"}, "model_type 'llama' is not served; served: deepseek_v2, "),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, "rope type 'linear'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quant_method 'awq'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "weight_block_size"),
        ({"scoring_func": "softmax"}, "scoring_func 'softmax'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"moe_layer_freq": 2}, "moe_layer_freq 2"),
        ({"n_group": 3}, "n_group 3 with topk_group 1 does not fit 16 routed experts"),
        ({"n_group": 8}, "topk_group 1 of 8 groups leaves fewer experts than .* 4"),
        ({"num_experts_per_tok": 17}, "num_experts_per_tok 17 is above the 16 routed experts"),
        (V2 | {"norm_topk_prob": True}, "norm_topk_prob True"),
        (QWEN | {"use_sliding_window": True}, "use_sliding_window True"),
    ],
)
def test_a_config_that_is_not_served_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        parse_config(V3 | change)


def test_old_and_new_spellings_of_yarn_are_one() -> None:
    new = {"rope_type": "yarn", "rope_theta": 50000.0, "factor": 40}
    new["original_max_position_embeddings"] = 4096
    old = parse_config(V3 | {"rope_scaling": OLD_YARN, "rope_theta": 50000.0})
    assert old.rope == parse_config(V3 | {"rope_parameters": new}).rope
    assert old.rope.yarn is not None
    assert old.rope.softmax_factor == 1.0


def test_a_wrapper_is_known_by_its_own_class() -> None:
    raw = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": V3}
    config = parse_config(raw)
    assert config.model_class == "KimiK25ForConditionalGeneration"
    assert config.experts == parse_config(V3).experts


@given(st.integers(1, 300), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_ranks_hold_every_unit_once(units: int, tp_size: int, ep_size: int) -> None:
    shards = [Shard(rank, tp_size, min(ep_size, tp_size)) for rank in range(tp_size)]
    parts = [range(units)[shard.part(units)] for shard in shards]
    assert [unit for part in parts for unit in part] == list(range(units))
    cells = [
        (expert, column)
        for shard in shards
        for expert in shard.experts(64)
        for column in range(32)[shard.expert_part(32)]
    ]
    assert sorted(cells) == [(expert, column) for expert in range(64) for column in range(32)]


@pytest.mark.parametrize("tp_size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8, 16])
def test_query_heads_find_their_cached_heads_on_their_rank(tp_size: int, kv_heads: int) -> None:
    for rank in range(tp_size):
        shard = Shard(rank, tp_size, 1)
        wanted = {head * kv_heads // 16 for head in range(16)[shard.part(16)]}
        assert set(range(kv_heads)[shard.kv_heads(kv_heads)]) == wanted


EP = {"tp-size": "8", "ep-size": "8"}
A2A = EP | {"moe-a2a-backend": "shm"}
DP = A2A | {"dp-attention": "true"}
DENSE = V3 | {"first_k_dense_replace": 3}


@pytest.mark.parametrize(
    ("raw", "flags", "words"),
    [
        (V3, EP | {"ep-size": "3"}, "ep-size 3 does not divide tp-size 8; fitting: 1, 2, 4, 8"),
        (V3, {"tp-size": "3"}, "tp-size 3 does not divide the model's 8 attention heads"),
        (V3 | {"num_attention_heads": 64}, {"tp-size": "64"}, "96 columns of the dense layers"),
        (
            QWEN | {"num_key_value_heads": 3},
            {"tp-size": "2"},
            "tp-size 2 and the model's 3 key-value heads",
        ),
        (V3 | {"moe_intermediate_size": 36}, A2A, "tp-size 8 does not .* 36 columns of shared"),
        (
            V3,
            EP | {"ep-num-redundant-experts": "3"},
            "ep-size 8 does not divide the model's 19 routed experts, redundant ones included",
        ),
        (V3, {"eplb-interval": "9"}, "eplb-interval needs ep-size above 1"),
        (V3, {"moe-a2a-backend": "auto"}, "moe-a2a-backend needs ep-size above 1"),
        (V3, A2A | {"ep-size": "4"}, "moe-a2a-backend shm needs ep-size 8, that is tp-size"),
        (V3, EP | {"dp-attention": "true"}, "dp-attention needs moe-a2a-backend auto"),
        (V3, DP | {"shared-experts-tp": "sharded"}, "shared-experts-tp sharded needs tokens on"),
        (V3, EP | {"eplb-domains": "2"}, "eplb-domains 2 has to divide ep-size 8 and the 1 groups"),
        (DENSE, A2A, "moe-a2a-backend: model class DeepseekV3ForCausalLM has no routed experts"),
    ],
)
def test_a_split_that_does_not_fit_is_refused(
    raw: dict[str, Any], flags: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        check_split(parse_config(raw), resolve(flags))


@pytest.mark.parametrize("flags", [EP, A2A, DP, EP | {"ep-num-redundant-experts": "8"}])
@pytest.mark.parametrize("raw", [V3, QWEN, V2 | {"topk_group": 2}])
def test_a_split_that_fits_is_taken(raw: dict[str, Any], flags: dict[str, str]) -> None:
    check_split(parse_config(raw), resolve(flags))


def test_rotating_halves_is_rotating_interleaved_pairs() -> None:
    positions, width = 5, 8
    table = rotation_table(RopeShape(width, 10000.0, None, 1.0), positions)
    halves = torch.randn(positions, width)
    pairs = interleave_rows(halves.t()).t().contiguous()
    rotate_(pairs, table)
    cos, sin = table.real.repeat(1, 2), table.imag.repeat(1, 2)
    turned = torch.cat((-halves[:, 4:], halves[:, :4]), dim=1)
    expected = halves * cos + turned * sin
    assert torch.allclose(interleave_rows(expected.t()).t(), pairs, atol=1e-6)
