"""The lines by which engines say which phase of a launch begins."""

from __future__ import annotations

import re

from panel.domain.phases import Phase

_LINES: tuple[tuple[Phase, tuple[str, ...]], ...] = (
    (Phase.ARGS, (r"server_args=ServerArgs\(", "non-default args: ", "vLLM API server version")),
    (
        Phase.DIST_INIT,
        ("Init torch distributed begin", r"world_size=\d+ rank=\d+.*distributed_init_method"),
    ),
    (
        Phase.WEIGHTS,
        ("Load weight begin", "Starting to load model", "Loading model from scratch"),
    ),
    (Phase.DRAFT, ("Loading drafter model",)),
    (
        Phase.KV_CACHE,
        (
            "Load weight end",
            "Model loading took",
            "Available KV cache memory",
            "KV Cache is allocated",
        ),
    ),
    (
        Phase.CAPTURE,
        (
            "[Cc]apture .*(?:cuda|CUDA) graph.* ?begin",
            "Capturing batches",
            "Capturing CUDA graphs",
        ),
    ),
    (
        Phase.WARMUP,
        (
            r"init engine \(profile",
            "max_total_num_tokens=",
            "Graph capturing finished",
            "[Cc]apture .*(?:cuda|CUDA) graph.* end",
        ),
    ),
    (Phase.SERVING, ("fired up and ready to roll", "Application startup complete")),
)
ENTERED = re.compile("|".join(f"(?P<{phase}>{'|'.join(texts)})" for phase, texts in _LINES))
HOT = "|".join(text for _, texts in _LINES for text in texts)
GANG_WIDE = (Phase.ARGS, Phase.WARMUP, Phase.SERVING)
"""Phases that one process announces for all."""


class Phases:
    """The phase that each rank of one log is in."""

    def __init__(self) -> None:
        self._of: dict[int, str] = {}
        self._loads: dict[int | None, int] = {}
        self.latest: str | None = None

    def see(self, text: str, rank: int | None) -> Phase | None:
        """Take in a line; return the phase that it says was entered."""
        match = ENTERED.search(text)
        if match is None:
            return None
        phase = Phase(match.lastgroup or "")
        if phase is Phase.WEIGHTS:
            # The second load of a rank is that of its draft model.
            self._loads[rank] = self._loads.get(rank, 0) + 1
            if self._loads[rank] > 1 and rank is not None:
                phase = Phase.DRAFT
        if phase in GANG_WIDE:
            for known in self._of:
                self._of[known] = phase
        self.enter(phase, rank)
        return phase

    def enter(self, phase: str, rank: int | None) -> None:
        """Take in that a rank, or somebody, entered a phase."""
        if rank is not None:
            self._of[rank] = phase
        self.latest = phase

    @property
    def known(self) -> dict[int | None, str]:
        """The phase of each rank; of None, the one entered last by anybody."""
        latest: dict[int | None, str] = {None: self.latest} if self.latest else {}
        return latest | self._of

    def of(self, rank: int | None) -> str | None:
        """Return the phase of a rank, or that which was entered last."""
        return self.latest if rank is None else self._of.get(rank, self.latest)
