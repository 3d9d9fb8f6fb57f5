"""Readers: the file of a package in, plain paragraphs out.

A reader yields documents. A document is a list of paragraphs without line breaks inside (verse
and plays keep theirs). Cleaning that all sources share is in `tidy` and `prose`.
"""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from lxml import html as lxml_html

Document = list[str]

ASCII = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u00a0": " ",
        "\u2026": "...", "\u2013": "-", "\u2014": "--", "\u2212": "-", "\u00b6": "",
        "\u200b": "", "\ufeff": "", "\u00ad": "", "\u2011": "-",
    }
)  # fmt: skip
GUTENBERG = re.compile(r"project gutenberg|\bgutenberg\b|\betexts?\b", re.IGNORECASE)


def tidy(text: str) -> str:
    """One paragraph on one line, with ASCII quotes and dashes."""
    return re.sub(r"\s+", " ", text.translate(ASCII)).strip()


def prose(text: str, words: int = 6) -> bool:
    """Whether a paragraph is running text: enough words, mostly letters, no boilerplate."""
    if len(text.split()) < words or GUTENBERG.search(text):
        return False
    letters = sum(c.isalpha() or c == " " for c in text)
    ascii_only = sum(c.isascii() for c in text)
    return letters > 0.85 * len(text) and ascii_only > 0.97 * len(text)


def blocks(text: str) -> Iterator[str]:
    """The paragraphs of hard-wrapped text."""
    yield from re.split(r"\n\s*\n", text.replace("\r", ""))


def pieces(paragraphs: Document, size: int = 60) -> Iterator[Document]:
    """A long work as documents of some chapters, so that a split by document is meaningful."""
    for start in range(0, len(paragraphs), size):
        yield paragraphs[start : start + size]


def plain(path: Path) -> Iterator[Document]:
    """A book or speech as plain text."""
    text = path.read_text(encoding="utf-8", errors="replace")
    paragraphs = [tidy(block.replace("_", "")) for block in blocks(text)]
    yield from pieces([p for p in paragraphs if prose(p, 3)])


def play(path: Path) -> Iterator[Document]:
    """A play in Markdown: speeches keep their lines."""
    text = re.sub(r"[*_]", "", path.read_text(encoding="utf-8"))
    speeches = []
    for block in blocks(text):
        lines = [tidy(line) for line in block.splitlines() if line.strip()]
        if lines and not lines[0].startswith("#"):
            speeches.append("\n".join(lines))
    yield from pieces(speeches)


def r_lines(path: Path) -> Iterator[Document]:
    """Character vectors of an R lazy-load database: blocks of length, zlib data; then strings."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        stream = zlib.decompressobj()
        raw = stream.decompress(data[at + 4 :])
        at = len(data) - len(stream.unused_data)
        lines, here = [], raw.find(b"\x00\x04\x00\x09")
        while 0 <= here < len(raw) - 8 and raw[here : here + 4] == b"\x00\x04\x00\x09":
            (length,) = struct.unpack(">i", raw[here + 4 : here + 8])
            lines.append(raw[here + 8 : here + 8 + length].decode("utf-8", "replace"))
            here += 8 + length
        paragraphs = [tidy(block.replace("_", "")) for block in blocks("\n".join(lines))]
        yield from pieces([p for p in paragraphs if prose(p, 3)])


def sword(path: Path) -> Iterator[Document]:
    """A SWORD module: zlib blocks (found through the index beside them) of XML."""
    index = path.with_suffix(path.suffix[:-1] + "s").read_bytes()
    data = path.read_bytes()
    for start, size, _ in struct.iter_unpack("<III", index):
        text = zlib.decompress(data[start : start + size]).decode("utf-8", "replace")
        text = re.sub(r"<(note|title|figure)\b[^>]*>.*?</\1>", " ", text, flags=re.DOTALL)
        text = re.sub(r"</?(p|div|lb|br|chapter|list|item|lg)\b[^>]*>", "\n\n", text)
        text = re.sub(r"<[^>]+>|&[a-z]+;|\x00", " ", text)
        paragraphs = [re.sub(r" ([,.;:?!])", r"\1", tidy(block)) for block in blocks(text)]
        yield from pieces([p for p in paragraphs if prose(p)])


def dictd(path: Path) -> Iterator[Document]:
    """A dictd dictionary: headwords at the margin, their text indented or below."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
    text = re.sub(r"[{}]", "", text)
    for entry in re.split(r"\n(?=\S)", text):
        paragraphs = [tidy(block) for block in blocks(entry)]
        kept = [p for p in paragraphs if prose(p, 4)]
        if kept and not entry.startswith("00"):
            yield kept


WORDNET_KINDS = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}


def glosses(path: Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """Word, part of speech, definition and example sentences of each WordNet synset."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        left, bar, gloss = line.partition(" | ")
        if not bar or line.startswith("  "):
            continue
        fields = left.split()
        word = re.sub(r"\(.*?\)$", "", fields[4]).replace("_", " ")
        examples = re.findall(r'"([^"]{12,})"', gloss)
        definition = re.split(r';\s*"|^"', gloss)[0].strip(" ;")
        if definition and prose(f"{word} {definition}", 4):
            yield word, WORDNET_KINDS[fields[2]], tidy(definition), [tidy(e) for e in examples]


def wordnet(path: Path) -> Iterator[Document]:
    """Definitions with their examples, a hundred to a document."""
    entries = []
    for word, kind, definition, examples in glosses(path):
        said = "".join(f" For example: {e[0].upper() + e[1:].rstrip('.')}." for e in examples[:1])
        entries.append(f"{word} ({kind}): {definition}.{said}")
    yield from pieces(entries, 100)


SKIP = "//pre|//table|//nav|//script|//style|//footer|//header|//form|//sup|//*[@class='sidebar']"
SKIP += "|//*[contains(@class,'sphinxsidebar') or contains(@class,'headerlink')]"
SKIP += "|//*[contains(@class,'anchor') and self::a or contains(@class,'admonition-title')]"
KEEP = "//h1|//h2|//p|//li[not(.//p) and not(.//li)]|//dd[not(.//p) and not(.//li)]"


def html(path: Path) -> Iterator[Document]:
    """Headings, paragraphs and list items of a web page; no code, tables or navigation."""
    try:
        tree = lxml_html.fromstring(path.read_bytes())
    except (ValueError, lxml_html.etree.ParserError):
        return
    for node in tree.xpath(SKIP):
        node.drop_tree()
    paragraphs: Document = []
    for node in tree.xpath(KEEP):
        text = tidy(node.text_content())
        if node.tag in ("h1", "h2"):
            if paragraphs and len(paragraphs[-1].split()) < 6:
                paragraphs.pop()  # a heading with nothing under it
            text = re.sub(r"^[\d.]+\s*", "", text)
            if 2 < len(text) < 80 and prose(text, 1):
                paragraphs.append(text)
        elif prose(text, 8 if node.tag == "p" else 14) and text[-1] in ".:!?)":
            paragraphs.append(text)
    if sum(map(len, paragraphs)) > 300:
        yield from pieces(paragraphs)


def pod(path: Path) -> Iterator[Document]:
    """Perl's documentation format: indented blocks are code, `=` starts a command."""
    paragraphs = []
    for block in blocks(path.read_text(encoding="utf-8", errors="replace")):
        if block.startswith((" ", "\t")) or re.match(r"=(?!head|item)", block):
            continue
        block = re.sub(r"^=\w+ ?", "", block)
        for _ in range(2):
            block = re.sub(r"[A-Z]<+ ?(?:[^<>|]*\|)?([^<>]*?) ?>+", r"\1", block)
        if prose(tidy(block), 8):
            paragraphs.append(tidy(block))
    yield from pieces(paragraphs)


def conversations(path: Path) -> Iterator[list[str]]:
    """Question and answer of a chatterbot corpus file (a small, regular part of YAML)."""
    turns: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r"^(- )?\s*- (.*)$", line)
        if not match:
            continue
        if match[1]:
            if len(turns) >= 2:
                yield turns
            turns = []
        turns.append(tidy(match[2].strip("\"' ")))
    if len(turns) >= 2:
        yield turns


def dialogue(path: Path) -> Iterator[Document]:
    """Plain form of the conversations; `chat.py` makes the chat form."""
    for turns in conversations(path):
        if all(prose(turn, 1) for turn in turns):
            yield turns


READERS: dict[str, Callable[[Path], Iterator[Document]]] = {
    f.__name__: f for f in (plain, play, r_lines, sword, dictd, wordnet, html, pod, dialogue)
}
