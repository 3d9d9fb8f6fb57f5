"""Drafts never change what is written: greedy text token by token, sampled text as distribution."""

from __future__ import annotations

import functools
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from panel.server.config import model_folder
from panel.server.messages import Generate
from tests.server.checkpoints import Checkpoint, agreement
from tests.server.live import live_engine
from tests.server.plain_sampler import probabilities
from tests.server.support import DEADLINE, Nursery

EAGLE = {"speculative_algorithm": "eagle3"}
ALWAYS = EAGLE | {"speculative_adaptive": "false"}
A2A = {"moe_a2a_backend": "shm"}
FOLDER = model_folder("moe-tiny")
TOKENS = 20

MODES: dict[str, dict[str, object]] = {
    "tp1": ALWAYS | {"tp_size": 1},
    "tp8": ALWAYS | {"tp_size": 8},
    "tp8, all draft": ALWAYS | {"tp_size": 8, "speculative_draft_ranks": "all"},
    "tp8 ep8": ALWAYS | {"tp_size": 8, "ep_size": 8},
    "tp4 ep4 a2a": ALWAYS | A2A | {"tp_size": 4, "ep_size": 4},
    "dp4": ALWAYS | A2A | {"tp_size": 4, "ep_size": 4, "dp_attention": "true"},
    "few pages": ALWAYS | {"tp_size": 2, "max_total_tokens": 192, "page_size": 4},
    "small chunks": ALWAYS | {"tp_size": 2, "chunked_prefill_size": 24, "page_size": 4},
    "adaptive": EAGLE | {"tp_size": 2, "speculative_num_steps": 5},
    "ngram": {"tp_size": 2, "speculative_algorithm": "ngram"},
}


@functools.cache
def shipped() -> Checkpoint:
    return Checkpoint(FOLDER, AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32))


@functools.cache
def prompts() -> list[list[int]]:
    """Pieces of a text that never changes, of all lengths; some begin alike."""
    text = (Path(__file__).parents[3] / "LICENSE").read_text()
    ids = Tokenizer.from_file(str(FOLDER / "tokenizer.json")).encode(text).ids[1:]
    numbers = random.Random(3)
    pieces = []
    for _ in range(24):
        begin, size = numbers.randrange(len(ids) - 90), numbers.randrange(1, 90)
        pieces.append([0, *ids[begin : begin + size]])
    return [*pieces, *(piece[: len(piece) // 2 + 2] for piece in pieces[:8])]


@pytest.mark.parametrize("mode", MODES)
def test_greedy_text_is_that_of_the_model_alone(
    mode: str, nursery: Nursery, tmp_path: Path
) -> None:
    with nursery.gang(tmp_path, **MODES[mode]) as gang:
        gang.wait_started()
        requests = [
            Generate(str(number), prompt, TOKENS, temperature=0)
            for number, prompt in enumerate(prompts())
        ]
        # They come in bunches, so that prompts run beside what decodes.
        for bunch in _bunches(requests, 5):
            for request in bunch:
                gang.send(request)
            gang.receive(time.monotonic() + DEADLINE)
        answers = gang.collect(*(request.rid for request in requests))
        stats = gang.wait_stats()
        assert set(gang.terminate().values()) == {0}
        assert "every page is accounted for" in gang.log("rank-0")
    compared = 0
    for request, answer in zip(requests, answers, strict=True):
        count, same = agreement(shipped(), request.tokens, answer.tokens)
        assert same
        compared += count
    share = compared / (len(requests) * TOKENS)
    print(f"{mode}: {share:.1%} of {len(requests) * TOKENS} positions compared")
    assert share >= 0.95
    assert stats.spec_drafts > 0
    assert stats.spec_accepted_tokens > 0
    if mode == "few pages":
        assert stats.preemptions > 0


def _bunches(requests: list[Generate], size: int) -> list[list[Generate]]:
    return [requests[begin : begin + size] for begin in range(0, len(requests), size)]


FALSE_ALARM = 1e-6
"""How likely the test of the distribution fails though all is well, over the choice of seeds."""


def test_sampled_text_has_the_models_distribution(nursery: Nursery, tmp_path: Path) -> None:
    """Chi-square test of the first three tokens together, at a false-alarm rate of 1e-6."""
    prompt, count = prompts()[2][:30], 1200
    how: dict[str, Any] = {"temperature": 0.9, "top_k": 4}
    expected = _chances(prompt, Generate("", [], 1, **how), 3)
    requests = [Generate(str(n), prompt, 8, seed=n, **how) for n in range(count)]
    texts: dict[str, list[tuple[int, ...]]] = {}
    for name, flags in (("drafts", ALWAYS), ("none", {})):
        folder = tmp_path / name
        folder.mkdir()
        with nursery.gang(folder, tp_size=2, max_running_requests=32, **flags) as gang:
            gang.wait_started()
            texts[name] = [tuple(answer.tokens) for answer in gang.generate(*requests)]
            stats = gang.wait_stats()
            assert (stats.spec_accepted_tokens > 20) == (name == "drafts")
    # One random number a token: with the same seeds drafts change no token at all.
    assert texts["drafts"] == texts["none"]
    found = Counter(text[:3] for text in texts["drafts"])
    assert _p_value(found, expected, count) > FALSE_ALARM


def test_the_test_of_the_distribution_can_fail() -> None:
    expected = {(0,): 0.5, (1,): 0.3, (2,): 0.2}
    fair = Counter({(0,): 760, (1,): 440, (2,): 300})
    greedy = Counter({(0,): 900, (1,): 360, (2,): 240})
    assert _p_value(fair, expected, 1500) > 0.01
    assert _p_value(greedy, expected, 1500) < FALSE_ALARM
    assert _p_value(Counter({(3,): 1500}), expected, 1500) < FALSE_ALARM


def _chances(prompt: list[int], request: Generate, depth: int) -> dict[tuple[int, ...], float]:
    """Return the probability of every text of `depth` tokens that has one."""
    chances: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(depth):
        longer: dict[tuple[int, ...], float] = {}
        for text, chance in chances.items():
            row = shipped().logits([*prompt, *text])[-1].numpy()
            for token, share in enumerate(probabilities(row, request)):
                if share > 0:
                    longer[(*text, token)] = chance * float(share)
        chances = longer
    return chances


def _p_value(
    counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float], total: int
) -> float:
    """Return Pearson's p-value; rare texts, and those that cannot be, count as one."""
    usual = {text for text, chance in expected.items() if chance * total >= 5}
    rest = 1 - sum(expected[text] for text in usual)
    others = total - sum(counts[text] for text in usual)
    square = sum((counts[t] - total * expected[t]) ** 2 / (total * expected[t]) for t in usual)
    square += (others - total * rest) ** 2 / (total * max(rest, 1e-9))
    return float(torch.special.gammaincc(torch.tensor(len(usual) / 2.0), torch.tensor(square / 2)))


def test_simulated_acceptance_is_labelled_everywhere(tmp_path: Path) -> None:
    with live_engine(
        tmp_path,
        "--tp-size=2",
        "--speculative-algorithm=eagle3",
        "--speculative-adaptive=false",
        "--speculative-simulate-acceptance=0.75",
        "--decode-log-interval=5",
    ) as live:
        body = {"prompt": "The river", "max_tokens": 120, "temperature": 0, "ignore_eos": True}
        status, answer = live.post("/v1/completions", body)
        assert status == 200, answer
        assert "SIMULATED acceptance 0.75" in answer["model"]
        info = live.get("/server_info")
        assert "SIMULATED" in info["model"]
        assert info["options"]["speculative_simulate_acceptance"] == 0.75
        stats = live.settle()
        assert stats["spec_simulated"] == 0.75
        assert live.samples()["moepanel_spec_simulated_acceptance"] == 0.75
        share = stats["spec_accepted_per_position"][0] / stats["spec_drafted_per_position"][0]
        assert stats["spec_drafts"] > 20
        assert 0.5 < share < 0.95
    log = live.log.read_text()
    assert "acceptance is SIMULATED at 0.75: the text means nothing" in log
    assert "acceptance SIMULATED at 0.75" in json.dumps(log.splitlines()[-40:])


def test_what_a_cycle_costs_is_told(tmp_path: Path) -> None:
    with live_engine(
        tmp_path, "--speculative-algorithm=eagle3", "--speculative-adaptive=false"
    ) as live:
        live.complete(max_tokens=100, ignore_eos=True)
        stats, samples = live.settle(), live.samples()
    assert stats["spec_simulated"] is None
    assert "moepanel_spec_simulated_acceptance" not in samples
    assert stats["spec_draft_length"] > 0
    assert stats["spec_tokens_per_cycle"] >= 1
    assert stats["spec_break_even"] is None or stats["spec_break_even"] > 1
    for part in ("extend", "draft", "verify"):
        assert samples[f"moepanel_spec_seconds_total/{part}"] > 0
    # Of the model two sums a layer; and rank 0 meets the others when it has drafted.
    assert stats["step_collectives"] == 2 * 5 + 1
    assert 0 < samples["moepanel_step_collective_seconds"] < samples["moepanel_step_seconds"]
