"""Train the model against the clock and write it as a Hugging Face folder.

    python train.py CORPUS.xz OUT_FOLDER --seconds 540

The learning rate follows the share of the time that has passed: a short warm-up, a plateau, then a
linear decay to zero. Matrices are updated by Muon, everything else by AdamW.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from export import write
from loops import Loops, loop_loss
from model import Model, Shape
from prepare import Corpus, load
from torch import Tensor, nn


def orthogonal(update: Tensor, steps: int = 5) -> Tensor:
    """Newton-Schulz iteration: a batch of matrices with all singular values near one."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal; scaled so that AdamW's learning rates fit.

    Matrices of one shape (also the experts of a layer) are stacked and updated together.
    """

    def __init__(self, params: list[nn.Parameter], lr: float, decay: float) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = {}
            for param in group["params"]:
                shapes.setdefault(param.shape[-2:], []).append(param)
            for shape, params in shapes.items():
                moved = []
                for param in params:
                    state = self.state[param]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(param)
                    momentum = state["momentum"].lerp_(param.grad, 1 - group["momentum"])
                    moved.append(param.grad.lerp(momentum, group["momentum"]).view(-1, *shape))
                step = orthogonal(torch.cat(moved)).float() * (0.2 * math.sqrt(max(shape)))
                parts = step.split([len(m) for m in moved])
                for param, part in zip(params, parts, strict=True):
                    param.mul_(1 - group["lr"] * group["decay"])
                    param.add_(part.view_as(param), alpha=-group["lr"])


def optimizers(model: Model, lr: float, decay: float) -> list[torch.optim.Optimizer]:
    matrices, rest = [], []
    for name, param in model.named_parameters():
        matrix = param.ndim >= 2 and "embed" not in name and "mlp.gate.weight" not in name
        (matrices if matrix else rest).append(param)
    fused = rest[0].is_cuda
    adam = torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.95), weight_decay=0.01, fused=fused)
    return [Muon(matrices, lr, decay), adam]


def batches(corpus: Corpus, size: int, length: int, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (input, target) pairs; every epoch is shuffled and packed anew."""
    rng = np.random.default_rng(0)
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(corpus.epoch, rng)
        while True:
            stream = torch.from_numpy(coming.result().astype(np.int32)).to(device)
            coming = ahead.submit(corpus.epoch, rng)
            for start in range(0, len(stream) - size * length, size * length):
                window = stream[start : start + size * length + 1].long()
                yield window[:-1].view(size, length), window[1:].view(size, length)


def text_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def loss_of(model: Model, ids: Tensor, targets: Tensor, repeats: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of the texts and of the looping rows, which come last (`repeats` describes them)."""
    texts = len(ids) - repeats.shape[1]
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        logits = model(ids)
    loops = loop_loss(logits[texts:].float(), targets[texts:], repeats)
    return text_loss(logits[:texts], targets[:texts]), loops


@torch.no_grad()
def held_out(model: Model, corpus: Corpus, length: int, device: str) -> tuple[float, float]:
    """Loss per token and bits per byte on the held-out documents."""
    held = torch.from_numpy(corpus.held_tokens.astype(np.int64)).to(device)
    rows = (len(held) - 1) // length
    total = 0.0
    for row in range(0, rows, 32):
        window = held[row * length : min(row + 32, rows) * length + 1]
        ids, targets = window[:-1].view(-1, length), window[1:].view(-1, length)
        with torch.autocast(device, dtype=torch.bfloat16):
            total += text_loss(model(ids), targets).item() * len(ids)
    loss = total / rows
    return loss, loss * len(held) / math.log(2) / int(corpus.held_bytes)


def rate(progress: float, warmup: float = 0.01, decay: float = 0.4) -> float:
    return max(0.0, min(progress / warmup, (1 - progress) / decay, 1.0))


def train(args: argparse.Namespace) -> dict[str, float]:
    begin = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    corpus = load(args.corpus)
    model = Model(Shape()).to(device)
    rules = optimizers(model, args.lr, args.decay)
    step_loss = torch.compile(loss_of) if args.compile else loss_of
    spans = Loops(corpus.tokens, corpus.sentence_ends.tolist(), args.seed)
    started, step, progress, texts = 0.0, 0, 0.0, args.batch - args.loops
    for step, (ids, targets) in enumerate(batches(corpus, texts, args.length, device)):
        now = time.monotonic()
        if step == 3:  # compilation is over
            started = now
        if step > 3:
            progress = (now - started) / (begin + args.seconds - started)
        if progress >= 1:
            break
        for rule in rules:
            for group in rule.param_groups:
                group["lr"] = args.lr * rate(progress) if step > 3 else 1e-5
        repeated, repeats = (torch.from_numpy(a) for a in spans.draw(args.loops, args.length))
        ids = torch.cat([ids, repeated[:, :-1].to(device)])
        targets = torch.cat([targets, repeated[:, 1:].to(device)])
        loss, loop = step_loss(model, ids, targets, repeats.to(device))
        (loss + args.loop_weight * loop).backward()
        for rule in rules:
            rule.step()
            rule.zero_grad(set_to_none=True)
        with torch.no_grad():
            for router in model.routers():
                wrong = router.load.mean() - router.load
                router.e_score_correction_bias += args.balance * rate(progress) * wrong.sign()
        if step % args.every == 0:
            seen = (step + 1) * texts * args.length / 1e6
            print(
                f"{now - begin:6.1f} s  step {step:6}  {seen:8.1f} M tokens  loss {loss.item():.4f}"
                f"  loops {loop.item():.3f}"
                f"  load {min(r.load.min().item() for r in model.routers()):.3f}"
                f"..{max(r.load.max().item() for r in model.routers()):.3f}",
                flush=True,
            )
        if args.check and step and step % args.check == 0:
            now_loss, now_bits = held_out(model, corpus, args.length, device)
            print(f"held out: {now_loss:.4f} nats/token, {now_bits:.4f} bits/byte", flush=True)
            write(model, args.out)
    final_loss, bits = held_out(model, corpus, args.length, device)
    write(model, args.out)
    facts = {
        "steps": step,
        "tokens_seen": step * texts * args.length,
        "tokens_unique": len(corpus.tokens),
        "seconds": round(time.monotonic() - begin, 1),
        "held_out_loss": round(final_loss, 4),
        "held_out_bits_per_byte": round(bits, 4),
        "lr": args.lr,
    }
    (args.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=540, help="wall clock, all included")
    parser.add_argument("--batch", type=int, default=128, help="sequences in a step")
    parser.add_argument("--length", type=int, default=1024, help="tokens in a sequence")
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--decay", type=float, default=0.1, help="weight decay of the matrices")
    parser.add_argument("--balance", type=float, default=1e-3, help="step of the router's bias")
    parser.add_argument("--loops", type=int, default=8, help="looping rows in a step (loops.py)")
    parser.add_argument("--loop-weight", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=100, help="steps between two lines")
    parser.add_argument("--check", type=int, default=0, help="steps between two checkpoints")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    print(train(parser.parse_args()))


if __name__ == "__main__":
    main()
