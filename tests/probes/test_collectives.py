"""Who did not enter which collective, as NCCL, torch and our own ranks tell it."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from panel.probes.collectives import compare, flight, ras
from panel.probes.collectives.flight import Entered
from panel.probes.collectives.flight_reader import main as read_flight
from panel.probes.collectives.ras_status import Status, parse_json, parse_text, standing_still

DATA = Path(__file__).parent / "data"
JSON = (DATA / "ras-2.28.9.json").read_text()
TEXT = (DATA / "ras-2.28.9.txt").read_text()
COMMUNICATOR = "90fad938a4cf695a"


def test_ras_in_json_names_the_rank_that_stayed_away() -> None:
    status = parse_json(JSON)
    assert status.version == "2.28.9"
    assert status.counts[COMMUNICATOR][0]["AllReduce"] == 21
    assert status.missing == {COMMUNICATOR: ()}
    assert compare.words(compare.count_laggards(status.counts)) == (
        f"rank 1 never entered AllReduce 21 of group {COMMUNICATOR}"
    )


def test_ras_in_text_says_the_same() -> None:
    laggards = compare.count_laggards(parse_text(TEXT).counts)
    assert laggards == compare.count_laggards(parse_json(JSON).counts)


def test_ras_in_text_of_several_ranks() -> None:
    text = (
        "#0-0 (ab12) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  Ranks 0-5,7 have launched up to operation 4711\n"
        "  Rank 6 has launched up to operation 4710 -- GPU 6\n"
    )
    (laggard,) = compare.count_laggards(parse_text(text).counts)
    assert (laggard.rank, laggard.missed, laggard.operation) == (6, 4711, "AllReduce")


def test_ras_answers_that_are_none() -> None:
    with pytest.raises(ValueError, match="not understood"):
        parse_json("ERROR")
    assert parse_text("ERROR").counts == {}


def test_only_what_stands_still_is_compared() -> None:
    def status(first: int, second: int) -> Status:
        return Status({"a": {0: {"AllReduce": first}, 1: {"AllReduce": second}}}, {}, "")

    assert standing_still(status(5, 4), status(9, 8)) == {}
    assert compare.count_laggards(standing_still(status(5, 4), status(5, 4)))[0].rank == 1


@contextmanager
def ras_server(script: dict[bytes, bytes]) -> Iterator[tuple[str, int]]:
    """A service that answers lines by a table; an empty answer hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            wire, _ = listener.accept()
            with wire, wire.makefile("rb") as lines:
                for line in lines:
                    answer = script.get(line.strip(), b"")
                    if not answer:
                        return
                    wire.sendall(answer)
                    if line == b"VERBOSE STATUS\n":
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        thread.join(5)


HELLO = {b"CLIENT PROTOCOL 2": b"SERVER PROTOCOL 2\n", b"TIMEOUT 3": b"OK\n"}
WHOLE = HELLO | {b"SET FORMAT json": b"OK\n", b"VERBOSE STATUS": JSON.encode()}


def test_asking() -> None:
    with ras_server(WHOLE) as address:
        assert ras.ask(address, json=True) == JSON
    with ras_server(WHOLE) as address:
        assert ras.ask(address, json=False) == JSON


def test_an_old_nccl_writes_no_json() -> None:
    old = WHOLE | {b"SET FORMAT json": b"ERROR: Unknown command\n"}
    with ras_server(old) as address, pytest.raises(ras.RasError, match="Unknown command"):
        ras.ask(address, json=True)


def test_a_service_that_hangs_up() -> None:
    with ras_server(HELLO) as address, pytest.raises(ras.RasError, match="hung up"):
        ras.ask(address, json=True)


def test_nobody_listens(free_port: int) -> None:
    with pytest.raises(ras.RasError, match="refused"):
        ras.ask(("127.0.0.1", free_port), json=True)


def test_flight_recorder_names_the_rank_that_stayed_away() -> None:
    newest = flight.analyse({rank: DATA / f"flight-{rank}.pickle" for rank in range(2)})
    assert [(each.rank, each.sequence, each.state) for each in newest] == [
        (0, 21, "scheduled"),
        (1, 20, "completed"),
    ]
    assert newest[0].frames[0].startswith("all_reduce torch/distributed/distributed_c10d.py:")
    assert compare.words(compare.flight_laggards(newest)) == (
        "rank 1 never entered all_reduce 21 of group default_pg"
    )
    assert compare.flight_mismatches(newest) == ()


def test_a_dump_that_names_code_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "flight-0"
    bad.write_bytes(pickle.dumps({"entries": [os.system]}))
    with pytest.raises(ValueError, match=r"it names posix\.system"):
        flight.analyse({0: bad})
    with pytest.raises(pickle.UnpicklingError):
        read_flight(f'{{"0": "{bad}"}}')


def _entered(rank: int, sequence: int, operation: str, state: str = "started") -> Entered:
    return Entered(
        rank=rank, group="tp", sequence=sequence, operation=operation, sizes="[[8]]", state=state
    )


def test_different_collectives_under_one_number() -> None:
    newest = [
        _entered(0, 7, "all_reduce"),
        _entered(1, 7, "all_gather"),
        _entered(2, 7, "all_reduce"),
    ]
    (text,) = compare.flight_mismatches(newest)
    assert "all_gather [[8]] on rank 1" in text
    assert "all_reduce [[8]] on ranks 0, 2" in text
    assert compare.flight_laggards(newest) == ()


def test_nobody_lags_where_the_newest_is_complete() -> None:
    newest = [_entered(0, 8, "all_reduce", "completed"), _entered(1, 7, "all_reduce", "completed")]
    assert compare.flight_laggards(newest) == ()


def test_dumps_on_demand(tmp_path: Path) -> None:
    for rank in range(2):
        os.mkfifo(tmp_path / f"flight-pipe-{rank}.pipe")
    reader = os.open(tmp_path / "flight-pipe-0.pipe", os.O_RDONLY | os.O_NONBLOCK)

    def recorder() -> None:
        os.set_blocking(reader, True)
        os.read(reader, 16)
        flight.dump_file(tmp_path, 0).write_bytes(b"dump")

    thread = threading.Thread(target=recorder)
    thread.start()
    missing = flight.dump(tmp_path, range(3), 5.0)
    thread.join(5)
    os.close(reader)
    assert missing == {1: "has no flight recorder", 2: "has no flight recorder"}


def test_the_environment_of_a_launch(tmp_path: Path) -> None:
    new = flight.environment(tmp_path, (2, 11))
    assert new["TORCH_FR_DUMP_TEMP_FILE"] == str(tmp_path / "flight-")
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in new
    assert flight.environment(tmp_path, (2, 8))["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
