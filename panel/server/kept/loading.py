"""A rank's model: from what was kept where that is whole, else loaded and left to be kept."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from panel.server.kept.lease import lease_of
from panel.server.kept.parcel import Fresh, pack, unpack
from panel.server.kept.shelf import Shelf
from panel.server.model import Model
from panel.server.place import Place

log = logging.getLogger(__name__)

_leases: list[socket.socket] = []
"""Open as long as this process lives: the weight keeper takes their end for its end."""


def kept_or_loaded(place: Place, fresh: Fresh, load: Callable[[Shelf | None], Model]) -> Model:
    """Return the model; `load` reads it, with its weights on a shelf where there is one."""
    lease = lease_of(place)
    if lease is None:
        return load(None)
    _leases.append(lease.connection)
    shelf = lease.shelf
    if lease.parcel and shelf.seal() == lease.seal:
        log.info("weights are there already, kept by pid %d", lease.pid)
        return unpack(lease.parcel, shelf, fresh)
    if lease.parcel:
        log.warning(
            "the kept weights have changed since they were loaded (experts that were moved, or a"
            " stray write of a rank): loading again"
        )
    model = load(shelf)
    try:
        lease.leave(pack(model, shelf, fresh))
        log.info("weights are left with pid %d for the next launch", lease.pid)
    except OSError as error:
        log.warning("weights are not kept: %s", error)
    return model
