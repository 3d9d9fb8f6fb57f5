"""Sampling on the device: tokens go into the next step without a look at them here."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from panel.kernels.sampling import Draws, sample_tokens
from panel.kernels.sampling_filter import Filters
from panel.server.cuda.layout import Arrays
from panel.server.cuda.spread import Spread, agree
from panel.server.cuda.upload import upload
from panel.server.flight import Landed
from panel.server.plan import Plan
from panel.server.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Landing:
    """The tokens of a step, on their way to the host."""

    found: torch.Tensor
    """The tokens of all rows, whether each row was finite, then the drafts of each sequence: int64,
    pinned; known once it has come to its end."""
    rows: int
    drafts: int
    """Of each sequence."""
    end: torch.cuda.Event | None
    """None on a CPU, where nothing is under way."""

    def done(self) -> bool:
        return self.end is None or self.end.query()

    def tokens(self) -> npt.NDArray[np.int64]:
        """Wait for the step; return the tokens of all rows."""
        tokens: npt.NDArray[np.int64] = self._wait()[: self.rows].numpy()
        return tokens

    def land(self) -> Landed:
        found, rows, size = self._wait().tolist(), self.rows, self.drafts
        starts = range(2 * rows, len(found), size) if size else ()
        return Landed(
            found[:rows],
            [number != 0 for number in found[rows : 2 * rows]],
            [found[start : start + size] for start in starts],
        )

    def _wait(self) -> torch.Tensor:
        if self.end is not None:
            self.end.synchronize()
        return self.found


@dataclass(frozen=True, slots=True)
class KernelSampler:
    """Samples what needs no more than the logits themselves."""

    sampled: torch.Tensor
    """Where the next step looks for its tokens, int64 [most rows]."""
    finite: torch.Tensor
    """int64 [most rows]: 1 where the logits of a row are finite, else 0."""
    drafts: torch.Tensor | None = None
    """Where a draft head leaves what it guesses in a step, int64 [most sequences, most drafts]."""
    spread: Spread | None = None
    """None where this rank has all logits."""

    @classmethod
    def into(cls, sampled: torch.Tensor, spread: Spread | None = None) -> KernelSampler:
        """Return a sampler that leaves its tokens there."""
        return cls(sampled, torch.ones_like(sampled), spread=spread)

    def serves(self, sequences: Sequences[Sequence]) -> bool:
        requests = (each.request for each in sequences)
        return not any(each.logprobs is not None or each.penalised for each in requests)

    def sample(self, logits: torch.Tensor, sequences: Sequences[Sequence], width: int) -> Landing:
        count = len(sequences) * width
        tokens, finite = self.sampled[:count], self.finite[:count]
        if count:
            views = upload(_arrays(sequences, width), logits.device).views
            filters = Filters(views.get("top_k"), views.get("top_p"), views.get("min_p"))
            draws = Draws(
                views["temperature"],
                views["uniform"],
                None if filters == Filters() else filters,
            )
            sample_tokens(logits, draws, tokens=tokens, finite=finite)
            if self.spread is not None:
                agree(tokens)
        drafts = tokens.new_empty(len(sequences), 0)
        if self.drafts is not None:
            drafts = self.drafts[: len(sequences), : width - 1]
        found = _landing(torch.cat((tokens, finite, drafts.flatten())))
        end = torch.cuda.Event() if logits.is_cuda else None
        if end is not None:
            end.record()
        return Landing(found, count, drafts.shape[1], end)

    def whole(self, logits: torch.Tensor, plan: Plan) -> torch.Tensor:
        return logits if self.spread is None else self.spread.whole(logits, plan)

    def follow(self, count: int) -> None:
        if count:
            agree(self.sampled[:count])


def _landing(source: torch.Tensor) -> torch.Tensor:
    """Begin to copy to the host."""
    target = torch.empty(source.shape, dtype=source.dtype, pin_memory=source.is_cuda)
    return target.copy_(source, non_blocking=True)


def _arrays(sequences: Sequences[Sequence], width: int) -> Arrays:
    """Return what each row is drawn with; filters that no row asks for are left out.

    There is a random number for each token that is not greedy, as on the host.
    """
    requests = [sequence.request for sequence in sequences for _ in range(width)]
    arrays = {
        "uniform": np.array([number for each in sequences for number in _numbers(each, width)]),
        "temperature": np.array([each.temperature for each in requests], np.float32),
    }
    if any(each.top_k > 0 for each in requests):
        arrays["top_k"] = np.array([max(each.top_k, 0) for each in requests], np.int32)
    if any(each.top_p < 1 for each in requests):
        arrays["top_p"] = np.array([each.top_p for each in requests], np.float32)
    if any(each.min_p > 0 for each in requests):
        arrays["min_p"] = np.array([each.min_p for each in requests], np.float32)
    return arrays


def _numbers(sequence: Sequence, width: int) -> list[float]:
    if not sequence.request.temperature:
        return [0.0] * width
    return [sequence.number()] if width == 1 else sequence.numbers_ahead(width)
