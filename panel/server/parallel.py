"""Which part of each layer a rank holds."""

from __future__ import annotations

from dataclasses import dataclass

from panel.server.config import ModelConfig
from panel.server.options import OptionError


@dataclass(frozen=True, slots=True)
class Shard:
    """A rank's place: heads, widths and vocabulary over all ranks, experts over groups of ranks.

    With `ep_size` groups each group of `tp_size / ep_size` ranks holds its experts whole; tokens
    are on every rank, and one sum over all ranks completes a layer.
    """

    rank: int
    tp_size: int
    ep_size: int

    @property
    def expert_tp_size(self) -> int:
        """Ranks that share one expert."""
        return self.tp_size // self.ep_size

    def part(self, size: int) -> slice:
        """Return this rank's part of `size` units over all ranks."""
        return _part(size, self.rank, self.tp_size)

    def experts(self, count: int) -> range:
        """Return the routed experts that this rank holds (a part of)."""
        part = _part(count, self.rank // self.expert_tp_size, self.ep_size)
        return range(part.start, part.stop)

    def expert_part(self, width: int) -> slice:
        """Return this rank's part of the intermediate width of each of its experts."""
        return _part(width, self.rank % self.expert_tp_size, self.expert_tp_size)


def _part(size: int, index: int, parts: int) -> slice:
    width = -(-size // parts)
    return slice(min(index * width, size), min((index + 1) * width, size))


def check_split(config: ModelConfig, tp_size: int, ep_size: int) -> None:
    """Refuse, by `OptionError`, sizes that do not divide what they split."""
    if tp_size % ep_size:
        raise OptionError(f"ep-size {ep_size} does not divide tp-size {tp_size}{_fitting(tp_size)}")
    splits = [
        ("tp-size", tp_size, config.heads, "attention heads"),
        ("tp-size", tp_size, config.intermediate_size, "columns of the dense layers"),
    ]
    if config.dense_layers < config.layers:
        expert_tp_size = tp_size // ep_size
        width = config.moe_intermediate_size
        splits += [
            ("ep-size", ep_size, config.routed_experts, "routed experts"),
            ("tp-size / ep-size", expert_tp_size, width, "columns of an expert"),
            ("tp-size", tp_size, width * config.shared_experts, "columns of the shared experts"),
        ]
    for flag, parts, size, what in splits:
        if size % parts:
            raise OptionError(
                f"{flag} {parts} does not divide the model's {size} {what}{_fitting(size)}"
            )


def _fitting(size: int) -> str:
    return "; fitting: " + ", ".join(str(n) for n in range(1, min(size, 64) + 1) if size % n == 0)
