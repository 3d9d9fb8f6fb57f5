"""Weights by part: reckoned from configs, counted from headers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from panel.domain.errors import UsageError
from panel.planning.model import parse_model, read_model
from panel.planning.scene import GIB
from panel.planning.weights import Part, part_of, read_headers, weigh
from panel.server.config import model_folder
from tests.planning.scenes import model


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("deepseek-v2-lite", 29.3),  # 15.7 G parameters in bf16
        ("deepseek-v3", 641.0),  # 671 G in fp8, 685 GB with the prediction layer
        ("kimi-k2.5", 554.0),  # 1.03 T in int4, published as 595 GB
        ("qwen3-30b-a3b", 56.9),  # 30.5 G in bf16
        ("qwen3-235b-a22b", 437.9),  # 235.1 G in bf16
    ],
)
def test_whole_models_weigh_what_is_published(name: str, gib: float) -> None:
    weights = weigh(model(name))

    assert sum(weights.parts.values()) / GIB == pytest.approx(gib, rel=0.02)
    assert not weights.counted


def test_shared_experts_of_kimi() -> None:
    parts = weigh(model("kimi-k2.5-nvfp4")).parts

    assert parts[Part.SHARED] == 60 * 3 * 7168 * 2048 * 2
    assert parts[Part.EXPERTS] == 60 * 384 * 3 * 7168 * 2048 * 9 // 16


def test_headers_of_the_shipped_model_agree_with_its_config() -> None:
    folder = model_folder("moe-tiny")
    counted = weigh(read_model(folder / "config.json", folder))
    reckoned = weigh(read_model(folder / "config.json"))

    assert counted.counted
    assert {part: size for part, size in counted.parts.items() if part is not Part.WHOLE} == {
        part: size for part, size in reckoned.parts.items() if part is not Part.WHOLE
    }
    assert counted.parts[Part.WHOLE] == pytest.approx(reckoned.parts[Part.WHOLE], rel=0.05)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.embed_tokens.weight", Part.EMBEDDING),
        ("language_model.lm_head.weight", Part.EMBEDDING),
        ("model.layers.3.self_attn.q_b_proj.weight", Part.ATTENTION),
        ("model.layers.3.self_attn.q_a_proj.weight", Part.WHOLE),
        ("model.layers.3.self_attn.kv_a_layernorm.weight", Part.WHOLE),
        ("model.layers.3.mlp.gate.weight", Part.WHOLE),
        ("model.layers.3.mlp.gate_proj.weight", Part.DENSE),
        ("model.layers.3.mlp.experts.17.down_proj.weight_packed", Part.EXPERTS),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", Part.SHARED),
        ("vision_tower.encoder.blocks.1.mlp.fc0.weight", Part.VISION),
        ("model.layers.61.mlp.experts.0.up_proj.weight", Part.MTP),
    ],
)
def test_parts_of_tensors(name: str, part: Part) -> None:
    assert part_of(name, layers=61) is part


def write(path: Path, sizes: dict[str, int]) -> None:
    table, end = {}, 0
    for name, size in sizes.items():
        table[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    header = json.dumps({"__metadata__": {"format": "pt"}, **table}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def test_only_headers_are_read_of_the_files_that_the_index_names(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", {"x": 3 * GIB})
    write(tmp_path / "b.safetensors", {"y": 5, "z": 0})
    write(tmp_path / "old.safetensors", {"x": 1})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))

    assert [tuple(each) for each in read_headers(tmp_path)] == [("x", 3 * GIB), ("y", 5), ("z", 0)]


def test_broken_files_are_named(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
    with pytest.raises(UsageError, match=r"a\.safetensors: cannot be read"):
        read_headers(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(UsageError, match="no header of safetensors"):
        read_headers(tmp_path)
    index.write_text("[]")
    with pytest.raises(UsageError, match=r"index\.json: cannot be read"):
        read_headers(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "cannot be read"), ('{"model_type": "llama"}', "no memory plan for this model")],
)
def test_configs_that_cannot_be_planned(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_model(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("block", "method", "width"),
    [
        ({}, "", 2.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 1 + 4 / 16384),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "modelopt_fp8", 1.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt_fp4", 0.5625),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq", 0.5 + 2 / 128),
    ],
)
def test_forms_of_quantisation(block: dict[str, object], method: str, width: float) -> None:
    folder = model_folder("moe-tiny")
    raw = json.loads((folder / "config.json").read_text()) | {"quantization_config": block}
    found = parse_model(raw).quantisation

    assert (found.method, found.width) == (method, width)


def test_ignored_modules_keep_their_type() -> None:
    kimi = model("kimi-k2.5")

    assert kimi.bytes_of("model.layers.1.mlp.experts.0.gate_proj") == 0.5 + 2 / 32
    for module in ("self_attn.o_proj", "mlp.shared_experts.gate_proj", "mlp.gate_proj"):
        assert kimi.bytes_of(f"model.layers.1.{module}") == 2.0
