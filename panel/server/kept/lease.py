"""A rank's agreement with the weight keeper; it ends with the rank's process."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass

import torch

from panel.server.kept.key import key_of
from panel.server.kept.shelf import BLOCK, DeviceRegion, HostRegion, Region, Shelf
from panel.server.kept.wire import ADDRESS, Frame, receive, send
from panel.server.place import Place

log = logging.getLogger(__name__)

_ANSWER_S = 60.0
_SLACK = 64 * 512
"""Most bytes a layer that alignment can cost."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Memory of the weight keeper, and what an earlier launch has left in it."""

    shelf: Shelf
    parcel: bytes
    """Empty where nothing was left."""
    seal: int
    """The shelf's seal when the parcel was left."""
    pid: int
    """The weight keeper."""
    connection: socket.socket

    def leave(self, parcel: bytes) -> None:
        """Say that the weights are complete. Raises OSError."""
        send(self.connection, Frame({"seal": self.shelf.seal()}, parcel))


def lease_of(place: Place) -> Lease | None:
    """Return this rank's lease; None, with a warning that says why, where there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_S)
    try:
        connection.connect(os.environ[ADDRESS])
        return _agree(connection, place)
    except (OSError, RuntimeError, _RefusedError) as error:
        connection.close()
        log.warning("weights are not kept: %s", error)
        return None


class _RefusedError(Exception):
    """The weight keeper holds nothing for us."""


def _agree(connection: socket.socket, place: Place) -> Lease:
    demand, device = place.demand, place.device
    needed = demand.weights + demand.shared_experts + _SLACK * (place.config.layers + 2)
    size = -(-needed // BLOCK) * BLOCK
    gpu = None if device.type == "cpu" else device.index
    asked = {"key": key_of(place), "rank": place.shard.rank, "gpu": gpu, "size": size}
    send(connection, Frame(asked))
    if gpu is not None:
        # The weight keeper's context may have to be made too: both at once.
        torch.zeros(1, device=device)
    answer = receive(connection)
    if answer is None:
        raise _RefusedError("the weight keeper has ended")
    if "refused" in answer.header:
        raise _RefusedError(answer.header["refused"])
    region: Region
    if answer.descriptor is not None:
        region = HostRegion(answer.descriptor, size)
    else:
        region = DeviceRegion(bytes.fromhex(answer.header["handle"]), device)
    shelf = Shelf(region, size, device)
    return Lease(shelf, answer.body, answer.header["seal"], answer.header["pid"], connection)
