"""Train the model's draft head against the clock and write it as an EAGLE-3 folder.

    python draft.py TOKENS.xz MODEL_FOLDER OUT_FOLDER --seconds 140

The head learns to say what the model says, on texts and on what the model itself makes of their
beginnings. As in the training-time test of EAGLE-3 it is unrolled over its own features: step n
sees the true features up to n positions back and its own after them, as it will when it drafts.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from draft_head import AUX_LAYERS, DraftHead, HeadShape, Memory, write
from draft_text import continue_texts, features
from export import read
from model import Model
from prepare import Corpus, load
from torch import Tensor, nn
from train import Muon, rate

STEPS = 4
"""Unrolled steps of the training; a chain of three uses the first three."""
CHAIN = 3
TEMPERATURES = (0.0, 0.7, 1.0)


def prompts(corpus: Corpus, rows: int, length: int, rng: np.random.Generator) -> Tensor:
    """Beginnings of documents that are long enough."""
    ends = np.append(corpus.starts[1:], len(corpus.tokens))
    fitting = corpus.starts[ends - corpus.starts > length]
    begins = rng.choice(fitting, rows)
    return torch.from_numpy(corpus.tokens[begins[:, None] + np.arange(length)].astype(np.int64))


def own_texts(
    model: Model, corpus: Corpus, args: argparse.Namespace, device: str, until: float
) -> Tensor:
    """What the model writes, (rows, length), for as long as there is time; one round at least."""
    rng, rounds = np.random.default_rng(args.seed), []
    temperatures = torch.tensor(TEMPERATURES, device=device).repeat(args.rows // 3 + 1)[: args.rows]
    while not rounds or time.monotonic() < until:
        begin = int(rng.choice((8, 16, 32)))
        first = prompts(corpus, args.rows, begin, rng).to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            rounds.append(continue_texts(model, first, args.length + 1, temperatures).cpu())
    return torch.cat(rounds)


def batches(corpus: Corpus, own: Tensor, args: argparse.Namespace, device: str) -> Iterator[Tensor]:
    """Endless windows (batch, length + 1): one part texts, the other the model's own."""
    rng = np.random.default_rng(args.seed)
    texts = int(args.batch * args.texts)
    width = args.length + 1
    while True:
        begins = rng.integers(0, len(corpus.tokens) - width, texts)
        human = corpus.tokens[begins[:, None] + np.arange(width)].astype(np.int64)
        chosen = torch.from_numpy(rng.integers(0, len(own), args.batch - texts))
        yield torch.cat([torch.from_numpy(human), own[chosen]]).to(device, non_blocking=True)


def frequent(corpus: Corpus, own: Tensor, size: int, vocab: int) -> Tensor:
    """The token ids that come most often, ascending."""
    counts = np.bincount(corpus.tokens, minlength=vocab) / len(corpus.tokens)
    counts += np.bincount(own.flatten().numpy(), minlength=vocab) / own.numel()
    print(f"the reduced vocabulary covers {np.sort(counts)[-size:].sum() / counts.sum():.4f}")
    return torch.from_numpy(np.sort(np.argsort(counts)[-size:]))


def unrolled(
    head: DraftHead, model: Model, ids: Tensor, steps: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield (step, logits of the head, logits of the model) of positions 1 to the last but one.

    Position 0 has no feature before it; row r is position r + 1. Rows below the step are void.
    """
    with torch.no_grad():
        aux, target = features(model, ids[:, :-1])
        embedded = model.embed_tokens(ids[:, 1:-1])
    hidden = head.fc(aux[:, :-1])
    memory = Memory([], [])
    for step in range(steps):
        hidden = head.midlayer(embedded, hidden, memory)
        yield step, head.logits(hidden), target[:, 1:]
        hidden = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)


def loss_of(head: DraftHead, model: Model, ids: Tensor) -> Tensor:
    """Cross entropy with the model's sharpened distribution: only the best token is drafted."""
    total = ids.new_zeros((), dtype=torch.float32)
    for step, logits, target in unrolled(head, model, ids, STEPS):
        wanted = (target[:, step:, head.kept].float() * 2).softmax(-1)
        said = logits[:, step:].float().log_softmax(-1)
        total = total - 0.8**step * (wanted * said).sum(-1).mean()
    return total


@torch.no_grad()
def hits(head: DraftHead, model: Model, ids: Tensor) -> Tensor:
    """Whether the nth token of a draft that begins at a row is the text's: (batch, rows, CHAIN)."""
    found = []
    for step, logits, _ in unrolled(head, model, ids, CHAIN):
        right = head.kept[logits.argmax(-1)] == ids[:, 2:]
        found.append(torch.cat([right[:, step:], right.new_zeros(len(ids), step)], dim=1))
    return torch.stack(found, dim=-1)


def acceptance(found: np.ndarray, begin: int) -> tuple[float, list[float]]:
    """Mean tokens a cycle along each row from `begin` on, and the share accepted by place."""
    cycles, by_place = 0, np.zeros(CHAIN)
    tokens = 0
    for row in found:
        at = begin
        while at + CHAIN < len(row):
            accepted = int(row[at].cumprod().sum())
            by_place[:accepted] += 1
            cycles, tokens, at = cycles + 1, tokens + accepted + 1, at + accepted + 1
    return tokens / cycles, (by_place / cycles).round(4).tolist()


@torch.no_grad()
def evaluate(
    head: DraftHead, model: Model, corpus: Corpus, rows: int, device: str
) -> dict[str, object]:
    """Tokens a cycle on the model's continuations of held-out texts, by temperature."""
    begin, length = 64, 193
    starts = np.flatnonzero(corpus.held_tokens[: -2 * begin] == 0)[:rows]
    window = starts[:, None] + np.arange(begin)
    first = torch.from_numpy(corpus.held_tokens[window].astype(np.int64)).to(device)
    facts: dict[str, object] = {"openings": len(first), "chain": CHAIN}
    torch.manual_seed(1)
    for temperature in (0.0, 0.7):
        temperatures = torch.full((len(first),), temperature, device=device)
        ids = continue_texts(model, first, length, temperatures)
        length_, by_place = acceptance(hits(head, model, ids).cpu().numpy(), begin - 2)
        facts[f"temperature {temperature}"] = {
            "tokens a cycle": round(length_, 3),
            "accepted": by_place,
        }
    return facts


def optimizers(head: DraftHead, lr: float) -> list[torch.optim.Optimizer]:
    matrices = [p for n, p in head.named_parameters() if p.ndim == 2 and n != "lm_head.weight"]
    rest = [p for n, p in head.named_parameters() if p.ndim != 2 or n == "lm_head.weight"]
    adam = torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.95), weight_decay=0.01)
    return [Muon(matrices, lr, 0.05), adam]


def train(args: argparse.Namespace) -> dict[str, object]:
    begun = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    corpus, model = load(args.corpus), read(args.model).to(device)
    model.requires_grad_(False)
    own = own_texts(model, corpus, args, device, begun + args.seconds * args.writing)
    print(
        f"{time.monotonic() - begun:.1f} s: the model wrote {own.numel() / 1e6:.2f} M tokens",
        flush=True,
    )
    shape = HeadShape(draft_vocab_size=args.vocab)
    head = DraftHead(shape, frequent(corpus, own, args.vocab, shape.vocab_size))
    head.start_from(model.cpu())
    head, model = head.to(device), model.to(device)
    rules = optimizers(head, args.lr)
    started, until = time.monotonic(), begun + args.seconds * (1 - args.measuring)
    step, seen = 0, 0
    for step, ids in enumerate(batches(corpus, own, args, device)):
        progress = (time.monotonic() - started) / (until - started)
        if progress >= 1:
            break
        for group in (group for rule in rules for group in rule.param_groups):
            group["lr"] = args.lr * rate(progress)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = loss_of(head, model, ids)
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for rule in rules:
            rule.step()
            rule.zero_grad(set_to_none=True)
        seen += ids.numel()
        if step % args.every == 0:
            now = time.monotonic() - begun
            print(
                f"{now:6.1f} s  step {step:5}  {seen / 1e6:7.2f} M tokens  loss {loss.item():.4f}",
                flush=True,
            )
            assert math.isfinite(loss.item())
    write(head, args.out)
    facts: dict[str, object] = {
        "steps": step, "tokens_seen": seen, "own_tokens": own.numel(),
        "aux_layers": list(AUX_LAYERS), "device": device, "lr": args.lr,
        **evaluate(head.float(), model, corpus, args.openings, device),
        "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip
    (args.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, metavar="tokens")
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=140, help="wall clock, all included")
    parser.add_argument("--writing", type=float, default=0.2, help="share of it for own texts")
    parser.add_argument("--measuring", type=float, default=0.08, help="share of it for the end")
    parser.add_argument("--rows", type=int, default=4096, help="own texts written at a time")
    parser.add_argument("--batch", type=int, default=128, help="windows in a step")
    parser.add_argument("--texts", type=float, default=0.4, help="share of them that are texts")
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    parser.add_argument("--vocab", type=int, default=2432, help="reduced vocabulary")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--openings", type=int, default=256, help="held-out texts to measure on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=100, help="steps between two lines")
    args = parser.parse_args()
    print(json.dumps(train(args)))


if __name__ == "__main__":
    main()
