"""Launches that never had a rank: what the engine refused, and what died before it could."""

from __future__ import annotations

from panel.domain.events import Gang, Spawn
from panel.domain.verdict import Verdict
from panel.triage.facts import Facts
from panel.triage.triage import Triage

TRACE = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/srv/engine/gang.py", line 7, in <module>
    import kernels
ImportError: kernels.so: undefined symbol: _ZN3c10
"""


def refused(reason: str, code: int, log: str = "") -> Verdict:
    triage = Triage(Facts(engine="builtin", world_size=8, sources={"spawner": None}))
    triage.see(Spawn(t=0.1, source="spawner", pid=9))
    triage.read("spawner", log.encode(), [(0.5, 0)])
    triage.see(Gang(t=1.0, state="refused", reason=reason, code=code))
    triage.see(Gang(t=1.0, state="down"))
    return triage.verdict()


def test_what_the_engine_says_of_flags_is_a_refusal() -> None:
    found = refused("--tp-size 3 does not divide 8 heads", 2)
    assert (found.status, found.kind) == ("refused", "cli_bad_combo")
    assert found.headline == "--tp-size 3 does not divide 8 heads"


def test_a_traceback_of_an_import_is_believed_before_the_exit() -> None:
    found = refused("the spawner gave no reason: ended with exit code 1", 1, TRACE)
    assert (found.status, found.kind, found.phase) == ("crashed", "abi_mismatch", "import")
    assert found.root_ranks == ()
    assert found.evidence[0].text == "ImportError: kernels.so: undefined symbol: _ZN3c10"
    assert found.advice


def test_a_spawner_that_was_killed_refused_nothing() -> None:
    found = refused("the spawner gave no reason: killed by SIGKILL", -9)
    assert (found.status, found.kind) == ("crashed", "helper_died")
