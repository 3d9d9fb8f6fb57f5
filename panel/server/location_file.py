"""Files that say where experts are, or how often each was chosen: ours and SGLang's recorder's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[Sequence[int]]

MAP = "physical_to_logical_map"
COUNT = "logical_count"
_RECORDS = "records"
_LAST_MAP = "last_physical_to_logical_map"
_SLOT_COUNT = "global_physical_count"


def read_location(path: Path) -> tuple[str, Rows]:
    """Return `MAP` and the expert in each slot, or `COUNT` and how often each expert was chosen.

    Rows are layers. Counts may be given by step, as the recorder's mode `stat` dumps them, or by
    pass and slot (`records`), as its modes `per_pass` and `per_token` do. Raises `OSError`, or
    `ValueError` with what is wrong.
    """
    content = _content(path)
    if not isinstance(content, Mapping):
        raise ValueError("it is no object with keys")
    if MAP in content:
        return MAP, _table(content[MAP], MAP)
    if COUNT in content:
        return COUNT, _summed(content[COUNT], COUNT)
    if _RECORDS in content and _LAST_MAP in content:
        return COUNT, _by_expert(content[_RECORDS], _table(content[_LAST_MAP], _LAST_MAP))
    raise ValueError(f"it has neither {MAP} nor {COUNT}")


def _content(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix != ".pt":
        raise ValueError("its name ends neither with .json nor with .pt")
    # The panel's plan reads JSON alone: its process must not import torch.
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # Torn files make the reader fail in ways of all kinds.
        raise ValueError(f"it cannot be read: {error!r}") from None


def _by_expert(records: Any, table: Rows) -> Rows:
    """Return the counts of experts, given those of the slots that `table` has them in."""
    if not (isinstance(records, list) and all(isinstance(each, Mapping) for each in records)):
        raise ValueError(f"{_RECORDS} is no list of passes")
    slots = _summed([_plain(each.get(_SLOT_COUNT)) for each in records], _SLOT_COUNT)
    if [len(row) for row in slots] != [len(row) for row in table]:
        raise ValueError(f"{_SLOT_COUNT} and {_LAST_MAP} differ in layers or slots")
    counts = []
    for row, experts in zip(slots, table, strict=True):
        if not set(experts) <= set(range(len(experts))):
            raise ValueError(f"{_LAST_MAP} names experts that cannot be")
        sums = [0] * (max(experts, default=-1) + 1)
        for count, expert in zip(row, experts, strict=True):
            sums[expert] += count
        counts.append(sums)
    return counts


def _summed(value: Any, name: str) -> Rows:
    """Return a table of counts, the sum of all where there are several."""
    if hasattr(value, "sum") and value.ndim == 3:
        value = value.sum(0)
    value = _plain(value)
    tables = value if _depth(value) == 3 else [value]
    rows = [_table(table, name) for table in tables]
    if len({tuple(map(len, table)) for table in rows}) != 1:
        raise ValueError(f"{name} has steps of different shapes")
    if any(count < 0 for table in rows for row in table for count in row):
        raise ValueError(f"{name} has counts below 0")
    return [
        [sum(counts) for counts in zip(*layers, strict=True)] for layers in zip(*rows, strict=True)
    ]


def _table(value: Any, name: str) -> Rows:
    value = _plain(value)
    if not (isinstance(value, list) and all(map(_whole_numbers, value))):
        raise ValueError(f"{name} is no table of whole numbers")
    table: Rows = value
    return table


def _whole_numbers(row: Any) -> bool:
    return isinstance(row, list) and all(type(each) is int for each in row)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _depth(value: Any) -> int:
    return 1 + _depth(value[0]) if isinstance(value, list) and value else 0
