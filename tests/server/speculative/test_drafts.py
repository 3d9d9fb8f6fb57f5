"""What ranks draft against a plain reference of the head, and what they verify."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.server.checkpoints import Checkpoints
from tests.server.ranks import Outcome, Ranks
from tests.server.speculative.cycles import Expected, cycles
from tests.server.speculative.heads import Head, make_head
from tests.server.test_parity import assert_predicted

EAGLE: dict[str, object] = {
    "speculative_algorithm": "eagle3",
    "speculative_draft_ranks": "all",
    "disable_cuda_graph": True,
}
ONE: dict[str, object] = {"speculative_draft_ranks": "one"}
DP: dict[str, object] = {"tp_size": 4, "ep_size": 4, "moe_a2a_backend": "shm", "dp_attention": True}

CASES: list[tuple[str, dict[str, Any], dict[str, object]]] = [
    ("v3-tied", {}, {"tp_size": 1}),
    ("v3-tied", {}, {"tp_size": 8}),
    ("v3-tied", {}, ONE | {"tp_size": 8}),
    ("v3-tied", {"own_embedding": True}, ONE | {"tp_size": 2, "ep_size": 2}),
    ("v3-tied", {"own_embedding": True}, {"tp_size": 8, "ep_size": 8}),
    ("v3-low-rank-groups", {"norm_before_residual": True}, {"tp_size": 4, "ep_size": 2}),
    ("v3-tied", {}, {"tp_size": 4, "ep_size": 4, "moe_a2a_backend": "shm"}),
    ("v3-tied", {}, {"tp_size": 2, "allreduce_backend": "gloo"}),
    ("v3-tied", {}, DP),
    ("qwen3", {"num_key_value_heads": 8}, {"tp_size": 2, "ep_size": 2}),
]


def compare(outcome: Outcome, wanted: list[list[Expected]], head: Head) -> tuple[int, int]:
    """Check drafts and logits; return how many drafts there were and how many were compared."""
    drafts = compared = 0
    for found, logits, expected in zip(outcome.drafts, outcome.logits, wanted, strict=True):
        begin = 0
        for told, each in zip(found, expected, strict=False):
            end = begin + 1 + len(each.drafts)
            if each.sure:
                assert told[: len(each.drafts)] == each.drafts
                reference = head.target.logits(each.text + each.drafts)
                torch.testing.assert_close(
                    logits[begin:end], reference[len(each.text) - 1 :], atol=1e-4, rtol=0
                )
            drafts += bool(each.drafts)
            compared += bool(each.drafts) and each.sure
            begin = end
    return drafts, compared


@pytest.mark.parametrize(("shape", "changed", "flags"), CASES)
def test_ranks_draft_what_the_head_says(
    shape: str,
    changed: dict[str, Any],
    flags: dict[str, object],
    checkpoints: Checkpoints,
    ranks: Ranks,
    tmp_path: Path,
) -> None:
    head = make_head(tmp_path / "head", checkpoints[shape], **changed)
    owners = (0, 1, 0, 3) if "dp_attention" in flags else (0, 0, 0, 0)
    plans, wanted = cycles(head, owners)
    outcome = ranks.run(
        *plans,
        model_path=head.target.folder,
        speculative_draft_model_path=head.folder,
        **EAGLE | flags,
    )
    drafts, compared = compare(outcome, wanted, head)
    assert drafts >= 20
    assert compared >= 0.9 * drafts
    assert_predicted(outcome)
    drafting = [rank for rank, memory in enumerate(outcome.memory) if memory.measured["draft"]]
    assert drafting == ([0] if "one" in flags.values() else list(range(len(outcome.memory))))
