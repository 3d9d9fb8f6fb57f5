"""The text side of a checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from panel.server.config import ModelError, model_folder
from panel.server.frontend.errors import ApiError
from panel.server.frontend.template import ChatTemplate
from panel.server.frontend.text import Text, load_text

CONVERSATION = [
    {"role": "system", "content": " Be <brief> & kind. "},
    {"role": "user", "content": "Grüße\n"},
]
FANCY = """\
{%- for message in messages %}
    {% if loop.index0 == 2 %}{% break %}{% endif %}
  {{ message | tojson(indent=1) }}
{% endfor %}
{% if add_generation_prompt %}
answer{{ mood }}:
{% endif %}
"""


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("template", ["{{ messages | tojson }}", FANCY])
def test_templates_render_as_in_transformers(template: str, prompt: bool) -> None:
    expected, _ = render_jinja_template(
        conversations=[CONVERSATION],
        chat_template=template,
        add_generation_prompt=prompt,
        mood="!",
    )
    ours = ChatTemplate(template, {}).render(
        CONVERSATION, add_generation_prompt=prompt, extra={"mood": "!"}
    )
    assert ours == expected[0]


def test_a_conversation_becomes_special_tokens_and_text(text: Text) -> None:
    tokens = text.encode_chat(CONVERSATION[1:], add_generation_prompt=True, extra={})
    names = [text.token_text(token) for token in tokens]
    assert names[:2] == ["<|bos|>", "<|user|>"]
    assert names[-2:] == ["<|end|>", "<|assistant|>"]
    assert text.decode(tokens) == "Grüße"


def test_what_the_template_refuses_is_the_clients_error(text: Text) -> None:
    with pytest.raises(ApiError, match="unknown role robot") as caught:
        text.encode_chat([{"role": "robot", "content": ""}], add_generation_prompt=True, extra={})
    assert caught.value.status == 400


def test_a_template_cannot_reach_the_interpreter() -> None:
    template = ChatTemplate("{{ messages.__class__.__mro__ }}", {})
    with pytest.raises(ApiError, match="unsafe"):
        template.render([], add_generation_prompt=True, extra={})


def test_answers_end_at_the_end_tokens_of_both_files(text: Text) -> None:
    assert text.eos == (1, 4)
    assert text.bos == 0


def test_tokens_have_bytes_also_where_they_are_no_character(text: Text) -> None:
    tokens = text.encode("é🦊 <|user|>")[1:]
    assert b"".join(text.token_bytes(token) for token in tokens) == "é🦊 <|user|>".encode()
    assert text.token_text(text.encode("🦊")[1]) == "\N{REPLACEMENT CHARACTER}"


def test_a_template_may_come_as_a_file_or_by_name(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copy(checkpoint / "tokenizer.json", tmp_path)
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))

    def prompt() -> str:
        text = load_text(tmp_path)
        return text.decode(text.encode_chat([], add_generation_prompt=True, extra={}))

    assert prompt() == "yes"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert prompt() == "file"


def test_a_model_without_template_says_where_to_go(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copy(checkpoint / "tokenizer.json", tmp_path)
    text = load_text(tmp_path)
    with pytest.raises(ApiError, match="/v1/completions"):
        text.encode_chat(CONVERSATION, add_generation_prompt=True, extra={})
    assert text.eos == ()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", '{"chat_template": "{% if %}"}'),
    ],
)
def test_corrupt_files_are_named(checkpoint: Path, tmp_path: Path, name: str, content: str) -> None:
    shutil.copy(checkpoint / "tokenizer.json", tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=str(tmp_path)):
        load_text(tmp_path)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load_text(tmp_path)


def test_the_shipped_model_reads_and_writes() -> None:
    text = load_text(model_folder("moe-tiny"))
    assert text.decode(text.encode("The river ran north.")) == "The river ran north."
    tokens = text.encode_chat(
        [{"role": "user", "content": "Hello"}], add_generation_prompt=True, extra={}
    )
    assert text.token_text(tokens[-1]) == "<|assistant|>"
    assert len(text.eos) == 2
