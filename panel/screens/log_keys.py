"""The keys of the logs screen."""

from __future__ import annotations

from textual.binding import BindingType

from panel.screens.keys import BACK, key, rank_keys

LOG_KEYS: list[BindingType] = [
    BACK,
    *rank_keys("logs"),
    key("slash", "search", "search", "Find; a capital in it makes case count", "logs.search", "/"),
    key("n", "find(1)", "next", "Next line that was found", "logs.next"),
    key("N", "find(-1)", "previous", "Line before that was found", "logs.previous"),
    key("ampersand", "filter", "filter", "Only lines that match; Esc: all", "logs.filter", "&"),
    key("i", "invert", "invert", "Only lines that do not match the filter", "logs.invert"),
    key("e", "severe(1)", "error", "Next error", "logs.error"),
    key("E", "severe(-1)", "error before", "Error before", "logs.error_before"),
    key("v", "warning(1)", "warning", "Next warning", "logs.warning"),
    key("V", "warning(-1)", "warning before", "Warning before", "logs.warning_before"),
    key("f", "follow", "follow", "Stay at the end, or hold still", "logs.follow"),
    key("g,home", "home", "first", "First line of the log", "logs.home", "g"),
    key("G,end", "end", "last", "Last line, then follow", "logs.end", "G"),
    key("T", "moment", "go to time", "Go to 751, 12:31, 13:45:07, crash-10", "logs.moment"),
    key("enter", "open", "open", "Open traceback, JSON, long line", "logs.open", "Enter"),
    key("equals_sign", "fold", "fold", "Equal lines of ranks as one row", "logs.fold", "="),
    key("l", "lanes", "lanes", "Ranks side by side", "logs.lanes"),
    key("w", "wrap", "wrap", "Break long lines, or do not", "logs.wrap"),
    key("t", "clock", "times", "Times since launch, of day, since crash", "logs.clock"),
    key("m", "mark", "mark", "Mark this line, or no longer", "logs.mark"),
    key("u", "marked(1)", "next mark", "Next marked line", "logs.next_mark"),
    key("U", "marked(-1)", "mark before", "Marked line before", "logs.mark_before"),
    key("y", "copy", "copy", "Copy marked lines, or this one", "logs.copy"),
    key("s", "save", "save", "Save all lines that match the filter", "logs.save"),
    key("p", "earlier(-1)", "earlier launch", "Log of the launch before", "logs.earlier"),
    key("P", "earlier(1)", "later launch", "Log of the launch after", "logs.later"),
    key("up", "move(-1)", "up", "One line up; the view holds still", "logs.up", "↑"),
    key("down", "move(1)", "down", "One line down", "logs.down", "↓"),
    key("pageup", "page(-1)", "page up", "A screen up", "logs.pageup", "PgUp"),
    key("pagedown,space", "page(1)", "page down", "A screen down", "logs.pagedown", "PgDn"),
    key("left", "sideways(-1)", "left", "Scroll long lines back", "logs.left", "←"),
    key("right", "sideways(1)", "right", "Scroll long lines", "logs.right", "→"),
]  # fmt: skip
