"""Whole steps through the kernels, in Triton's interpreter, against transformers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from msgspec import structs

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels import grouped_decode
from panel.kernels.latent_decode import Division
from panel.server import load_experts
from panel.server.config import read_config
from panel.server.cuda import latent
from panel.server.cuda.forward import KernelForward
from panel.server.cuda.layout import Paper
from panel.server.cuda.stack import Stack, served
from panel.server.loader import load_model
from panel.server.loading import Loading
from panel.server.model import Model
from panel.server.parallel import Shard
from panel.server.placement import Placement
from panel.server.plan import Plan
from panel.server.reduction import Alone
from panel.server.shape import ModelConfig
from panel.server.weights import SafetensorsSource
from tests.server.checkpoints import SHAPES, make_checkpoint
from tests.server.plans import PAGE, expected, steps

PAGES = 64
TEXTS = [[3, 1, 4, 1, 5, 9, 2], list(range(100, 112))]
SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
"""One plain layer and one of experts: the interpreter takes its time."""
GROUPED = SMALL | {"num_key_value_heads": 2}
"""Two heads share a cached one."""


class Contiguous(Loading):
    """Loads as for a GPU: every weight's rows as they lie."""

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        return super().place(tensor).contiguous()


def load(folder: Path) -> tuple[ModelConfig, Model]:
    config = read_config(folder)
    shard, device = Shard(0, 1), torch.device("cpu")
    source = SafetensorsSource(folder)
    loading = Contiguous(config, shard, source, device, torch.float32)
    count = config.experts.routed
    placements = {
        layer: Placement.of(range(count), shard, count, None) for layer in config.expert_layers
    }
    return config, load_model(loading, placements, None, 512, lambda done, total: None)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep experts apart, as on a GPU, however small they are; the GPU is a small one."""
    monkeypatch.setattr(load_experts, "TOGETHER_LIMIT", 0)
    monkeypatch.setattr(Division, "rule", partial(Division.rule, processors=8))
    monkeypatch.setattr(grouped_decode, "rule", partial(grouped_decode.rule, processors=8))


def forward_of(folder: Path) -> KernelForward:
    config, model = load(folder)
    assert served(model)
    width = Shard(0, 1).cache_width(config.attention)
    # What nobody has written must not reach a result.
    cache = torch.full((config.layers, PAGES * PAGE, width), float("nan"))
    cache[:, :PAGE] = 0
    reduction = Alone(torch.empty(256, config.hidden_size))
    stack = Stack.of(model, config, cache, reduction, PAGE, rows=256)
    return KernelForward(stack, Paper(PAGE, 512, 4))


def wanted_rows(plan: Plan) -> list[int]:
    """Return the rows of a plan's logits without those of padding behind drafts."""
    segments = [segment for segment in plan.segments if segment.logits]
    sizes = [len(each.tokens) if each in plan.decoding else 1 for each in segments]
    pairs = zip(plan.logit_begins, sizes, strict=True)
    return [row for begin, size in pairs for row in range(begin, begin + size)]


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("v3-tied", SMALL),
        ("v3-low-rank-groups", SMALL),
        ("v2-lite-yarn", SMALL),
        ("qwen3", GROUPED),
        ("qwen3-bias-sparse", GROUPED),
    ],
)
def test_steps_of_every_kind_agree_with_the_reference(
    name: str, small: dict[str, int], tmp_path: Path
) -> None:
    family, shape = SHAPES[name]
    reference = make_checkpoint(tmp_path, family, shape | small)
    forward = forward_of(reference.folder)
    answers = []
    for plan in steps(TEXTS, chunk=4):
        logits, targets = forward(plan, poisoned=False)
        assert targets is None
        answers += [logits[wanted_rows(plan)]] if plan.logit_begins else []
    for logits, wanted in zip(answers, expected(reference, TEXTS), strict=True):
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=0)


@pytest.mark.usefixtures("apart")
def test_one_sequence_is_attended_to_in_one_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding and verifying alike."""
    family, shape = SHAPES["v2-lite-yarn"]
    reference = make_checkpoint(tmp_path, family, shape | SMALL)
    forward, text = forward_of(reference.folder), list(range(100, 145))
    prefill, *decoding = steps([text])[:-1]
    assert [plan.width for plan in decoding] == [1, 1, 4]
    forward(prefill, poisoned=False)
    monkeypatch.delattr(latent, "latent_decode")
    for plan, wanted in zip(decoding, expected(reference, [text])[1:], strict=False):
        logits, _ = forward(structs.replace(plan, rows=1), poisoned=False)
        torch.testing.assert_close(logits[wanted_rows(plan)], wanted, atol=1e-4, rtol=0)
