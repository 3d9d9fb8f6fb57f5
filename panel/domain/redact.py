"""Secrets, masked in one place before anything is stored or shown.

Masks keep their length, so that byte offsets into a log stay valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NAMES = r"(?:[A-Za-z0-9_\-]*(?:api[-_]?key|token|secret|password|passwd|credential)s?)"
_NOT_SECRET = r"(?!max|num|n_|total|prompt|stop|eos|bos|pad|draft)"
_TOKENS = ("hf_", "hf-", "sk-", "sk_", "ghp", "gho", "xoxb", "glpat")
_NAMED = re.compile(r"(?:key|token|secret|password|passwd|credential)s?['\"]?\s*[=:]")
_PATTERNS: tuple[tuple[Callable[[str], object], re.Pattern[str]], ...] = (
    (
        lambda lower: any(token in lower for token in _TOKENS),
        re.compile(r"\b((?:hf|sk|ghp|gho|xoxb|glpat)[-_][A-Za-z0-9_\-]{12,})"),
    ),
    (
        lambda lower: "bearer" in lower,
        re.compile(r"(?i:\bBearer\s+)([A-Za-z0-9._~+/\-]{8,}=*)"),
    ),
    (
        _NAMED.search,
        re.compile(rf"(?i:\b{_NOT_SECRET}{_NAMES})['\"]?\s*[=:]\s*['\"]?([^\s'\",)}}\]]{{6,}})"),
    ),
    (
        lambda lower: "--" in lower,
        re.compile(r"(?i:--(?:api-key|hf-token|token)[= ])(\S+)"),
    ),
    (
        lambda lower: "://" in lower,
        re.compile(r"://[^/\s:@]+:([^/\s@]+)@"),
    ),
)
"""Secrets, each with what is asked first of the text in lower case: it costs a tenth, and a log of
millions of lines passes through here."""
_HINTS = ("key", "token", "secret", "passw", "credential", "bearer", "://", *_TOKENS)
"""One of these stands, in lower case, in every text that a pattern matches."""
_SECRET_NAME = re.compile(rf"(?i:^{_NOT_SECRET}{_NAMES}$)")


def redact(text: str) -> str:
    """Return `text` with every secret replaced by asterisks, length unchanged."""
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return text
    for may_match, pattern in _PATTERNS:
        if may_match(lower):
            text = pattern.sub(_mask, text)
    return text


def _mask(match: re.Match[str]) -> str:
    whole, start = match.group(0), match.start()
    first, last = match.start(1) - start, match.end(1) - start
    if whole[first:last].isdigit():
        return whole
    # A character outside ASCII is several bytes: the mask must have as many.
    stars = "*" * len(whole[first:last].encode())
    return whole[:first] + stars + whole[last:]


def redact_values(values: dict[str, str]) -> dict[str, str]:
    """Return flags or environment variables with the values of secret names masked."""
    return {
        name: "***" if text and _SECRET_NAME.match(name) and not text.isdigit() else redact(text)
        for name, text in values.items()
    }
