"""Numbers in the few cells that a screen has for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from panel.domain.plan import Measured

_UNITS = "BKMGT"
_NOTABLE_S = 0.05


def clock(seconds: float) -> str:
    """Return `00:12:31`."""
    whole = int(max(seconds, 0))
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def stamp(seconds: float) -> str:
    """Return `12:31.220`, minutes and seconds since launch."""
    thousandths = round(max(seconds, 0) * 1000)
    return f"{thousandths // 60_000:02}:{thousandths // 1000 % 60:02}.{thousandths % 1000:03}"


def span_of(seconds: float) -> str:
    """Return `4.2s`, `2m10s` or `3h05m`."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole // 60 % 60:02}m"


def ago(seconds: float) -> str:
    """Return `0.31 s ago`, `12 s ago`, `3 min ago`, `5 h ago` or `2 d ago`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.2f} s ago"
    for unit, length, most in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 24)):
        if seconds < length * most:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{seconds // 86400:.0f} d ago"


def size(count: int) -> str:
    """Return bytes in at most five cells: `812K`, `1.5G`."""
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = 1 if unit > 1 and value < 100 else 0
    return f"{value:.{digits}f}{_UNITS[unit]}"


def spent(start: Mapping[str, float], width: int) -> list[str]:
    """Return what took the seconds of a start, in lines: `weights 2.7s  capture 0.8s`."""
    lines = [""]
    for name, seconds in start.items():
        if seconds < _NOTABLE_S:
            continue
        part = f"{name} {span_of(seconds)}"
        if lines[-1] and len(lines[-1]) + 2 + len(part) > width:
            lines.append("")
        lines[-1] += f"  {part}" if lines[-1] else part
    return lines


def taken(memory: Iterable[Measured]) -> Iterator[str]:
    """Yield each part of a rank's memory as measured, with the plan's figure where it differs:
    `weights 2.1G (planned 2.0G)`."""
    for one in memory:
        words = count if one.unit == "tokens" else size
        found = f"{one.part} {words(one.measured)}"
        planned = None if one.predicted is None else words(one.predicted)
        differs = planned is not None and planned != words(one.measured)
        yield f"{found} (planned {planned})" if differs else found


def count(number: int) -> str:
    """Return `812`, `4.2k` or `271k`."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 10_000 else f"{number // 1000}k"
