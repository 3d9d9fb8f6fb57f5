"""What is refused because flags and model do not fit each other."""

from __future__ import annotations

from pathlib import Path

from panel.server.location import TRIVIAL, initial_location, slot_count
from panel.server.options import OptionError, Options
from panel.server.shape import GroupedShape, ModelConfig


def check_split(config: ModelConfig, options: Options) -> None:
    """Refuse, by `OptionError`, what cannot be split as the flags say; imports no torch.

    The message begins with the name of the flag to change.
    """
    tp_size, ep_size = options.tp_size, options.ep_size
    if tp_size % ep_size:
        raise OptionError(f"ep-size {ep_size} does not divide tp-size {tp_size}{_fitting(tp_size)}")
    _check_experts(config, options)
    splits = []
    if not options.dp_attention:
        splits.append(("tp-size", tp_size, config.heads, "attention heads"))
        if config.dense_layers:
            width = config.intermediate_size
            splits.append(("tp-size", tp_size, width, "columns of the dense layers"))
    if config.expert_layers:
        experts = config.experts
        slots = slot_count(config, options)
        splits += [
            ("ep-size", ep_size, slots, "routed experts, redundant ones included"),
            ("tp-size / ep-size", tp_size // ep_size, experts.width, "columns of an expert"),
        ]
        if options.shared_experts_tp != "replicated" and not options.dp_attention:
            splits.append(("tp-size", tp_size, experts.shared_width, "columns of shared experts"))
    for flag, parts, size, what in splits:
        if size % parts:
            raise OptionError(
                f"{flag} {parts} does not divide the model's {size} {what}{_fitting(size)}"
            )
    if isinstance(config.attention, GroupedShape) and not options.dp_attention:
        kv_heads = config.attention.kv_heads
        if kv_heads % tp_size and tp_size % kv_heads:
            raise OptionError(
                f"tp-size {tp_size} and the model's {kv_heads} key-value heads: "
                "one has to divide the other"
            )
    # The other format needs torch to be read.
    if Path(options.init_expert_location).suffix == ".json":
        initial_location(config, options)


def _check_experts(config: ModelConfig, options: Options) -> None:
    """Refuse what needs experts, all-to-all or expert parallelism where that is missing."""
    dispatching = options.moe_a2a_backend != "none"
    asked = [
        ("moe-a2a-backend", dispatching),
        ("ep-num-redundant-experts", options.ep_num_redundant_experts > 0),
        ("init-expert-location", options.init_expert_location != TRIVIAL),
        ("eplb-interval", options.eplb_interval > 0),
    ]
    for flag, used in asked:
        if used and not config.expert_layers:
            raise OptionError(f"{flag}: model class {config.model_class} has no routed experts")
        if used and options.ep_size == 1:
            raise OptionError(f"{flag} needs ep-size above 1: only then are experts placed whole")
    if dispatching and options.ep_size != options.tp_size:
        raise OptionError(
            f"moe-a2a-backend {options.moe_a2a_backend} needs ep-size {options.tp_size}, "
            f"that is tp-size, instead of {options.ep_size}"
        )
    if options.dp_attention and not dispatching:
        raise OptionError(
            "dp-attention needs moe-a2a-backend auto: without all-to-all tokens reach their "
            "experts only where they are on every rank"
        )
    if options.dp_attention and options.shared_experts_tp == "sharded":
        raise OptionError(
            "shared-experts-tp sharded needs tokens on every rank; with dp-attention each rank "
            "has only its own: use replicated"
        )
    domains, groups = options.eplb_domains, config.experts.routing.groups
    if domains > 1 and (options.ep_size % domains or groups % domains):
        raise OptionError(
            f"eplb-domains {domains} has to divide ep-size {options.ep_size} and the "
            f"{groups} groups of experts of model class {config.model_class}"
        )


def _fitting(size: int) -> str:
    return "; fitting: " + ", ".join(str(n) for n in range(1, min(size, 64) + 1) if size % n == 0)
