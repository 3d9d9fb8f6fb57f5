"""Keep tokens that the corpus hardly contains out of what the model writes.

    python quiet.py CORPUS.xz FOLDER

The loop loss of `train.py` takes probability from repetitions without saying where it should go,
and single bytes that no text contains are where it went. Here the embeddings of such tokens alone
are trained for a moment, on states of the model while it reads and while it repeats itself, until
none of them is likely. Nothing else changes; a CPU does it in a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from export import read, write
from loops import Loops
from model import Model
from prepare import Corpus, load
from torch import Tensor

RARE = 20  # seen fewer times in the corpus


@torch.no_grad()
def states(model: Model, corpus: Corpus, length: int = 512, rows: int = 48) -> Tensor:
    """What the output matrix sees: half the rows are held-out text, half are loops."""
    text = torch.from_numpy(corpus.held_tokens[: rows * length].astype(np.int64))
    spans = Loops(corpus.tokens, corpus.sentence_ends.tolist())
    loops = torch.from_numpy(spans.draw(rows, length)[0])[:, :length]
    ids = torch.cat([text.view(rows, length), loops])
    seen: list[Tensor] = []
    hook = model.norm.register_forward_hook(lambda _m, _i, out: seen.append(out.flatten(0, 1)))
    for part in ids.split(8):
        model(part)
    hook.remove()
    return torch.cat(seen)


def quiet(model: Model, corpus: Corpus, steps: int = 150) -> tuple[float, float]:
    """The largest chance of a rare token in any state, before and after."""
    counts = np.bincount(corpus.tokens, minlength=model.shape.vocab_size)
    rare = torch.from_numpy(counts < RARE)
    seen, weight = states(model, corpus), model.embed_tokens.weight.detach()
    usual = torch.cat([(h @ weight[~rare].T).logsumexp(-1) for h in seen.split(4096)])
    rows = weight[rare].clone().requires_grad_()
    rule = torch.optim.Adam([rows], lr=0.03)
    chances = []
    for _ in range(steps):
        gap = (seen @ rows.T).logsumexp(-1) - usual  # log odds of any rare token
        chances.append(gap.sigmoid().max().item())
        loss = torch.nn.functional.softplus(gap + 6).mean() * 10
        rule.zero_grad()
        loss.backward()
        rule.step()
    with torch.no_grad():
        model.embed_tokens.weight[rare] = rows
    return chances[0], chances[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    model = read(args.folder)
    before, after = quiet(model, load(args.corpus))
    print(f"largest chance of a rare token: {before:.3f} before, {after:.6f} after")
    write(model, args.folder)


if __name__ == "__main__":
    main()
