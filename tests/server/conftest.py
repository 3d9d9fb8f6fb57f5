from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.server.checkpoints import SHAPES, Checkpoint, make_checkpoint
from tests.server.support import Nursery


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    root: Path = tmp_path_factory.mktemp("checkpoints")
    return {name: make_checkpoint(root / name, shape) for name, shape in SHAPES.items()}
