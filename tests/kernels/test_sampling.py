"""Sampling on the device against the engine's own, in Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.arrivals import arrival_counts
from panel.kernels.sampling import Draws, sample_tokens, sample_tokens_reference
from panel.kernels.sampling_filter import Filters
from panel.server.draw import draw
from panel.server.messages import Generate

VOCABULARY = 2500
"""Three blocks of 1024, two of 2048."""


def draws(rows: int, *, temperature: float = 1.0, filters: Filters | None = None) -> Draws:
    return Draws(torch.full((rows,), temperature), torch.rand(rows, dtype=torch.float64), filters)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows", [1, 9])
def test_plain_rows_are_drawn_as_the_reference_draws(dtype: torch.dtype, rows: int) -> None:
    logits = (torch.randn(rows, VOCABULARY) * 3).to(dtype)
    given = draws(rows)
    given.temperature[rows // 2 :] = torch.linspace(0.0, 2.0, rows - rows // 2)
    tokens, finite = torch.full((rows,), -1), torch.zeros(rows, dtype=torch.bool)
    sample_tokens(logits, given, tokens=tokens, finite=finite)
    # Sums of another order reach a random number that lies between two tokens a bit early or late.
    low, high = (
        sample_tokens_reference(logits, replace(given, uniform=(given.uniform + by).clamp(0, 1)))[0]
        for by in (-1e-5, 1e-5)
    )
    assert ((low <= tokens) & (tokens <= high)).all()
    assert finite.tolist() == [True] * rows
    assert not arrival_counts(torch.device("cpu")).any()


FILTERS = {
    "top_k": {"top_k": [1, 40, 0, 3000]},
    "top_p": {"top_p": [0.5, 1.0, 0.9, 0.0]},
    "min_p": {"min_p": [0.0, 0.1, 0.9, 0.01]},
    "all": {"top_k": [50, 7, 0, 2], "top_p": [0.7, 0.95, 1.0, 0.4], "min_p": [0.0, 0.2, 0.3, 1.0]},
}


def filters(names: dict[str, list[float]]) -> Filters:
    made = {name: torch.tensor(values) for name, values in names.items()}
    if "top_k" in made:
        made["top_k"] = made["top_k"].int()
    return Filters(**made)


@pytest.mark.parametrize(
    ("name", "step"),
    [("top_k", 0.5), ("top_p", 0.5), ("min_p", 0.5), ("all", 0.5), ("all", None)],
)
def test_filtered_rows_are_drawn_as_the_engine_draws(name: str, step: float | None) -> None:
    """Ties with the last weight kept are kept: logits on a grid have many."""
    logits = torch.randn(4, VOCABULARY) * 3
    if step is not None:
        logits = (logits / step).round() * step
    given = draws(4, temperature=0.8, filters=filters(FILTERS[name]))
    tokens, _ = sample_tokens(logits, given)
    for row, token in enumerate(tokens.tolist()):
        limits = {key: values[row] for key, values in FILTERS[name].items()}
        request = Generate("", [], 1, temperature=0.8, **limits)
        number, best = float(given.uniform[row]), int(logits[row].argmax())
        low, high = (
            draw(logits[row].numpy(), best, request, min(max(number + shift, 0), 1 - 1e-9))
            for shift in (-1e-5, 1e-5)
        )
        assert low <= token <= high


def test_greedy_rows_take_the_first_of_the_greatest() -> None:
    logits = torch.zeros(3, VOCABULARY)
    logits[0, [7, 2049]] = logits[1, [1030, 2400]] = 5.0
    for some in (None, filters({"top_k": [5, 5, 5]})):
        tokens, _ = sample_tokens(logits, draws(3, temperature=0.0, filters=some))
        assert tokens.tolist() == [7, 1030, 0]


@pytest.mark.parametrize("filtered", [False, True])
def test_rows_without_a_maximum_are_named(filtered: bool) -> None:
    logits = torch.randn(5, VOCABULARY)
    logits[0, 1500] = float("nan")
    logits[1, 3] = float("inf")
    logits[2] = float("-inf")
    logits[3, ::2] = float("-inf")
    some = filters({"top_p": [0.9] * 5}) if filtered else None
    tokens, finite = sample_tokens(logits, draws(5, filters=some))
    assert finite.tolist() == [False, False, False, True, True]
    assert ((tokens >= 0) & (tokens < VOCABULARY)).all()
    assert tokens[3] % 2 == 1


def test_the_ends_of_the_random_numbers() -> None:
    """Tokens without a chance are never drawn, at either end."""
    logits = torch.full((2, VOCABULARY), float("-inf"))
    logits[:, 1000], logits[:, 1200] = 1.0, 1.0
    ends = Draws(torch.ones(2), torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64))
    assert sample_tokens(logits, ends)[0].tolist() == [1000, 1200]
