"""A short second training, on what the model itself writes: fewer loops.

    python polish.py CORPUS.xz FOLDER --seconds 170

Runs on a CPU. Each round the model continues openings taken from the corpus, always with its
likeliest token. Where that repeats four tokens that stood there before, the repetition is made
less likely (sequence-level unlikelihood, Welleck et al., 2019, "Neural text generation with
unlikelihood training"); so are tokens that the corpus hardly contains. Ordinary text in the same
step keeps the model what it was.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from export import read, write
from model import Model
from prepare import Corpus, load
from tokenizer import EOS, PAD
from torch import Tensor
from train import held_out, text_loss
from transformers import DeepseekV3ForCausalLM

RARE = 20  # tokens seen fewer times in the corpus


def openings(corpus: Corpus, rows: int, length: int, rng: np.random.Generator) -> Tensor:
    """The first tokens of random documents (they begin after an end), as prompts."""
    starts = rng.choice(corpus.starts, size=rows)
    at = (starts[:, None] + np.arange(length)).clip(max=len(corpus.tokens) - 1)
    return torch.from_numpy(corpus.tokens[at].astype(np.int64))


def write_on(model: Model, prompts: Tensor, length: int) -> Tensor:
    """Prompts and their likeliest continuations."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        write(model, Path(folder), torch.float32)
        writer = DeepseekV3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        how = {"do_sample": False, "temperature": None, "top_p": None, "eos_token_id": EOS}
        mask = torch.ones_like(prompts)
        return writer.generate(prompts, attention_mask=mask, max_new_tokens=length, **how)


def repeated(ids: Tensor, grams: int = 4) -> Tensor:
    """Whether each token completes a run of `grams` tokens that occurred earlier in its row."""
    marks = torch.zeros_like(ids, dtype=torch.bool)
    for row, tokens in enumerate(ids.tolist()):
        seen: set[tuple[int, ...]] = set()
        for end in range(grams, len(tokens) + 1):
            gram = tuple(tokens[end - grams : end])
            marks[row, end - 1] = gram in seen and tokens[end - 1] != PAD
            seen.add(gram)
    return marks


def unlikely(logits: Tensor, ids: Tensor, marks: Tensor, rare: Tensor) -> tuple[Tensor, Tensor]:
    """Losses that grow with the probability of marked tokens, and of rare ones anywhere."""
    chance = logits[:, :-1].softmax(-1)
    again = chance.gather(-1, ids[:, 1:, None])[..., 0]
    loops = -torch.log1p(-again.clamp(max=1 - 1e-4))[marks[:, 1:]]
    strays = -torch.log1p(-chance[..., rare].sum(-1).clamp(max=1 - 1e-4))
    return loops.sum() / max(1, loops.numel()), strays.mean()


@torch.no_grad()
def blend(model: Model, old: Model, keep: float) -> None:
    """Go only part of the way: the mean of old and new weights loops little and forgets less."""
    for new, was in zip(model.parameters(), old.parameters(), strict=True):
        new.lerp_(was, 1 - keep)


def polish(args: argparse.Namespace) -> dict[str, float]:
    begin, rng = time.monotonic(), np.random.default_rng(0)
    corpus, model = load(args.corpus), read(args.folder)
    counts = np.bincount(corpus.tokens, minlength=model.shape.vocab_size)
    rare = torch.from_numpy(np.flatnonzero(counts < RARE))
    small = Corpus(**{**vars(corpus), "held_tokens": corpus.held_tokens[:40_000]})
    rule = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0)
    before, first, share, rounds = held_out(model, small, 500, "cpu")[0], 0.0, 0.0, 0
    while (passed := time.monotonic() - begin) < args.seconds:
        own = write_on(
            model, openings(corpus, args.rows, int(rng.integers(4, 12)), rng), args.write
        )
        marks = repeated(own)
        share = marks.sum().item() / (own != PAD).sum().item()
        first = first or share
        for _ in range(args.updates):
            text = openings(corpus, args.batch, args.length + 1, rng)
            kept = text_loss(model(text[:, :-1]), text[:, 1:])
            loops, strays = unlikely(model(own), own, marks, rare)
            rule.param_groups[0]["lr"] = args.lr * min(1.0, 2 * (1 - passed / args.seconds))
            (kept + args.weight * loops + strays).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            rule.step()
            rule.zero_grad()
        rounds += 1
        print(
            f"{passed:5.0f} s  repeated {share:.3f}  text {kept.item():.3f}  loops "
            f"{loops.item():.3f}  strays {strays.item():.4f}",
            flush=True,
        )
    blend(model, read(args.folder), args.keep)
    after = held_out(model, small, 500, "cpu")[0]
    write(model, args.out or args.folder)
    return {
        "rounds": rounds,
        "repeated_before": round(first, 3),
        "repeated_after": round(share, 3),
        "loss_before": round(before, 4),
        "loss_after": round(after, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="where to write; FOLDER itself by default")
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--rows", type=int, default=32, help="continuations in a round")
    parser.add_argument("--write", type=int, default=100, help="tokens in a continuation")
    parser.add_argument("--updates", type=int, default=1, help="steps in a round")
    parser.add_argument("--batch", type=int, default=12, help="rows of text in a step")
    parser.add_argument("--length", type=int, default=256, help="tokens in a row of text")
    parser.add_argument("--keep", type=float, default=0.65, help="share of the new weights")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--weight", type=float, default=0.2, help="of the loops' loss")
    print(json.dumps(polish(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
