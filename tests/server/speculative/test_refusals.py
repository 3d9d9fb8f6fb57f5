"""Draft heads that do not fit their model are refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from panel.server.config import ModelError, model_folder, read_config
from panel.server.draft.find import draft_shape
from panel.server.draft.load import draft_source, token_ids
from panel.server.draft.shape import parse_draft
from panel.server.exits import Exit
from panel.server.options import OptionError, resolve
from tests.server.checkpoints import Checkpoints
from tests.server.speculative.heads import CONFIG, Head, make_head
from tests.server.support import Nursery


@pytest.fixture
def head(checkpoints: Checkpoints, tmp_path: Path) -> Head:
    return make_head(tmp_path / "head", checkpoints["v3-tied"])


def shape_of(head: Head, **flags: str) -> Any:
    texts = {
        "model-path": str(head.target.folder),
        "speculative-algorithm": "eagle3",
        "speculative-draft-model-path": str(head.folder),
        **{name.replace("_", "-"): text for name, text in flags.items()},
    }
    return draft_shape(resolve(texts), read_config(head.target.folder), head.target.folder)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"vocab_size": 1000}, "made for another model: vocabulary 1000"),
        ({"hidden_size": 128}, "made for another model: hidden size 128"),
        ({"target_hidden_size": 32}, "made for another model: hidden size 32"),
        ({"draft_vocab_size": 600}, "draft_vocab_size 600"),
        ({"architectures": ["LlamaForCausalLM"]}, "is no EAGLE-3 head"),
        ({"num_hidden_layers": 2}, "one layer"),
        ({"attention_bias": True}, "biases"),
        ({"hidden_act": "gelu"}, "silu alone"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope type 'llama3'"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]}}, "3 are needed"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}},
            "made for another model: it looks at layers",
        ),
    ],
)
def test_a_config_that_does_not_fit(changed: dict[str, Any], words: str, head: Head) -> None:
    (head.folder / "config.json").write_text(json.dumps(CONFIG | changed))
    with pytest.raises(ModelError, match=words) as caught:
        shape_of(head)
    assert str(head.folder) in str(caught.value)


def test_tensors_that_are_missing_or_of_another_shape(head: Head) -> None:
    path = head.folder / "model.safetensors"
    tensors = load_file(path)
    save_file({n: t for n, t in tensors.items() if "o_proj" not in n and n != "d2t"}, path)
    with pytest.raises(ModelError, match=r"lacks tensor .*o_proj.weight and 1 more"):
        shape_of(head)
    save_file(tensors | {"fc.weight": tensors["fc.weight"][:, :128].clone()}, path)
    with pytest.raises(ModelError, match=r"fc.weight .* has shape \[64, 128\]"):
        shape_of(head)
    path.write_bytes(b"no tensors here at all")
    with pytest.raises(ModelError, match="no whole safetensors file"):
        shape_of(head)
    path.unlink()
    with pytest.raises(ModelError, match=r"no \*.safetensors file"):
        shape_of(head)


def test_a_map_of_tokens_that_leads_out_of_the_vocabulary(head: Head) -> None:
    shape = shape_of(head)
    path = head.folder / "model.safetensors"
    save_file(load_file(path) | {"d2t": torch.full((200,), 400)}, path)
    source = draft_source(shape, 0, torch.device("cpu"), False)
    with pytest.raises(ModelError, match="made for another model: d2t leads to tokens 400 to 599"):
        token_ids(shape, source, 512)


def test_what_cannot_be_split_or_found(head: Head) -> None:
    with pytest.raises(OptionError, match=r"3 does not divide the draft head's 8 attention heads"):
        shape_of(head, tp_size="3")
    with pytest.raises(ModelError, match=r"no config.json"):
        shape_of(head, speculative_draft_model_path=str(head.folder / "nowhere"))
    options = resolve({"speculative-algorithm": "eagle3"})
    config = read_config(head.target.folder)
    with pytest.raises(OptionError, match="needs a draft head made for this model"):
        draft_shape(options, config, head.target.folder)
    dummy = resolve({"speculative-algorithm": "eagle3", "load-format": "dummy"})
    found = draft_shape(dummy, config, head.target.folder)
    assert found is not None
    assert found.folder is None


def test_no_head_is_looked_for_without_the_flag(head: Head) -> None:
    assert shape_of(head, speculative_algorithm="ngram") is None


def test_the_usual_layers_are_those_of_public_heads() -> None:
    config = read_config(model_folder("moe-tiny"))
    raw = {name: value for name, value in CONFIG.items() if name != "eagle_config"}
    raw |= {"vocab_size": config.vocab_size, "hidden_size": config.hidden_size}
    assert parse_draft(raw, config, Path()).aux_layers == (1, 1, 1)


def test_the_engine_refuses_before_it_forks(head: Head, nursery: Nursery, tmp_path: Path) -> None:
    (head.folder / "config.json").write_text(json.dumps(CONFIG | {"vocab_size": 1000}))
    with nursery.gang(
        tmp_path,
        model_path=head.target.folder,
        tp_size=2,
        speculative_algorithm="eagle3",
        speculative_draft_model_path=head.folder,
    ) as gang:
        assert gang.refusal is not None
        assert gang.refusal["code"] == Exit.MODEL
        assert "made for another model" in gang.refusal["error"]
        assert gang.pids == {}
