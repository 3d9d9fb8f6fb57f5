"""Expert-parallel load balancing: which expert goes into which slot.

After the algorithm that DeepSeek published. Hot experts get the slots that are left over once every
expert has one; what an expert has to do is thought to be shared evenly by its replicas. In the
hierarchical form the groups of experts are first shared out over domains of ranks between which
traffic is dear, because the tokens of one group then stay in one domain.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from panel.server.location import Table

Ints = npt.NDArray[np.int64]


def balance(
    load: Sequence[Sequence[float]], slots: int, ranks: int, *, groups: int = 1, domains: int = 1
) -> Table:
    """Return the experts of `slots` slots, an equal number a rank, for each layer.

    `load` is what each expert of each layer has to do. `ranks` divides `slots`; with several
    `domains` they divide `ranks` and `groups`. Slot s is on rank `s // (slots / ranks)`.
    """
    return tuple(_layer(list(layer), slots, ranks, groups, domains) for layer in load)


def settle(old: Table, new: Table, ranks: int) -> Table:
    """Return `new` with the slots of each rank reordered so that what stays on a rank stays put."""
    return tuple(
        _settled(before, after, len(before) // ranks)
        for before, after in zip(old, new, strict=True)
    )


def balancedness(load: Ints, table: Ints, ranks: int) -> float | None:
    """Return the mean over ranks of the load, over its maximum; 1 is perfect.

    Shapes: `load` [layers, experts], `table` [layers, slots]. It is the mean of the layers; None
    where nothing was loaded.
    """
    layers, experts = load.shape
    replicas = np.zeros((layers, experts), np.int64)
    np.add.at(replicas, (np.arange(layers)[:, None], table), 1)
    each = np.take_along_axis(load / np.maximum(replicas, 1), table, 1)
    sums = each.reshape(layers, ranks, -1).sum(2)
    loaded = sums[sums.max(1) > 0]
    return float((loaded.mean(1) / loaded.max(1)).mean()) if len(loaded) else None


def _layer(load: list[float], slots: int, ranks: int, groups: int, domains: int) -> tuple[int, ...]:
    size = len(load) // groups
    members = [range(group * size, (group + 1) * size) for group in range(groups)]
    if domains == 1:
        homes: list[list[int]] = [list(range(len(load)))]
    else:
        weights = [sum(load[expert] for expert in group) for group in members]
        homes = [
            [expert for group in packed for expert in members[group]]
            for packed in _pack(weights, domains)
        ]
    table: list[int] = []
    for experts in homes:
        replicas = _replicate(load, experts, slots // domains)
        counts = Counter(replicas)
        each = [load[expert] / counts[expert] for expert in replicas]
        for packed in _pack(each, ranks // domains):
            table += sorted(replicas[item] for item in packed)
    return tuple(table)


def _replicate(load: list[float], experts: list[int], slots: int) -> list[int]:
    """Return `experts` and, one by one, one more of the one whose replicas have most to do."""
    heap = [(-load[expert], expert, 1) for expert in experts]
    heapq.heapify(heap)
    replicas = list(experts)
    while len(replicas) < slots:
        _, expert, count = heap[0]
        replicas.append(expert)
        heapq.heapreplace(heap, (-load[expert] / (count + 1), expert, count + 1))
    return replicas


def _pack(weights: list[float], packs: int) -> list[list[int]]:
    """Share items out: equally many a pack, the heaviest first, each to the lightest pack."""
    room = len(weights) // packs
    heap: list[tuple[float, int]] = [(0.0, pack) for pack in range(packs)]
    packed: list[list[int]] = [[] for _ in range(packs)]
    for item in sorted(range(len(weights)), key=lambda item: (-weights[item], item)):
        weight, pack = heapq.heappop(heap)
        packed[pack].append(item)
        if len(packed[pack]) < room:
            heapq.heappush(heap, (weight + weights[item], pack))
    return packed


def _settled(before: tuple[int, ...], after: tuple[int, ...], size: int) -> tuple[int, ...]:
    table: list[int] = []
    for begin in range(0, len(before), size):
        coming = list(after[begin : begin + size])
        kept: list[int | None] = []
        for expert in before[begin : begin + size]:
            stays = expert in coming
            kept.append(expert if stays else None)
            if stays:
                coming.remove(expert)
        table += [coming.pop(0) if expert is None else expert for expert in kept]
    return tuple(table)
