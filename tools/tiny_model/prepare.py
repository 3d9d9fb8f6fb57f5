"""Texts to token ids: one small file that travels to the GPU.

    python prepare.py WORK_FOLDER TOKENIZER_FOLDER OUT.xz

The file is an xz-compressed `.npz` (see `load`). One document in a hundred is held out. Documents
begin with <|bos|> and end with <|eos|>, or <|end|> for conversations.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jinja2 import Template
from tokenizer import CHAT_TEMPLATE, EOS
from tokenizers import Tokenizer


@dataclass(frozen=True)
class Corpus:
    """Token ids of all documents end to end; where each starts; how often it is used."""

    tokens: np.ndarray
    starts: np.ndarray
    weights: np.ndarray
    held_tokens: np.ndarray
    held_bytes: int
    sentence_ends: np.ndarray

    def epoch(self, rng: np.random.Generator) -> np.ndarray:
        """All documents, by weight, in a new order."""
        order = np.repeat(np.arange(len(self.weights)), self.weights)
        rng.shuffle(order)
        ends = np.append(self.starts[1:], len(self.tokens))
        return np.concatenate([self.tokens[self.starts[i] : ends[i]] for i in order])


def save(corpus: Corpus, path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **vars(corpus))
    path.write_bytes(lzma.compress(buffer.getvalue(), preset=6))


def load(path: Path) -> Corpus:
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
        return Corpus(**{k: arrays[k] for k in arrays.files})


def texts(work: Path) -> Iterator[tuple[str, int, bool]]:
    """Text to encode, weight, and whether it is plain (not a conversation)."""
    for line in (work / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        yield document["text"], document["weight"], True
    template = Template(CHAT_TEMPLATE)
    for line in (work / "chat.jsonl").read_text(encoding="utf-8").splitlines():
        yield template.render(bos_token="", **json.loads(line)), 1, False


def build(work: Path, tokenizer: Tokenizer) -> Corpus:
    rows = list(texts(work))
    encoded = tokenizer.encode_batch([text for text, _, _ in rows])
    train, weights, held, held_bytes, chat = [], [], [], 0, 0
    for (text, weight, is_plain), encoding in zip(rows, encoded, strict=True):
        ids = [*encoding.ids, EOS] if is_plain else encoding.ids
        if zlib.crc32(text.encode()) % 100 == 0:
            if is_plain:
                held.append(np.array(ids, dtype=np.uint16))
                held_bytes += len(text.encode())
        else:
            train.append(np.array(ids, dtype=np.uint16))
            weights.append(weight)
            chat += 0 if is_plain else len(ids)
    sizes = np.array([len(ids) for ids in train])
    print(
        f"{sizes.sum() / 1e6:.1f} M tokens, {chat / 1e6:.1f} M of them conversations, "
        f"{(sizes * weights).sum() / 1e6:.1f} M in an epoch; "
        f"held out {sum(map(len, held)) / 1e6:.2f} M tokens, {held_bytes / 1e6:.2f} MB"
    )
    starts = np.append(0, np.cumsum(sizes)[:-1])
    ends = [tokenizer.token_to_id(mark) for mark in (".", "?", "!", ";", '."', "ĊĊ")]
    return Corpus(
        np.concatenate(train),
        starts,
        np.array(weights),
        np.concatenate(held),
        held_bytes,
        np.array(ends),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    save(build(args.work, tokenizer), args.out)


if __name__ == "__main__":
    main()
