"""How the logs of engines look, one grammar a file, and which one a log is written in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from panel.logs.grammars.builtin import BUILTIN
from panel.logs.grammars.kernel import KERNEL
from panel.logs.grammars.native import PLAIN
from panel.logs.grammars.sglang import SGLANG
from panel.logs.grammars.tensorrt import TENSORRT
from panel.logs.grammars.torch import TORCH
from panel.logs.grammars.vllm import VLLM
from panel.logs.grammars.wrappers import BY_NAME, WRAPPERS, Wrapper, strip
from panel.logs.prefix import Grammar

_ENGINES = (BUILTIN, VLLM, SGLANG)
_OTHERS = (TENSORRT, TORCH, KERNEL)
_BY_NAME = {grammar.name: grammar for grammar in (*_ENGINES, *_OTHERS, PLAIN)}
_WRAPPED_SHARE = 0.6
"""Of the lines that a wrapper must stand on: shells print lines of their own below it."""
_DEEPEST = 3


class Dialect(NamedTuple):
    """How one log is written."""

    grammar: Grammar = BUILTIN
    wrappers: tuple[Wrapper, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names from which `named` makes it again, the grammar's first."""
        return (self.grammar.name, *(wrapper.name for wrapper in self.wrappers))


def named(names: Sequence[str]) -> Dialect:
    """Return the dialect with these names. Raises KeyError."""
    return Dialect(_BY_NAME[names[0]], tuple(BY_NAME[name] for name in names[1:]))


def detect(lines: Iterable[str]) -> Dialect:
    """Return how a log is written whose first lines, clean, these are; without any sign, plain."""
    texts = [line for line in lines if line.strip()]
    wrappers: tuple[Wrapper, ...] = ()
    for _ in range(_DEEPEST):
        wrapper = _wrapper(texts)
        if wrapper is None:
            break
        wrappers += (wrapper,)
        texts = [text[strip(text, (wrapper,)).end :] for text in texts]
    # Libraries write much below an engine: its few lines say more than their many.
    engine = _most(_ENGINES, [text for text in texts if PLAIN(text) is None])
    return Dialect(engine or _most(_OTHERS, texts) or PLAIN, wrappers)


def _most(grammars: Sequence[Grammar], texts: Sequence[str]) -> Grammar | None:
    """Return the grammar that reads most of the lines, None where none reads any."""
    counts = [sum(grammar(text) is not None for text in texts) for grammar in grammars]
    return grammars[counts.index(max(counts))] if any(counts) else None


def _wrapper(texts: Sequence[str]) -> Wrapper | None:
    for wrapper in WRAPPERS:
        found = sum(wrapper.pattern.match(text) is not None for text in texts)
        if texts and found >= _WRAPPED_SHARE * len(texts):
            return wrapper
    return None
