"""Signatures as data: what the loader accepts, and what advice may say."""

from __future__ import annotations

import re

import pytest

from panel.triage.conclude import related
from panel.triage.signature import load, read
from panel.triage.source import hot_text

GOOD = 'family = "x"\n[[signature]]\nkind = "k"\nwhat = "w"\n'


def test_shipped_signatures_load() -> None:
    assert len(load().rules) > 80


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "family"),
        (GOOD, "nothing to match"),
        (GOOD + 'match = ["("]', "unterminated"),
        (GOOD + 'match = ["a"]\nrole = "culprit"', "culprit"),
        (GOOD + 'match = ["(?P<who>a)"]', "unknown group 'who'"),
        (GOOD + 'match = ["a"]\ncolour = "red"', "colour"),
        (GOOD + 'match = ["a"]\n[[signature.advice]]\nwhy = "y"\nversions = "~1"', "no bound"),
        (GOOD + 'role = "inferred"\nmatch = ["a"]', "nothing to match"),
        ("family = ", "x.toml"),
    ],
)
def test_a_bad_file_is_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as error:
        read({"x.toml": text})
    assert str(error.value).startswith("x.toml: ")


def test_what_asks_for_more_comes_first() -> None:
    loose = GOOD + 'match = ["a"]'
    strict = GOOD.replace('"k"', '"strict"') + 'match = ["a"]\nalso = ["b"]'
    harmless = GOOD.replace('"k"', '"dull"') + 'match = ["a"]\nrole = "harmless"'
    general = GOOD.replace('"k"', '"last"') + 'match = ["a"]\nalso = ["b"]\ngeneral = true'
    catalog = read({"a": loose, "b": strict, "c": harmless, "d": general})
    kinds = [rule.signature.kind for rule in catalog.rules]
    assert kinds == ["dull", "strict", "k", "last"]


def test_every_signature_of_an_end_says_what_to_do_or_shares_a_kind_that_does() -> None:
    catalog = load()
    roles = {"root", "hang", "death"}
    ends = {rule.signature.kind for rule in catalog.rules if rule.signature.role in roles}
    without = {kind for kind in ends if not catalog.of_kind(kind).advice}  # type: ignore[union-attr]
    assert not without


def test_advice_never_repeats_the_hints_of_engines() -> None:
    texts = [advice.why for rule in load().rules for advice in rule.signature.advice]
    assert not [text for text in texts if "Possible solutions" in text]


def test_memory_advice_points_one_way_for_each_kind() -> None:
    """The same word, opposite directions: see the many meanings of `memory`."""
    catalog = load()

    def direction(kind: str, flag: str) -> set[str]:
        found = [rule.signature for rule in catalog.rules if rule.signature.kind == kind]
        signs = [each.set[flag][0] for sig in found for each in sig.advice if flag in each.set]
        return set(signs)

    for flag in ("mem-fraction-static", "gpu-memory-utilization"):
        assert direction("oom_kv_init", flag) == {"+"}
        assert direction("oom_capture", flag) == {"-"}
        assert direction("oom_serving", flag) == {"-"}
        for kind in ("oom_foreign_process", "kv_pool_exhausted", "triton_smem", "nccl_shm"):
            assert direction(kind, flag) == set()


def test_every_pattern_is_among_those_that_lines_are_picked_by() -> None:
    hot = re.compile(hot_text(load()), re.IGNORECASE)
    for line in (
        "ValueError: No available memory for the cache blocks",
        "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.",
        "[2026-03-04 10:00:00 TP0] Load weight begin. avail mem=1 GB",
        "RuntimeError: RPC call to sample_tokens timed out.",
    ):
        assert hot.search(line)
    assert not hot.search("[2026-03-04 10:00:00 TP0] Decode batch, #running-req: 3")


def test_kinds_that_look_alike_are_known_and_say_how_they_are_told_apart() -> None:
    catalog = load()
    named = {kind for rule in catalog.rules for kind in rule.signature.like}
    naming = {rule.signature.kind for rule in catalog.rules if rule.signature.like}
    assert not [kind for kind in named | naming if not catalog.sign(kind)]
    for kind in named:
        assert all(kind in catalog.alike(other) for other in catalog.alike(kind))


def test_a_sign_is_told_once_for_each_kind() -> None:
    signs = [(rule.signature.kind, rule.signature.sign) for rule in load().rules]
    told = [kind for kind, sign in signs if sign]
    assert sorted(told) == sorted(set(told))


def test_a_verdict_tells_what_else_it_may_be_taken_for() -> None:
    found = related(load(), "oom_capture")
    assert [each.kind for each in found][:2] == ["oom_capture", "oom_kv_init"]
    assert "smaller fraction" in found[0].sign
    assert "larger fraction" in next(each.sign for each in found if each.kind == "oom_kv_init")
    assert related(load(), "operator_stop") == ()
