"""Train the tokenizer: byte-level BPE, 4096 tokens, any UTF-8 text round-trips.

    python tokenizer.py CORPUS.jsonl OUT_FOLDER

CORPUS.jsonl is what `fetch.py` writes: one document a line, `{"source": ..., "text": ...}`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCAB = 4096
SPECIAL = ["<|bos|>", "<|eos|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
BOS, EOS, PAD, SYSTEM, USER, ASSISTANT, END = range(len(SPECIAL))

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def documents(corpus: Path, share: float = 1.0) -> Iterator[str]:
    """The texts of a corpus; `share` < 1 reads only that part of the large sources."""
    seen: dict[str, int] = {}
    with corpus.open(encoding="utf-8") as lines:
        for line in lines:
            document = json.loads(line)
            count = seen[document["source"]] = seen.get(document["source"], 0) + 1
            if count < 200 or count % 100 < share * 100:
                yield document["text"]


def train(texts: Iterator[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=[AddedToken(token, special=True) for token in SPECIAL],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", pair="<|bos|> $A $B", special_tokens=[("<|bos|>", BOS)]
    )
    assert tokenizer.get_vocab_size() == VOCAB
    assert [tokenizer.token_to_id(token) for token in SPECIAL] == list(range(len(SPECIAL)))
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "pad_token": "<|pad|>",
        "additional_special_tokens": ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="part of large sources to read")
    args = parser.parse_args()
    save(train(documents(args.corpus, args.share)), args.out)


if __name__ == "__main__":
    main()
