"""A draft head beside the kernels, in Triton's interpreter, against a plain reference of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.server.config import read_config
from panel.server.cuda.forward import KernelForward
from panel.server.cuda.target import KernelTarget
from panel.server.draft.demand import DraftDemand
from panel.server.draft.find import draft_shape
from panel.server.draft.forward import EagleForward
from panel.server.draft.load import draft_source, load_draft
from panel.server.draft.pick import PickAlone
from panel.server.draft.places import Places
from panel.server.loading import Loading
from panel.server.options import resolve
from panel.server.parallel import Shard
from panel.server.plan import Plan, Work
from tests.kernels.test_stack import PAGES, apart, forward_of
from tests.server.checkpoints import SHAPES, make_checkpoint
from tests.server.plans import PAGE
from tests.server.speculative.cycles import STEPS, Text
from tests.server.speculative.heads import Head, make_head

__all__ = ["apart"]


def eagle_of(head: Head) -> EagleForward:
    folder, cpu = head.target.folder, torch.device("cpu")
    options = resolve(
        {
            "model-path": str(folder),
            "tp-size": "1",
            "speculative-algorithm": "eagle3",
            "speculative-draft-model-path": str(head.folder),
        }
    )
    config, shard = read_config(folder), Shard(0, 1)
    shape = draft_shape(options, config, folder)
    assert shape is not None
    loading = Loading(config, shard, draft_source(shape, 0, cpu, False), cpu, torch.float32)
    kernels = forward_of(folder)
    model = replace(kernels.stack.model, taps=shape.aux_layers)
    aux = torch.full((256, 3 * config.hidden_size), float("nan"))
    kernels = KernelForward(replace(kernels.stack, model=model, aux=aux), kernels.paper)
    demand = DraftDemand(shape, shard, options, 4, config.vocab_size, 512)
    places = Places(PAGES, demand.recent, PAGE)
    rows = PAGES + demand.seats * demand.recent
    features = torch.full((rows, config.hidden_size), float("nan"))
    features[0] = 0
    cache = torch.full((PAGES * PAGE, demand.cache_width), float("nan"))
    cache[:PAGE] = 0
    return EagleForward(
        target=KernelTarget(kernels),
        page_size=PAGE,
        owner=None,
        draft=load_draft(shape, loading, model.embedding, 512),
        cache=cache,
        features=features,
        places=places,
        picker=PickAlone(),
        told=torch.zeros(16, STEPS, dtype=torch.int64),
        tells=True,
        sums=kernels.reduction,
        announce=None,
    )


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("name", ["v3-tied", "qwen3"])
def test_drafts_and_verification_beside_the_kernels(name: str, tmp_path: Path) -> None:
    target = make_checkpoint(tmp_path / "model", *SHAPES[name])
    head = make_head(tmp_path / "head", target)
    forward = eagle_of(head)
    first = Text([3, 1, 4, 1, 5], [2, 1], seat=0)
    other = Text([9, 2, 6], [4, 3], seat=1)

    def run(plan: Plan) -> torch.Tensor:
        return forward(plan, poisoned=False)[0]

    def cycle(rows: int) -> None:
        """Decode the first text with two drafts; take one of them."""
        drafts, margin = head.drafts(first.tokens, 2)
        assert margin > 1e-3
        plan = Plan(Work.DECODE, [first.cycle(2)], rows=rows, width=3, extends=True)
        logits = run(plan)
        assert forward.told[0, :2].tolist() == drafts
        reference = target.logits([*first.tokens, *drafts])[len(first.tokens) - 1 :]
        torch.testing.assert_close(logits, reference, atol=1e-4, rtol=0)
        first.drafted = first.computed + 1
        first.computed += 2
        first.tokens += [drafts[0], 77]

    with torch.inference_mode():
        run(Plan(Work.PREFILL, [first.segment(5)]))
        first.computed = first.drafted = 5
        first.tokens.append(8)
        cycle(rows=1)
        cycle(rows=2)
        segments = [first.segment(first.computed + 1), other.segment(3)]
        mixed = Plan(Work.MIXED, segments, rows=1, decodes=1, extends=True)
        logits = run(mixed)
        reference = [target.logits(text.tokens)[-1] for text in (first, other)]
        torch.testing.assert_close(logits, torch.stack(reference), atol=1e-4, rtol=0)
        first.computed = first.drafted = len(first.tokens)
        first.tokens.append(11)
        cycle(rows=1)
