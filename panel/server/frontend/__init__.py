"""The front end: the OpenAI-compatible HTTP process of the engine.

Text is decided here (tokenizer, chat template, stop strings, wire format), tokens at rank 0, at the
other end of `link`. Importing starts no thread and no event loop, so that a spawner may fork after.
"""

from panel.server.frontend.process import run

__all__ = ["run"]
