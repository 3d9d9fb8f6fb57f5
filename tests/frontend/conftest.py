"""A front end around a scripted rank 0."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from panel.server.frontend.app import build_app
from panel.server.frontend.link import Link
from panel.server.frontend.metrics import Metrics
from panel.server.frontend.service import Service
from panel.server.frontend.text import Text, load_text
from panel.server.heartbeat import HeartbeatFile
from panel.server.options import resolve
from tests.frontend.front_under_test import Front
from tests.frontend.scripted_engine import STARTED, ScriptedEngine, until

SPECIAL = ["<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|end|>"]
TEMPLATE = """\
{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == 'robot' %}{{ raise_exception('unknown role robot') }}{% endif %}
    {{- '<|' + message.role + '|>' + (message.content | trim) + '<|end|>' }}
{%- endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def byte_level_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer that merges a little and knows every byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=[AddedToken(name, special=True) for name in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["the quick brown fox and the other thing, then", "Grüße"], trainer
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", 0)]
    )
    return tokenizer


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder with the files that make text."""
    folder = tmp_path_factory.mktemp("checkpoint")
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    config = {
        "bos_token": "<|bos|>",
        "eos_token": {"content": "<|eos|>"},
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 4]}))
    return folder


@pytest.fixture(scope="session")
def text(checkpoint: Path) -> Text:
    """The text side of that checkpoint."""
    return load_text(checkpoint)


@pytest.fixture(scope="session")
def tokens_of(text: Text) -> Callable[[str], list[int]]:
    """The tokens of a text, without special tokens."""
    return lambda words: text.encode(words)[1:]


@pytest.fixture
def flags() -> dict[str, str]:
    """The engine's flags; a test module may override this."""
    return {}


@pytest.fixture
def heartbeats(tmp_path: Path) -> Iterator[HeartbeatFile]:
    """Heartbeats of two ranks, not beaten yet."""
    file = HeartbeatFile(tmp_path / "heartbeats", 2, create=True)
    yield file
    file.close()


@pytest.fixture
async def starting(
    text: Text, checkpoint: Path, heartbeats: HeartbeatFile, flags: dict[str, str]
) -> AsyncIterator[Front]:
    """A front end whose ranks have not started yet."""
    ours, theirs = socket.socketpair()
    engine = ScriptedEngine()
    await engine.attach(theirs)
    link = Link()
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    options = resolve({"model-path": str(checkpoint), "tp-size": "2", **flags})
    service = Service(options, "tiny", text, link, heartbeats, Metrics(lambda: link.stats))
    # The answer of the handler matters to clients, not the exception raised again for the log.
    transport = httpx.ASGITransport(build_app(service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://front") as client:
        yield Front(engine, link, heartbeats, client)
    link.close()
    await engine.hang_up()


@pytest.fixture
async def front(starting: Front) -> Front:
    """A front end whose ranks serve."""
    starting.beat()
    starting.engine.say(STARTED)
    await until(lambda: starting.link.started is not None)
    return starting
