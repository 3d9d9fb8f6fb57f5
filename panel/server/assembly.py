"""Put one rank's model together: weights, places of the experts, and what moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.distributed as dist

from panel.server.courier import Courier, DistributedCourier, SharedMemoryCourier
from panel.server.exchange import Exchange
from panel.server.experts import Mixture
from panel.server.kept.loading import kept_or_loaded
from panel.server.kept.parcel import Fresh
from panel.server.kept.shelf import Shelf
from panel.server.loader import load_model
from panel.server.loading import Loading
from panel.server.model import Model
from panel.server.place import Place
from panel.server.placement import Placement
from panel.server.rebalance import Rebalancer
from panel.server.sizes import max_context
from panel.server.weights import DummySource, SafetensorsSource, WeightSource


def weight_source(place: Place) -> WeightSource:
    """Return where the weights come from."""
    if place.options.load_format == "dummy":
        return DummySource(place.options.seed, place.device)
    return SafetensorsSource(place.folder, place.config.fp8_block, place.device)


def load_counts(place: Place) -> torch.Tensor | None:
    """Return where this rank counts the choices of experts, [layers with experts, experts]."""
    layers = len(place.config.expert_layers)
    if place.shard.ep_size == 1 or not layers:
        return None
    counts = place.shared.load(place.shard.tp_size, layers)[place.shard.rank]
    return counts if place.device.type == "cpu" else counts.to(place.device)


def assemble(
    place: Place,
    source: WeightSource,
    exchange: Exchange | None,
    load: torch.Tensor | None,
    progress: Callable[[int, int], None],
) -> Model:
    """Return this rank's shard of the model; `load` is where it counts choices of experts."""
    config, shard = place.config, place.shard
    placements = {}
    for number, (layer, experts) in enumerate(
        zip(config.expert_layers, place.location, strict=True)
    ):
        counts = load[number] if load is not None and shard.counts_load else None
        placement = Placement.of(experts, shard, config.experts.routed, counts)
        placements[layer] = placement.to(place.device)
    context = max_context(place.options, config)

    def read(shelf: Shelf | None) -> Model:
        loading = Loading(config, shard, source, place.device, place.dtype, shelf)
        return load_model(loading, placements, exchange, context, progress)

    if not place.options.keep_weights:
        return read(None)
    return kept_or_loaded(place, Fresh(placements, exchange), read)


def make_rebalancer(
    place: Place, model: Model, load: torch.Tensor | None
) -> tuple[Rebalancer | None, int]:
    """Return what moves experts, None where they have no places, and the bytes that it takes."""
    if load is None:
        return None, 0
    shared, ranks = place.shared, place.shard.tp_size
    shelves = shared.moving(ranks, place.dtype)
    courier: Courier
    if place.store is None:
        courier = SharedMemoryCourier(shelves, shared.barrier, shared.roster)
    else:
        # Gloo, of ranks that share a GPU, carries nothing of a GPU's from one to another.
        device = place.device if dist.get_backend() == "nccl" else torch.device("cpu")
        courier = DistributedCourier(shelves[0].to(device))
    mixtures = [model.layers[number].feed_forward for number in place.config.expert_layers]
    rebalancer = Rebalancer(place, cast(list[Mixture], mixtures), load, courier)
    return rebalancer, shelves.nbytes // ranks
