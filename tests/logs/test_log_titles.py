"""Titles of processes and the ranks that they mean."""

from __future__ import annotations

import pytest

from panel.logs.titles import rank_of_title, title_of


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("sglang::scheduler_TP3_EP3", "sglang::scheduler_TP3_EP3"),
        ("VLLM::Worker_TP0   ", "VLLM::Worker_TP0"),
        ("/opt/bin/python -m sglang.launch_server", None),
        ("grep VLLM::Worker", None),
        ("", None),
    ],
)
def test_a_title_stands_in_place_of_the_command(command: str, title: str | None) -> None:
    assert title_of(command) == title


@pytest.mark.parametrize(
    ("title", "world", "rank"),
    [
        ("sglang::scheduler_TP3_EP3", 8, 3),
        ("sglang::scheduler_DP1_TP5_EP5", 8, 5),
        ("sglang::scheduler_PP1_TP5", 16, None),
        ("sglang::scheduler", 1, 0),
        ("sglang::detokenizer", 1, None),
        ("sglang::detokenizer", 8, None),
        ("sglang::data_parallel_controller", 8, None),
        ("VLLM::Worker", 8, None),
        ("VLLM::Worker_TP3", 8, 3),
        ("VLLM::Worker_TP3_EP3", 8, 3),
        ("VLLM::Worker_DP1_TP1_EP5", 8, 5),
        ("VLLM::Worker_DP1_TP1", 8, None),
        ("VLLM::EngineCore", 8, None),
        ("VLLM::EngineCore", 1, 0),
        ("VLLM::EngineCore_DP0", 2, None),
        ("VLLM::APIServer_0", 1, None),
    ],
)
def test_the_rank_of_a_title(title: str, world: int, rank: int | None) -> None:
    assert rank_of_title(title, world) == rank
