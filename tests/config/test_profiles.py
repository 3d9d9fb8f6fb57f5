"""Profiles and settings: read, refused in words, written back with their comments."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.config.home import Home, find_home
from panel.config.profiles import (
    is_shipped,
    load_profile,
    profile_files,
    read_profile,
    read_profiles,
    save_profile,
)
from panel.config.settings import Settings, load_settings
from panel.domain.errors import NotFoundError, UsageError
from panel.domain.flags import Installation, Profile


@pytest.fixture
def place(tmp_path: Path) -> Home:
    home = find_home({"MOEPANEL_HOME": str(tmp_path)})
    home.prepare()
    return home


def test_shipped_profile(place: Home) -> None:
    tiny = load_profile(place, "tiny")

    assert (tiny.engine, tiny.shipped) == ("builtin", True)
    assert tiny.flags["tp-size"] == "8"


def test_own_file_hides_the_shipped_one(place: Home) -> None:
    (place.profiles / "tiny.toml").write_text('engine = "builtin"\n[flags]\ntp-size = 4\n')
    (place.profiles / "big.toml").write_text('engine = "builtin"\n')

    files = profile_files(place)
    assert list(files) == sorted(files)
    assert {"big", "tiny"} <= files.keys()
    assert files["tiny"].parent == place.profiles
    tiny = load_profile(place, "tiny")
    assert (tiny.flags, tiny.shipped) == ({"tp-size": "4"}, False)


def test_values_become_flag_texts(place: Home) -> None:
    file = place.profiles / "mix.toml"
    file.write_text(
        'engine = "builtin"\n[flags]\na = true\nb = 2\nc = 0.5\nd = [1, 2, 4]\ne = "x"\n'
        "[env]\nN = 1\n"
    )

    profile = read_profile(file)

    assert profile.flags == {"a": "true", "b": "2", "c": "0.5", "d": "1,2,4", "e": "x"}
    assert profile.env == {"N": "1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("engine = \n", "line 1"),
        ('engin = "builtin"', r"unknown key 'engin' \(did you mean engine\?"),
        ('note = "x"', "engine is missing"),
        ("engine = 3", "engine must be a text in quotes, not 3"),
        ('engine = "builtin"\nflags = 1', "flags must be a table"),
        ('engine = "builtin"\n[flags]\na = {b = 1}', "flags.a must be"),
        ('engine = "\xe9"', "codec"),
        ('[engine]\nversion = "1"', r"engine\.name is missing"),
        ('[engine]\nname = "sglang"\npythn = "p"', r"did you mean python\?"),
        ('engine = "sglang"\n[hardware]\ngpus = 8', "memory-gib"),
        ('engine = "sglang"\n[hardware]\ngpus = 8\nmemory-gib = 80\nlink = "x"', "pcie or nvlink"),
    ],
)
def test_bad_files_are_named(place: Home, text: str, words: str) -> None:
    file = place.profiles / "bad.toml"
    file.write_bytes(text.encode("latin-1"))

    with pytest.raises(UsageError, match=words) as raised:
        read_profile(file)
    assert str(file) in str(raised.value)


def test_unknown_profile_offers_the_nearest(place: Home) -> None:
    with pytest.raises(NotFoundError, match="did you mean tiny"):
        load_profile(place, "tinny")


def test_saving_keeps_comments(place: Home) -> None:
    file = place.profiles / "mine.toml"
    file.write_text(
        '# why\nengine = "builtin"\n\n[flags]\nport = 1  # the old one\ntp-size = 8\nx = [1, 2]\n'
    )
    profile = read_profile(file)
    flags = {**profile.flags, "port": "2", "spec": "on"}
    del flags["tp-size"]

    save_profile(place, Profile(name="mine", engine="builtin", flags=flags))

    text = file.read_text()
    assert "# why" in text
    assert "x = [1, 2]" in text
    assert "tp-size" not in text
    assert read_profile(file).flags == flags
    assert file.stat().st_mode & 0o077 == 0


def test_where_an_engine_lives_survives_saving(place: Home) -> None:
    file = place.profiles / "far.toml"
    file.write_text(
        '[engine]\nname = "sglang"  # theirs\nversion = "0.5.9"\n\n[hardware]\ngpus = 8\n'
        'memory-gib = 95.6\nlink = "pcie"\n'
    )
    profile = read_profile(file)
    moved = msgspec.structs.replace(
        profile, model="deepseek-v3", installation=Installation(python="/venv/bin/python")
    )

    save_profile(place, moved)

    assert "# theirs" in file.read_text()
    read = read_profile(file)
    assert (read.engine, read.installation) == ("sglang", moved.installation)
    assert (read.model, read.hardware) == ("deepseek-v3", profile.hardware)


def test_saving_a_shipped_profile_makes_an_own_one(place: Home) -> None:
    tiny = load_profile(place, "tiny")

    save_profile(place, tiny)

    assert not load_profile(place, "tiny").shipped
    assert load_profile(place, "tiny").flags == tiny.flags


def test_a_name_is_a_file_name(place: Home) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        save_profile(place, Profile(name="../x", engine="builtin"))


_texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), _texts, max_size=5))
def test_any_flags_survive_saving(
    tmp_path_factory: pytest.TempPathFactory, flags: dict[str, str]
) -> None:
    home = find_home({"MOEPANEL_HOME": str(tmp_path_factory.mktemp("home"))})
    home.prepare()

    path = save_profile(home, Profile(name="any", engine="builtin", flags=flags))

    assert read_profile(path).flags == flags


def test_settings(place: Home) -> None:
    assert load_settings(place.config_file) == Settings(profile="tiny", warm=True)
    place.config_file.write_text('warm = false\nprofile = "mine"\n')
    assert load_settings(place.config_file) == Settings(profile="mine", warm=False)
    place.config_file.write_text('warm = "no"\n')
    with pytest.raises(UsageError, match="warm must be true or false"):
        load_settings(place.config_file)


NODES = """
engine = "sglang"

[[nodes]]
name = "gpu-a"
address = "10.0.0.1"

[[nodes]]  # the second rack
name = "gpu-b"
address = "10.0.0.2"
ssh = "ops@gpu-b"
python = "/opt/moepanel/bin/python"
flags = { port = 31000 }
env = { NCCL_SOCKET_IFNAME = "eth1" }
"""


def test_nodes_are_read_and_kept(place: Home) -> None:
    path = place.profiles / "wide.toml"
    path.write_text(NODES)
    profile = load_profile(place, "wide")
    first, second = profile.nodes
    assert (first.name, first.address, first.ssh, first.python) == (
        "gpu-a", "10.0.0.1", "", "python3",
    )  # fmt: skip
    assert (second.ssh, second.python) == ("ops@gpu-b", "/opt/moepanel/bin/python")
    assert (second.flags, second.env) == ({"port": "31000"}, {"NCCL_SOCKET_IFNAME": "eth1"})

    save_profile(place, msgspec.structs.replace(profile, flags={"tp-size": "16"}))
    assert "# the second rack" in path.read_text()
    again = load_profile(place, "wide")
    assert (again.nodes, again.flags) == (profile.nodes, {"tp-size": "16"})

    save_profile(place, msgspec.structs.replace(profile, name="other"))
    assert load_profile(place, "other").nodes == profile.nodes


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('name = "gpu-b"', 'name = "gpu-a"', "two nodes are called 'gpu-a'"),
        ('name = "gpu-b"', 'name = "keeper"', "node name 'keeper'"),
        ('name = "gpu-b"', 'name = "gpu/b"', "node name 'gpu/b'"),
        ('name = "gpu-b"', 'nmae = "gpu-b"', "unknown key 'nmae'"),
        ('address = "10.0.0.2"\n', "", "node gpu-b has no address"),
        ('ssh = "ops@gpu-b"', "ssh = 5", "ssh must be a text"),
        (NODES[NODES.index("[[nodes]]  #") :], "", "one node is no gang"),
        (NODES[NODES.index("[[nodes]]") :], "nodes = 3", "nodes must be a list"),
        (NODES[NODES.index("[[nodes]]") :], "nodes = [3]", "nodes must be tables"),
    ],
)
def test_nodes_that_are_wrong(place: Home, before: str, after: str, words: str) -> None:
    (place.profiles / "wide.toml").write_text(NODES.replace(before, after))
    with pytest.raises(UsageError, match=re.escape(words)):
        load_profile(place, "wide")


def test_one_wrong_file_does_not_hide_the_others(place: Home) -> None:
    place.prepare()
    (place.profiles / "bad.toml").write_text('engine = "builtin"\n[flags\n')
    profiles, broken = read_profiles(place)
    assert "tiny" in [profile.name for profile in profiles]
    assert [one.name for one in broken] == ["bad"]
    assert str(place.profiles / "bad.toml") in broken[0].error
    assert is_shipped("tiny")
    assert not is_shipped("bad")
