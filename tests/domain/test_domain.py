"""The pure data of the domain."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.exits import exit_words
from panel.domain.flags import Request
from panel.domain.phases import Phase
from panel.domain.plan import Change, changes
from panel.domain.redact import redact, redact_values
from panel.domain.states import ASCII_SIGNS, SIGNS, ProcessState
from panel.server import phases as engine

names = st.sampled_from(["ep-size", "port", "seed", "spec"])
flags = st.dictionaries(names, st.sampled_from(["1", "8", "off"]))


def test_the_engine_and_the_panel_use_the_same_words() -> None:
    assert [phase.value for phase in engine.Phase] == [phase.value for phase in Phase]


def test_every_state_has_a_sign_of_its_own() -> None:
    for signs in (SIGNS, ASCII_SIGNS):
        assert set(signs) == set(ProcessState)
        assert len(set(signs.values())) == len(signs)


@given(flags, flags, st.lists(names))
def test_a_changed_request_sets_wins_over_unset(
    before: dict[str, str], added: dict[str, str], unset: list[str]
) -> None:
    request = Request(profile="tiny", set=before).changed(added, tuple(unset))
    assert added.items() <= request.set.items()
    assert not set(request.unset) & set(added)
    assert all(request.set[name] == before[name] for name in request.set if name not in added)
    assert set(unset) - set(added) == set(request.unset)


@given(flags, flags)
def test_changes_lead_from_one_to_the_other(before: dict[str, str], after: dict[str, str]) -> None:
    moved = dict(before)
    for change in changes(before, after):
        assert change.before == before.get(change.name)
        moved.pop(change.name, None)
        if change.after is not None:
            moved[change.name] = change.after
    assert moved == after
    assert changes(after, after) == ()


def test_changes_say_what_was_not_passed() -> None:
    assert changes({}, {"seed": "1"}) == (Change(name="seed", before=None, after="1"),)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "not known"),
        (0, "exit code 0"),
        (-9, "SIGKILL"),
        (-11, "SIGSEGV"),
        (-63, "signal 63"),
        (7, "exit code 7"),
        (12, "could not bind its port (exit code 12)"),
    ],
)
def test_exit_words(code: int | None, words: str) -> None:
    assert words in exit_words(code, {12: "could not bind its port"})


@pytest.mark.parametrize(
    "text",
    [
        "--api-key=SECRETVALUE",
        "--api-key SECRETVALUE",
        "api_key='SECRETVALUE', port=30000",
        '{"hf_token": "SECRETVALUE"}',
        "HF_TOKEN=hf_SECRETVALUESECRETVALUE",
        "Authorization: Bearer SECRETVALUE",
        "https://somebody:SECRETVALUE@example.org/",
        "using hf_SECRETVALUESECRETVALUE now",
    ],
)
def test_secrets_are_masked_at_their_length(text: str) -> None:
    masked = redact(text)
    assert "SECRETVALUE" not in masked
    assert len(masked) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_total_tokens=98304, chunked_prefill_size=512",
        "#token: 123456, token usage: 0.12",
        "eos_token_id=[1, 2], stop_token_ids=100000",
        "tokenizer='/models/a', num_tokens_per_bs=4",
    ],
)
def test_figures_about_tokens_are_no_secrets(text: str) -> None:
    assert redact(text) == text


@given(st.text(alphabet=string.printable + "äß→日"))
def test_masks_never_move_an_offset(text: str) -> None:
    assert len(redact(text).encode()) == len(text.encode())


def test_values_of_secret_names_are_masked_whole() -> None:
    masked = redact_values({"api-key": "abc", "HF_TOKEN": "x y", "max-total-tokens": "4096"})
    assert masked == {"api-key": "***", "HF_TOKEN": "***", "max-total-tokens": "4096"}
