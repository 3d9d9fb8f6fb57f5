"""Profiles whose engine is a capture that is played again."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import msgspec

from panel.config.home import Home
from panel.config.profiles import save_profile
from panel.domain.flags import Installation, Profile
from panel.triage.facts import Facts

CONSTRUCTED = Path(__file__).with_name("captures")
REPLAY = Path(__file__).with_name("replay.py")


def replay_profile(home: Home, capture: Path, speed: float, port: int) -> str:
    """Save a profile that plays `capture` and listens on `port`; return its name."""
    facts = msgspec.json.decode((capture / "launch.json").read_bytes(), type=Facts, strict=False)
    flags = facts.flags() | {"port": str(port), "host": "127.0.0.1"}
    if facts.engine == "vllm":
        # It stands ahead of all flags.
        flags["model"] = "/srv/model"
    profile = Profile(
        name=capture.name,
        engine=facts.engine,
        installation=Installation(
            version=facts.version,
            command=shlex.join([sys.executable, str(REPLAY), str(capture), str(speed)]),
        ),
        flags={name: text.replace(" ", ",") for name, text in flags.items()},
    )
    home.prepare()
    save_profile(home, profile)
    return profile.name
