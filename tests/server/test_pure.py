"""Small pure parts: drafts, buckets, splits, drills, flags, config, the rotation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from panel.server.config import ModelError, parse_config
from panel.server.faults import Kind, parse_fault
from panel.server.graphs import bucket_table, padded
from panel.server.options import OPTIONS, OptionError, parse, resolve, to_argv
from panel.server.parallel import Shard
from panel.server.phases import Phase
from panel.server.rope import interleave_rows, rotate_, rotation_table
from panel.server.speculative import NgramIndex
from tests.server.checkpoints import BASE


def slow_draft(tokens: list[int], longest: int, shortest: int, most: int) -> list[int]:
    for size in range(longest, shortest - 1, -1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if size <= len(tokens) and tokens[end - size : end] == tokens[-size:]:
                return tokens[end : end + most]
    return []


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(1, 59), max_size=5),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_drafts_follow_the_latest_longest_match(
    tokens: list[int], looks: list[int], shortest: int, extra: int
) -> None:
    index = NgramIndex(shortest + extra, shortest)
    for size in [*sorted(look for look in looks if look < len(tokens)), len(tokens)]:
        seen = tokens[:size]
        assert index.draft(seen, 4) == slow_draft(seen, shortest + extra, shortest, 4)


@pytest.mark.parametrize(
    ("flags", "buckets"),
    [
        ({}, (1, 2, 4, 8, 16)),
        ({"max-running-requests": "12"}, (1, 2, 4, 8, 12)),
        ({"cuda-graph-max-bs": "4"}, (1, 2, 4)),
        ({"cuda-graph-bs": "6 2 64"}, (2, 6)),
        ({"disable-cuda-graph": "true"}, ()),
    ],
)
def test_buckets_follow_the_flags(flags: dict[str, str], buckets: tuple[int, ...]) -> None:
    assert bucket_table(resolve(flags)) == buckets


def test_a_batch_goes_to_the_next_bucket() -> None:
    assert [padded(count, (1, 4, 8)) for count in (1, 2, 4, 5, 9)] == [1, 4, 4, 8, 9]
    assert padded(3, ()) == 3


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


def test_a_drill_is_read() -> None:
    fault = parse_fault("rank=3,phase=capture,kind=assert", 8)
    assert (fault.rank, fault.phase, fault.kind, fault.after) == (3, "capture", "assert", 0)
    assert parse_fault("rank=0,phase=serving,kind=slow", 8).after == 3
    assert parse_fault("kind=kill,after=0.5,phase=serving,rank=0", 8).after == 0.5
    for phase in Phase:
        for kind in Kind:
            assert parse_fault(f"rank=0,phase={phase},kind={kind}", 1).kind is kind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown key ''"),
        ("rank=0,phase=serving", "kind is missing"),
        ("rank=0,phase=serving,kind=kill,when=2", "unknown key 'when'"),
        ("rank=x,phase=serving,kind=kill", "are numbers"),
        ("rank=0,phase=serving,kind=kill,after=-1", "below 0"),
        ("rank=0,phase=serving,kind=kill,after=nan", "below 0"),
        ("rank=8,phase=serving,kind=kill", "ranks are 0 to 7"),
        ("rank=0,phase=serving,kind=sgev", "did you mean segv"),
    ],
)
def test_a_bad_drill_is_refused_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_fault(text, 8)


def test_flags_survive_the_way_to_argv_and_back() -> None:
    values = {"tp-size": "4", "cuda-graph-bs": "1,2", "disable-cuda-graph": "true", "port": "1234"}
    assert parse(to_argv(values)) == resolve(values)
    assert parse(["--cuda-graph-bs", "1", "2", "--disable-cuda-graph"]).cuda_graph_bs == (1, 2)
    assert {option.name for option in OPTIONS} >= set(values)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--tp-sise", "4"], "did you mean tp-size"),
        (["--tp-size", "four"], "not a whole number"),
        (["--tp-size"], "needs a value"),
        (["--tp-size", "0"], "below 1"),
        (["serve"], "not a flag"),
        (["--speculative-algorithm", "ngrm"], "did you mean ngram"),
    ],
)
def test_bad_flags_are_refused(argv: list[str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse(argv)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "llama"}, "model_type 'llama'"),
        ({"rope_scaling": {"type": "yarn", "factor": 40}}, "rope type 'yarn'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ({"scoring_func": "softmax"}, "scoring_func 'softmax'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    ],
)
def test_a_config_that_is_not_served_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        parse_config(BASE | {"model_type": "deepseek_v3"} | change)


def test_rotating_halves_is_rotating_interleaved_pairs() -> None:
    positions, width = 5, 8
    table = rotation_table(width, 10000.0, positions)
    halves = torch.randn(positions, width)
    pairs = interleave_rows(halves.t()).t().contiguous()
    rotate_(pairs, table)
    cos, sin = table.real.repeat(1, 2), table.imag.repeat(1, 2)
    turned = torch.cat((-halves[:, 4:], halves[:, :4]), dim=1)
    expected = halves * cos + turned * sin
    assert torch.allclose(interleave_rows(expected.t()).t(), pairs, atol=1e-6)
