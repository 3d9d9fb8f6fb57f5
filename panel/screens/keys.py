"""Keys as a table: what is pressed, what it does, its word on the key line, its sentence."""

from __future__ import annotations

from typing import Any

from textual.binding import Binding


def key(keys: str, action: str, word: str, sentence: str, name: str, shown: str = "") -> Binding:
    """Return a binding; `name` is its id for key maps, `shown` how the key is written."""
    return Binding(keys, action, word, tooltip=sentence, id=name, key_display=shown or None)


def bindings_of(*owners: Any) -> list[Binding]:
    """Return the bindings that the owners (screens, apps or their classes) declare themselves."""
    own = [binding for owner in owners for binding in owner.BINDINGS]
    return [binding for binding in own if isinstance(binding, Binding) and binding.tooltip]


def rank_keys(screen: str) -> list[Binding]:
    """Return the keys that pick whose logs are shown."""
    one = "Show the log of this rank, or no longer"
    digits = [
        key(str(r), f"pick({r})", "ranks", one, f"{screen}.rank{r}", "0-9") for r in range(10)
    ]
    return [*digits, key("a", "pick_all", "all", "Show the logs of all", f"{screen}.all")]


BACK = key("escape", "back", "back", "Back to the screen before", "back", "Esc")
