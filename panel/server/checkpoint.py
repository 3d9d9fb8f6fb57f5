"""A checkpoint folder: which file holds which tensor, under which name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from panel.server.shape import ModelError

_EMBEDDING = "embed_tokens.weight"
_HEAD = "lm_head.weight"
_BODY = "model."


@dataclass(frozen=True, slots=True)
class Names:
    """How a checkpoint calls the tensors of the text model, whatever it is wrapped in."""

    body: str
    """What stands before `layers.0. ...`."""
    head: str

    @classmethod
    def found_in(cls, names: Iterable[str]) -> Names:
        """Return the naming that the tensors themselves show."""
        # Layers that predict further tokens have an embedding of their own, under longer names.
        embeddings = [name for name in names if name.endswith(_EMBEDDING)]
        heads = [name for name in names if name.endswith(_HEAD)]
        body = min(embeddings, key=len, default=_BODY + _EMBEDDING).removesuffix(_EMBEDDING)
        return cls(body, min(heads, key=len, default=_HEAD))

    def stored(self, name: str) -> str:
        """Return the stored name of a tensor that the plain text model calls `name`."""
        if name == _HEAD:
            return self.head
        return self.body + name.removeprefix(_BODY)


def tensor_files(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor of a checkpoint folder, or raise `ModelError`."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            names = json.loads(index.read_text())["weight_map"]
            file_of = {str(name): folder / file for name, file in names.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{index}: cannot be read: {error!r}") from None
        for path in sorted(set(file_of.values())):
            if not path.is_file():
                raise ModelError(f"{path}: missing, but {index.name} names it; copy it again")
        return file_of
    file_of = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                file_of.update(dict.fromkeys(file.keys(), path))
        except (SafetensorError, OSError) as error:
            raise ModelError(describe_damage(path, error)) from None
    if not file_of:
        raise ModelError(f"{folder}: no *.safetensors file there")
    return file_of


def describe_damage(path: Path, error: Exception) -> str:
    """Return what is wrong with a file that cannot be read: the first tensor that it cuts off."""
    try:
        found = path.stat().st_size
        with path.open("rb") as file:
            begin = 8 + int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(begin - 8, found)))
        header.pop("__metadata__", None)
        ends = {name: begin + entry["data_offsets"][1] for name, entry in header.items()}
        name = min((name for name in ends if ends[name] > found), key=ends.__getitem__)
        shape = header[name]["shape"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path}: is no whole safetensors file: {error}"
    return (
        f"{path}: is cut off inside tensor {name}, shape {shape}: it would end at byte "
        f"{ends[name]}, the file at {found}; copy the file again"
    )
