"""Put one rank's draft head together: weights before the caches are sized, its caches after."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from panel.server.draft.demand import DraftDemand
from panel.server.draft.follow import Followed
from panel.server.draft.forward import EagleForward
from panel.server.draft.load import draft_source, load_draft
from panel.server.draft.model import DraftModel
from panel.server.draft.pick import PickAlone, PickDistributed, Picker, PickInSharedMemory
from panel.server.draft.places import Places
from panel.server.draft.shape import AUX, DraftShape
from panel.server.draft.target import Target, TorchTarget
from panel.server.flight import DeviceSampler
from panel.server.forward import TorchForward
from panel.server.loader import count_bytes
from panel.server.loading import Loading
from panel.server.model import Model
from panel.server.place import Place
from panel.server.reduction import Alone
from panel.server.sizes import draft_tokens, max_context, step_rows

if TYPE_CHECKING:
    # Triton has no wheels for some CPU machines.
    from panel.server.cuda.sampler import KernelSampler

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Head:
    """A loaded head, and what it takes until there are caches."""

    shape: DraftShape
    demand: DraftDemand
    model: DraftModel
    aux: torch.Tensor
    buffer: torch.Tensor
    """For sums over nobody else, [most rows, hidden]; empty where there are others."""
    nbytes: int
    """All that is no cache, in bytes."""

    def tapped(self, model: Model) -> Model:
        """Return the model as one that tells what the head wants to see."""
        return replace(model, taps=self.shape.aux_layers)


def load_head(place: Place, embedding: torch.Tensor) -> Head | None:
    """Return this rank's part of the head, None without one.

    `embedding` [vocabulary, hidden] is the model's. Logs the bytes of checkpoint that were read.
    """
    shape, demand, options = place.draft, place.demand.head, place.options
    if shape is None or demand is None:
        return None
    source = draft_source(shape, options.seed, place.device, options.load_format == "dummy")
    loading = Loading(place.config, demand.shard, source, place.device, place.dtype)
    model = load_draft(shape, loading, embedding, max_context(options, place.config))
    aux = torch.empty(
        step_rows(options), AUX * shape.hidden_size, device=place.device, dtype=place.dtype
    )
    log.info(
        "draft head %s: vocabulary %d of %d, layers %s of the model; checkpoint bytes read %d",
        shape.folder or "of random weights",
        shape.vocab_size,
        place.config.vocab_size,
        ", ".join(map(str, shape.aux_layers)),
        source.bytes_read,
    )
    mine = model if shape.own_embedding else replace(model, embedding=embedding.new_empty(0))
    recent = demand.seats * demand.recent * shape.hidden_size * place.dtype.itemsize
    shared = demand.guesses + demand.tokens // demand.shard.tp_size
    buffer = aux.new_empty(step_rows(options) if _alone(place) else 0, shape.hidden_size)
    nbytes = count_bytes(mine) + aux.nbytes + buffer.nbytes + recent + shared
    return Head(shape, demand, model, aux, buffer, nbytes)


def with_head(
    place: Place, plain: TorchForward, head: Head, pages: int
) -> tuple[EagleForward, DeviceSampler | None]:
    """Return the steps of the model with its head, and what samples them on the device, if so.

    `pages` may be handed out of the caches.
    """
    shape, demand, options = head.shape, head.demand, place.options
    places = Places(pages + 1, demand.recent, options.page_size)
    rows = places.pages + demand.seats * demand.recent
    features = plain.cache.new_empty(rows, shape.hidden_size)
    shared, alone = place.shared, _alone(place)
    tapped = replace(plain, model=head.tapped(plain.model))
    target, sampler = _target(place, tapped, head.aux)
    cache = plain.cache.new_empty(places.pages * options.page_size, demand.cache_width)
    # What stands before the first token of a text, and for padding.
    features[0] = 0
    forward = EagleForward(
        target=target,
        page_size=options.page_size,
        owner=plain.owner,
        draft=head.model,
        cache=cache,
        features=features,
        places=places,
        picker=PickAlone() if alone else _picker(place),
        told=shared.drafts(draft_tokens(options)),
        tells=place.shard.rank == 0 or place.shard.dp_attention,
        sums=Alone(head.buffer) if alone else plain.reduction,
        announce=(lambda: shared.barrier.wait(shared.roster)) if alone else None,
    )
    if place.device.type == "cuda" and isinstance(forward.sums, Alone) and plain.owner is None:
        from panel.server.cuda.assembly import with_kernel_head

        return with_kernel_head(place, forward, head.aux, sampler)
    return forward, None


def followed(place: Place, plain: TorchForward) -> tuple[Followed, DeviceSampler | None]:
    """Return the steps of a rank that is told what rank 0 drafts, and what samples with rank 0."""
    shared = place.shared
    target, sampler = _target(place, plain, None)
    forward = Followed(
        target=target,
        told=shared.drafts(draft_tokens(place.options)),
        hear=lambda: shared.barrier.wait(shared.roster),
    )
    return forward, sampler


def _alone(place: Place) -> bool:
    """True where this rank drafts for others that have no part of the head."""
    return place.demand.draft_shard != place.shard


def _target(
    place: Place, plain: TorchForward, aux: torch.Tensor | None
) -> tuple[Target, KernelSampler | None]:
    """Return the model by kernels where there are some for all of it, and what samples there."""
    if place.device.type == "cuda":
        # Imported where there is a GPU only: triton has no wheels for some CPU machines.
        from panel.server.cuda.assembly import with_kernels
        from panel.server.cuda.target import KernelTarget

        if (found := with_kernels(place, plain)) is not None:
            kernels, sampler = found
            kernels = replace(kernels, stack=replace(kernels.stack, aux=aux))
            return KernelTarget(kernels), sampler
    return TorchTarget(plain, aux), None


def pool_bytes(forward: EagleForward) -> int:
    """Return the bytes of the head's pages."""
    edges = forward.features[: forward.places.pages]
    return forward.cache.nbytes + edges.nbytes


def _picker(place: Place) -> Picker:
    match place.demand.sum_path:
        case "none":
            return PickAlone()
        case "shm":
            shared = place.shared
            guesses = shared.guesses(place.shard.tp_size)
            return PickInSharedMemory(guesses, shared.barrier, shared.roster)
        case _:
            return PickDistributed(place.shard.tp_size)
