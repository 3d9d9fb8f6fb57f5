"""Ends what a keeper that is gone has left on the nodes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from panel.domain.errors import PanelError
from panel.supervisor.evidence import Folder, read_json
from panel.supervisor.fleet.mirror import Place
from panel.supervisor.fleet.order import BEGUN, Begun
from panel.supervisor.fleet.part import LostError, Part

_PATIENCE_S = 60.0
_LOOK_S = 0.2


async def end_rest(folder: Folder) -> bool:
    """Kill the launches that `nodes.json` names; return whether nothing of them is left."""
    begun = read_json(folder.path / BEGUN, Begun)
    if begun is None:
        return True
    sockets = Path(tempfile.mkdtemp(prefix="moepanel-"))
    names = tuple(node.name for node in begun.nodes)
    parts = []
    for index, node in enumerate(begun.nodes):
        place = Place(index=index, nodes=names, world_size=len(names))
        part = Part(node, place, folder, time.monotonic)
        part.number, part.started = begun.launches[index], begun.started[index]
        parts.append(_end(part, sockets / str(index)))
    try:
        return all(await asyncio.gather(*parts))
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


async def _end(part: Part, socket: Path) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await part.open(socket)
            await part.down(now=True)
            while await part.lives():
                await asyncio.sleep(_LOOK_S)
    except (PanelError, LostError, TimeoutError):
        return False
    finally:
        await part.close()
    return True
