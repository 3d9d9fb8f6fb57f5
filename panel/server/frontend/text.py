"""The text side of a checkpoint: tokenizer, special tokens, chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer

from panel.server.config import ModelError
from panel.server.frontend.detokenizer import Detokenizer
from panel.server.frontend.errors import ApiError
from panel.server.frontend.template import ChatTemplate

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


class Text:
    """Encodes prompts, decodes answers."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        eos: Sequence[int],
        bos: int | None,
        template: ChatTemplate | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.eos = tuple(sorted(set(eos)))
        """Ids that end an answer."""
        self.bos = bos
        self.vocab_size = tokenizer.get_vocab_size()
        self._longest = max(map(len, tokenizer.get_vocab()))

    def encode(self, text: str, context: int | None = None) -> list[int]:
        """Return the tokens of a plain prompt, with the special tokens the checkpoint adds.

        Raises `ApiError` for a text that cannot have as few as `context` tokens.
        """
        return self._encode(text, context, special=True)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        extra: Mapping[str, Any],
        context: int | None = None,
    ) -> list[int]:
        """Return the tokens of a conversation; the template writes the special tokens itself.

        Raises `ApiError` for a text that cannot have as few as `context` tokens.
        """
        if self._template is None:
            raise ApiError(
                "this model has no chat template: use /v1/completions", code="no_chat_template"
            )
        prompt = self._template.render(
            messages, add_generation_prompt=add_generation_prompt, extra=extra
        )
        return self._encode(prompt, context, special=False)

    def _encode(self, text: str, context: int | None, *, special: bool) -> list[int]:
        # A prompt of megabytes would keep all other requests waiting while it is encoded.
        if context is not None and len(text) > context * self._longest:
            raise ApiError(
                f"the prompt has {len(text)} characters: more than the context of {context} "
                "tokens can hold",
                code="context_length_exceeded",
            )
        try:
            return self._tokenizer.encode(text, add_special_tokens=special).ids
        except UnicodeEncodeError as error:
            raise ApiError(f"the prompt is not valid Unicode: {error.reason}") from None

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special tokens."""
        return self._tokenizer.decode(tokens)

    def detokenizer(self) -> Detokenizer:
        """Return a fresh incremental decoder."""
        return Detokenizer(self._tokenizer)

    def token_text(self, token: int) -> str:
        """Return one token as text; bytes that are no whole character show as U+FFFD."""
        return self._tokenizer.decode([token], skip_special_tokens=False)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token, also where they are a part of a character."""
        text = self.token_text(token)
        if "\N{REPLACEMENT CHARACTER}" in text:
            letters = self._tokenizer.id_to_token(token) or ""
            if all(letter in _BYTE_OF for letter in letters):
                return bytes(_BYTE_OF[letter] for letter in letters)
        return text.encode()


def load_text(folder: Path) -> Text:
    """Read the tokenizer of a checkpoint folder. Raises `ModelError`."""
    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_str(path.read_text())
    except Exception as error:
        # The library raises bare `Exception` for a file it cannot read as a tokenizer.
        raise ModelError(f"{path}: no usable tokenizer: {error}") from error
    config = _read_json(folder / "tokenizer_config.json")
    generation = _read_json(folder / "generation_config.json")
    special = {name: text for name in _SPECIAL if (text := _content(config.get(name))) is not None}
    eos = generation.get("eos_token_id") or _read_json(folder / "config.json").get("eos_token_id")
    ids = [eos] if isinstance(eos, int) else list(eos or ())
    ids += [tokenizer.token_to_id(special["eos_token"])] if "eos_token" in special else []
    source = _template_source(folder, config)
    try:
        template = None if source is None else ChatTemplate(source, special)
    except TemplateError as error:
        raise ModelError(f"{folder}: chat template does not compile: {error}") from error
    return Text(
        tokenizer,
        eos=[token for token in ids if token is not None],
        bos=_start_token(tokenizer, special, generation),
        template=template,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ModelError(f"{path}: not JSON: {error}") from error
    return value


def _content(token: Any) -> str | None:
    """Return the text of a special token, written as a string or as an object with `content`."""
    content: str | None = token.get("content") if isinstance(token, dict) else token
    return content


def _start_token(
    tokenizer: Tokenizer, special: Mapping[str, str], generation: Mapping[str, Any]
) -> int | None:
    """Return the id that begins a text: the tokenizer's, else the one generation is told."""
    if "bos_token" in special:
        return tokenizer.token_to_id(special["bos_token"])
    bos: int | None = generation.get("bos_token_id")
    return bos


def _template_source(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return the template: its own file, one string, or the `default` of several named ones."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text()
    source = config.get("chat_template")
    if isinstance(source, list):
        return {entry["name"]: entry["template"] for entry in source}.get("default")
    return source


def _byte_alphabet() -> dict[str, int]:
    """Return the byte of each letter in which byte-level BPE writes its tokens.

    Printable Latin-1 bytes stand for themselves, the others follow from U+0100 on, in order.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(0x100 + place): byte for place, byte in enumerate(rest)
    }


_BYTE_OF = _byte_alphabet()
