"""Which draft head the flags ask for, and whether it fits the model; imports no torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from panel.server.draft.shape import DraftShape, check_split, dummy_shape, parse_draft
from panel.server.draft.tensors import EMBEDDING, check_tensors, stored_shapes
from panel.server.options import OptionError, Options
from panel.server.shape import ModelConfig, ModelError

_FLAG = "speculative-draft-model-path"


def draft_shape(options: Options, config: ModelConfig, folder: Path) -> DraftShape | None:
    """Return the head that the flags ask for, None where they ask for none.

    `folder` is the model's; a head that ships with it is in its folder `draft`. `OptionError`
    where there is no head or it cannot be split, `ModelError` where it does not fit the model.
    """
    if options.speculative_algorithm != "eagle3":
        return None
    given = options.speculative_draft_model_path
    path = folder / "draft" if given is None else Path(given)
    dummy = options.load_format == "dummy"
    if given is None and not (path / "config.json").exists():
        if not dummy:
            raise OptionError(
                f"{_FLAG}: speculative-algorithm eagle3 needs a draft head made for this model "
                f"and {folder} has none; name its folder, or use ngram"
            )
        shape = dummy_shape(config)
    else:
        shape = _read(path, config)
        if not dummy:
            stored = stored_shapes(path)
            shape = replace(shape, own_embedding=EMBEDDING in stored)
            check_tensors(shape, stored, config.vocab_size)
    check_split(shape, options)
    return shape


def _read(folder: Path, config: ModelConfig) -> DraftShape:
    file = folder / "config.json"
    try:
        return parse_draft(json.loads(file.read_text()), config, folder)
    except FileNotFoundError:
        raise ModelError(f"{folder}: no config.json; {_FLAG} is the folder of a head") from None
    except KeyError as error:
        raise ModelError(f"{file}: {error} is missing") from None
    except (ModelError, OSError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{file}: {error}") from None
