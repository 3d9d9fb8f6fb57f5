"""Logs made of the pieces that make logs difficult."""

from __future__ import annotations

from hypothesis import strategies as st

from panel.logs.grammars.builtin import BUILTIN
from panel.logs.grammars.native import PLAIN
from panel.logs.grammars.sglang import SGLANG
from panel.logs.grammars.vllm import VLLM

HEADS = {
    BUILTIN: ["[2026-01-31 12:00:00.123 TP{0} serving] INFO ", "[2026-01-31 12:00:00.123] ERROR "],
    SGLANG: ["[2026-07-12 13:55:29 TP{0} EP{0}] ", "[2026-07-12 13:55:29] "],
    VLLM: [
        "(Worker pid={0}) INFO 07-12 13:55:29 [a.py:1] ",
        "(Worker_TP{0} pid={0}) WARNING 07-12 13:55:29 [a.py:1] ",
        "(Worker_TP{0} pid={0}) ",
        "(EngineCore pid=99) ERROR 07-12 13:55:29 [a.py:1] ",
    ],
    PLAIN: ["[rank{0}]:[E421 22:56:09.123 a.cpp:5] ", "host:{0}:1 [0] NCCL WARN "],
}
TEXTS = [
    "Decode batch, #running 3",
    "Traceback (most recent call last):",
    '  File "a.py", line 7, in f',
    "KeyError: 7",
    "SIGQUIT received",
    "UserWarning: old",
    "needle",
    "NEEDLE and pin",
    "nee\x1b[31mdle",
    "two\tneedles",
    "ſtraße KELVIN \u212a needle",
    "x" * 300,
    "",
    "\x00\x07 odd",
    "half \xff",
    " 42%|####    | 3/7 [00:01<00:02, 2.1it/s]",
    "\r 50%|####    | 3/7 [00:01<00:02, 2.1it/s]\r 60%|#### | 4/7 [00:01<00:02, 2.1it/s]",
]
GRAMMARS = st.sampled_from(list(HEADS))


@st.composite
def logs(draw: st.DrawFn) -> tuple[object, bytes]:
    """A grammar and a log in it, mostly; the last line may lack its newline."""
    grammar = draw(GRAMMARS)
    heads = [head.format(rank) for head in HEADS[grammar] for rank in range(3)]
    part = st.tuples(st.sampled_from(["", *heads]), st.sampled_from(TEXTS)).map("".join)
    line = st.lists(part, min_size=1, max_size=2).map("".join)
    text = "\n".join(draw(st.lists(line, max_size=25))) + draw(st.sampled_from(["", "\n"]))
    return grammar, text.replace("\xff", "\udcff").encode("utf-8", "surrogateescape")
