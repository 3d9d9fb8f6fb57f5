"""Checkpoint folders as they are found in the world: sharded, wrapped, quantised, broken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from panel.server.config import ModelError, read_config
from panel.server.weights import SafetensorsSource
from tests.server.checkpoints import SHAPES, Checkpoint, Checkpoints, make_checkpoint
from tests.server.plans import steps
from tests.server.ranks import Ranks, RanksError
from tests.server.test_parity import STEPPED, assert_equal

Tensors = dict[str, torch.Tensor]
BLOCK = (24, 40)


def rewrite(
    source: Path,
    folder: Path,
    tensors: Callable[[Tensors], Tensors] = lambda tensors: tensors,
    config: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: config,
) -> Path:
    """Save a changed copy of a checkpoint of one file."""
    folder.mkdir()
    save_file(tensors(load_file(source / "model.safetensors")), folder / "model.safetensors")
    raw = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config(raw)))
    return folder


def run(ranks: Ranks, folder: Path, reference: Checkpoint, **flags: object) -> list[int]:
    """Compare logits; return the bytes that each rank read."""
    outcome = ranks.run(*steps(), model_path=folder, **STEPPED, **flags)
    assert_equal(outcome, reference)
    return [memory.weights_read for memory in outcome.memory]


def test_a_sharded_checkpoint_is_read_by_its_index(ranks: Ranks, tmp_path: Path) -> None:
    family, shape = SHAPES["v3-low-rank-groups"]
    reference = make_checkpoint(tmp_path / "sharded", family, shape, max_shard_size="200KB")
    assert len(list(reference.folder.glob("*.safetensors"))) > 2
    run(ranks, reference.folder, reference, tp_size=2)
    next(reference.folder.glob("model-00002-*")).unlink()
    with pytest.raises(ModelError, match=r"model-00002-.*missing, but model.safetensors.index"):
        SafetensorsSource(reference.folder)


def kimi_name(name: str) -> str:
    return f"language_model.{name}"


def transformers_name(name: str) -> str:
    return name if name.startswith("lm_head") else name.replace("model.", "model.language_model.")


@pytest.mark.parametrize("key", ["text_config", "language_config"])
@pytest.mark.parametrize("naming", [kimi_name, transformers_name])
def test_the_text_part_of_a_wrapper_is_found_by_config_and_names(
    key: str,
    naming: Callable[[str], str],
    checkpoints: Checkpoints,
    ranks: Ranks,
    tmp_path: Path,
) -> None:
    reference = checkpoints["v3-low-rank-groups"]

    def wrap(tensors: Tensors) -> Tensors:
        wrapped = {naming(name): tensor for name, tensor in tensors.items()}
        wrapped["vision_tower.patch_embed.weight"] = torch.zeros(3)
        wrapped[naming("model.layers.3.embed_tokens.weight")] = torch.zeros(2)
        return wrapped

    def config(raw: dict[str, Any]) -> dict[str, Any]:
        text = raw | {"model_type": "kimi_k2"}
        return {
            "model_type": "kimi_k25",
            "architectures": ["KimiK25ForConditionalGeneration"],
            key: text,
        }

    folder = rewrite(reference.folder, tmp_path / "wrapped", wrap, config)
    assert read_config(folder).model_class == "KimiK25ForConditionalGeneration"
    run(ranks, folder, reference, tp_size=2, ep_size=2, moe_a2a_backend="shm")


def quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return FP8 values, the scale of each block, and what they stand for."""
    rows, columns = weight.shape
    down, across = -(-rows // BLOCK[0]), -(-columns // BLOCK[1])
    padded = torch.zeros(down * BLOCK[0], across * BLOCK[1])
    padded[:rows, :columns] = weight
    scales = padded.view(down, BLOCK[0], across, BLOCK[1]).abs().amax(dim=(1, 3)) / 448
    wide = scales.repeat_interleave(BLOCK[0], 0).repeat_interleave(BLOCK[1], 1)
    values = (padded / wide).to(torch.float8_e4m3fn)
    return values[:rows, :columns].contiguous(), scales, (values.float() * wide)[:rows, :columns]


def test_fp8_blocks_are_scaled_on_load(
    checkpoints: Checkpoints, ranks: Ranks, tmp_path: Path
) -> None:
    name = "v3-low-rank-groups"
    plain = checkpoints[name].folder

    def stored(tensors: Tensors) -> Tensors:
        both = dict(tensors)
        for name in (name for name in tensors if "_proj" in name):
            both[name], both[f"{name}_scale_inv"], _ = quantise(tensors[name])
        return both

    def meant(tensors: Tensors) -> Tensors:
        return {
            name: quantise(weight)[2].contiguous() if "_proj" in name else weight
            for name, weight in tensors.items()
        }

    def config(raw: dict[str, Any]) -> dict[str, Any]:
        return raw | {"quantization_config": {"quant_method": "fp8", "weight_block_size": BLOCK}}

    folder = rewrite(plain, tmp_path / "fp8", stored, config)
    family, _ = SHAPES[name]
    meaning = rewrite(plain, tmp_path / "meaning", meant)
    reference = Checkpoint(meaning, family.model.from_pretrained(meaning).eval())
    read = run(ranks, folder, reference, tp_size=4, ep_size=2)
    run(ranks, meaning, reference, tp_size=2)
    whole = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert all(size < whole / 2 for size in read)


def test_a_rank_reads_only_what_it_keeps(checkpoints: Checkpoints, ranks: Ranks) -> None:
    reference = checkpoints["qwen3"]
    tensors = load_file(reference.folder / "model.safetensors")

    def size(*words: str) -> int:
        return sum(t.nbytes for name, t in tensors.items() if any(word in name for word in words))

    every = size("embed_tokens", "norm", "mlp.gate.")
    split = size("q_proj", "o_proj", "lm_head", "experts")
    # Two query heads a rank, but only four heads of keys and values: two ranks share each.
    shared = size("k_proj", "v_proj")
    assert every + split + shared == size("")
    for memory in ranks.run(model_path=reference.folder, tp_size=8, ep_size=8).memory:
        assert memory.weights_read == every + split // 8 + shared // 4


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def spoil(file: Path) -> None:
    file.write_bytes(b"not a safetensors file")


def shorten(file: Path) -> None:
    tensors = load_file(file)
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    save_file(tensors | {name: tensors[name][:-1].contiguous()}, file)


def drop(file: Path) -> None:
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.experts.3.up_proj.weight"]
    save_file(tensors, file)


def retype(file: Path) -> None:
    tensors = load_file(file)
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    save_file(tensors | {name: tensors[name].to(torch.int8)}, file)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            cut,
            r"model.safetensors: is cut off inside tensor model.* shape .*the file at \d+; ",
        ),
        (spoil, r"model.safetensors: is no whole safetensors file: .*header"),
        (shorten, r"model.safetensors: tensor .*experts.3.up_proj.weight has shape \[31, 64\], "),
        (shorten, r"the config asks for \[32, 64\]"),
        (drop, r"no file holds tensor .*experts.3.up_proj.weight, shape \[32, 64\]"),
        (retype, r"model.safetensors: tensor .*experts.3.up_proj.weight is torch.int8"),
    ],
)
def test_a_damaged_checkpoint_is_named(
    damage: Callable[[Path], None],
    words: str,
    checkpoints: Checkpoints,
    ranks: Ranks,
    tmp_path: Path,
) -> None:
    folder = shutil.copytree(checkpoints["v3-tied"].folder, tmp_path / "damaged")
    damage(folder / "model.safetensors")
    with pytest.raises(RanksError, match=words):
        ranks.run(model_path=folder, tp_size=2)
