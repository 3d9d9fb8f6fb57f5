"""The chat template of a checkpoint, rendered as `transformers` renders it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from panel.server.frontend.errors import ApiError


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(value: object, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


class ChatTemplate:
    """Turns messages into the text of a prompt."""

    def __init__(self, source: str, variables: Mapping[str, str]) -> None:
        """Compile `source`; `variables` are the special tokens. Raises `jinja2.TemplateError`."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._template = environment.from_string(source)
        self._variables = dict(variables)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        extra: Mapping[str, Any],
    ) -> str:
        """Return the prompt; what the template refuses is the client's error."""
        variables = {
            **self._variables,
            **extra,
            "messages": messages,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._template.render(variables)
        except Exception as error:
            # A template is a program of the checkpoint: it may fail in any way on odd messages.
            raise ApiError(f"chat template: {error}", param="messages") from error
