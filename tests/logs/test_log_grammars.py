"""Every format of the engines that the panel reads; all lines are invented."""

from __future__ import annotations

import pytest

from panel.logs.decode import decode
from panel.logs.grammars import Dialect, detect, named
from panel.logs.grammars.builtin import BUILTIN
from panel.logs.grammars.kernel import KERNEL
from panel.logs.grammars.native import PLAIN
from panel.logs.grammars.sglang import SGLANG
from panel.logs.grammars.tensorrt import TENSORRT
from panel.logs.grammars.torch import TORCH
from panel.logs.grammars.vllm import VLLM
from panel.logs.grammars.wrappers import BY_NAME
from panel.logs.merge import Arrivals
from panel.logs.prefix import Grammar
from panel.logs.records import Level, Record, RecordReader, settled, survey

DEBUG, INFO, WARNING, ERROR = Level


def read(text: str | bytes, dialect: Dialect | Grammar, source: str = "engine") -> list[Record]:
    data = text if isinstance(text, bytes) else text.encode()
    return RecordReader(source, Arrivals(), dialect).read(decode(data))


@pytest.mark.parametrize(
    ("grammar", "line", "level", "rank", "text"),
    [
        (SGLANG, "[18:19:57 TP6] Load weight begin.", INFO, 6, "Load weight begin."),
        (SGLANG, "[2025-04-02 15:26:05 DP0 TP7] x", INFO, 7, "x"),
        (SGLANG, "[2025-08-24 20:28:03 DP0 TP0 EP0] x", INFO, 0, "x"),
        (SGLANG, "[2026-07-12 13:55:29 TP5 EP2] x", INFO, 5, "x"),
        (SGLANG, "[2026-07-12 13:55:29 DP3] x", INFO, 3, "x"),
        (SGLANG, "[2026-07-12 13:55:29 PP1] x", INFO, 1, "x"),
        (SGLANG, "[2026-07-12 13:55:29 PP1 TP1] x", INFO, None, "x"),
        (SGLANG, "[2026-07-12 13:55:29 DisaggregationMode.PREFILL TP1] x", INFO, 1, "x"),
        (SGLANG, "[2026-07-12 13:55:29,123 ATTN_CP1 MOE_DP1 TP3] x", INFO, 3, "x"),
        (SGLANG, "[07-12 13:55:29] x", INFO, None, "x"),
        (SGLANG, '[2026-07-12 13:55:29] INFO:     1.2.3.4:5 - "GET /"', INFO, None,
         'INFO:     1.2.3.4:5 - "GET /"'),
        (SGLANG, "[2026-07-12 13:55:29 TP1] Scheduler hit an exception: Traceback (most recent "
         "call last):", ERROR, 1,
         "Scheduler hit an exception: Traceback (most recent call last):"),
        (SGLANG, "[2026-07-12 13:55:29] SIGQUIT received. signum=3", ERROR, None,
         "SIGQUIT received. signum=3"),
        (SGLANG, "[2026-07-12 13:55:29 TP1] Fail to set it", WARNING, 1, "Fail to set it"),
        (SGLANG, "[2025-07-21 19:05:29] host:7:8 [1] transport/p2p.cc:3 NCCL WARN no path",
         WARNING, None, "no path"),
        (VLLM, "(VllmWorkerProcess pid=221) INFO 07-12 13:55:29 worker_base.py:157] x", INFO,
         None, "x"),
        (VLLM, "(VllmWorker rank=1 pid=336) WARNING 07-12 13:55:29 [a.py:1] x", WARNING, 1, "x"),
        (VLLM, "(Worker_TP1 pid=530) ERROR 07-12 13:55:29 [v1/engine/utils.py:776] x", ERROR, 1,
         "x"),
        (VLLM, "(Worker_DP1_TP0_EP4 pid=530) INFO 07-12 13:55:29 [a.py:1] x", INFO, 4, "x"),
        (VLLM, "(Worker_DP1_TP0 pid=530) INFO 07-12 13:55:29 [a.py:1] x", INFO, None, "x"),
        (VLLM, "(Worker pid=5) (Worker_TP1 pid=5) INFO 07-12 13:55:29 [a.py:1] x", INFO, 1, "x"),
        (VLLM, "(EngineCore_DP0 pid=9) DEBUG 07-12 13:55:29 [a.py:1] x", DEBUG, 0, "x"),
        (VLLM, "(APIServer pid=1) INFO:     Started server process [1]", INFO, None,
         "Started server process [1]"),
        (VLLM, "(RayWorkerWrapper pid=5280, ip=10.0.0.1) CRITICAL 07-12 13:55:29 [a.py:1] x",
         ERROR, None, "x"),
        (VLLM, "INFO 07-12 13:55:29 a.py:1] x", INFO, None, "x"),
        (VLLM, "(Worker_TP2 pid=8) [rank2]: KeyError: 1", ERROR, 2, "KeyError: 1"),
        (TORCH, "[rank3]:[E421 22:56:09.123456789 ProcessGroupNCCL.cpp:2055] [PG ID 5 PG GUID 23 "
         "Rank 1] gone", ERROR, 3, "gone"),
        (TORCH, "[E421 22:56:09.123456789 ProcessGroupNCCL.cpp:5] [PG ID 0 PG GUID 0(default_pg) "
         "Rank 7] gone", ERROR, 7, "gone"),
        (TORCH, "[W ProcessGroupNCCL.cpp:458] [Rank 2] slow", WARNING, 2, "slow"),
        (TORCH, "[E1001 1:2 broken off", INFO, None, "[E1001 1:2 broken off"),
        (TORCH, "[rank3]: Traceback (most recent call last):", ERROR, 3,
         "Traceback (most recent call last):"),
        (TORCH, "E0606 22:56:09.123000 1234 torch/distributed/elastic/api.py:869] [0] failed",
         ERROR, None, "failed"),
        (TORCH, "[2024-01-31 12:00:00,123] torch.distributed.elastic.multiprocessing.api: "
         "[WARNING] Sending process 7", WARNING, None, "Sending process 7"),
        (PLAIN, "gpu-a:41:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", INFO, None,
         "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"),
        (PLAIN, "gpu-a:41:99 [3] init.cc:8 (ncclInit) NCCL WARN bad", WARNING, None, "bad"),
        (PLAIN, "gpu-a:41:99 NCCL CALL ncclSend(1)", DEBUG, None, "ncclSend(1)"),
        (TENSORRT, "[07/12/2026-13:55:29] [TRT-LLM] [RANK 3] [I] x", INFO, 3, "x"),
        (TENSORRT, "[TRT-LLM] [MPI_Rank 2] [E] x", ERROR, 2, "x"),
        (TENSORRT, "[07/12/2026-13:55:29] [TRT-LLM] [W] x", WARNING, None, "x"),
        (TENSORRT, "[TensorRT-LLM][ERROR] x", ERROR, None, "x"),
        (KERNEL, "[  388.565288] NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.",
         ERROR, None, "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus."),
        (KERNEL, "[Tue Sep  1 10:00:00 2026] usb 1-1: new device", INFO, None,
         "usb 1-1: new device"),
        (KERNEL, "kern: warning: [2026-09-01T10:00:00Z]: SXid (PCI:0000:aa:00.0): 24007, x",
         ERROR, None, "SXid (PCI:0000:aa:00.0): 24007, x"),
        (KERNEL, "Sep 01 10:00:00 gpu-a kernel: Out of memory: Killed process 7 (VLLM::Worker_TP)",
         ERROR, None, "Out of memory: Killed process 7 (VLLM::Worker_TP)"),
        (PLAIN, "[gpu-a:7:0:9] Caught signal 7 (Bus error: nonexistent physical address)", ERROR,
         None, "Caught signal 7 (Bus error: nonexistent physical address)"),
        (PLAIN, "DeepEP timeout check failed: rank = 5, thread = 1", ERROR, 5,
         "DeepEP timeout check failed: rank = 5, thread = 1"),
        (PLAIN, "terminate called after throwing an instance of 'c10::Error'", ERROR, None,
         "terminate called after throwing an instance of 'c10::Error'"),
        (PLAIN, "/srv/a.py:7: UserWarning: old", WARNING, None, "/srv/a.py:7: UserWarning: old"),
        (PLAIN, "RuntimeError: broken", ERROR, None, "RuntimeError: broken"),
        (PLAIN, "torch.OutOfMemoryError: CUDA out of memory.", ERROR, None,
         "torch.OutOfMemoryError: CUDA out of memory."),
        (PLAIN, "quite normal", INFO, None, "quite normal"),
    ],
)  # fmt: skip
def test_one_line(grammar: Grammar, line: str, level: Level, rank: int | None, text: str) -> None:
    (record,) = read(line, grammar)
    assert (record.level, record.rank, record.text) == (level, rank, text)
    assert record.line == line


def test_a_sglang_traceback_belongs_to_its_rank_until_the_empty_line() -> None:
    records = read(
        "[2026-07-12 13:55:29 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "KeyError: 7\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "\n"
        "something else\n",
        SGLANG,
    )
    assert [(r.level, r.rank) for r in records] == [(ERROR, 3)] * 6 + [(INFO, None)]


def test_interleaved_vllm_processes_keep_their_tracebacks() -> None:
    records = read(
        "(Worker_TP0 pid=5) Traceback (most recent call last):\n"
        "(Worker_TP1 pid=6) INFO 07-12 13:55:29 [a.py:1] fine\n"
        '(Worker_TP0 pid=5)   File "a.py", line 1\n'
        "(Worker_TP1 pid=6) just a print\n"
        "(Worker_TP0 pid=5) INFO 07-12 13:55:29 [a.py:1] on\n"
        "(Worker_TP0 pid=5) another print\n",
        VLLM,
    )
    assert [(r.level, r.rank) for r in records] == [
        (ERROR, 0), (INFO, 1), (ERROR, 0), (INFO, 1), (INFO, 0), (INFO, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("grammar", "tells"),
    [
        (VLLM, "(Worker_TP1 pid=7) INFO 07-12 13:55:29 [a.py:1] on"),
        (VLLM, "(Worker pid=7) INFO 07-12 13:55:29 [a.py:1] rank 1 in world size 2 is assigned as "
               "DP rank 0"),
        (SGLANG, "gpu-a:7:9 [1] NCCL INFO ncclCommInitRank comm 0x5 rank 1 nranks 8 cudaDev 1"),
    ],
)  # fmt: skip
def test_a_rank_that_is_known_later_is_that_of_earlier_lines(grammar: Grammar, tells: str) -> None:
    early = "gpu-a:7:9 [1] NCCL INFO early\n"
    head = "[2026-07-12 13:55:29] x\n" if grammar is SGLANG else tells + "\n"
    dialect, ranks = survey("engine", (early + head + tells).encode())
    assert dialect.grammar is grammar
    assert ranks == {7: 1}
    assert (
        RecordReader("engine", Arrivals(), dialect, ranks).read(decode(early.encode()))[0].rank == 1
    )
    reader = RecordReader("engine", Arrivals(), dialect)
    records = reader.read(decode((early + tells).encode()))
    assert [records[0].rank, settled(records, reader.ranks)[0].rank] == [None, 1]


def test_a_rank_of_a_smaller_communicator_is_not_the_global_one() -> None:
    line = "gpu-a:7:9 [1] NCCL INFO ncclCommInitRank comm 0x5 rank {} nranks {} cudaDev 1\n"
    _, ranks = survey("engine", (line.format(5, 8) + line.format(1, 4)).encode())
    assert ranks == {7: 5}


BAR = "Capturing batches (bs=8 avail_mem=3.10 GB):  25%|##        | 1/4 [00:02<00:06,  2.08s/it]"


@pytest.mark.parametrize(
    ("grammar", "head"),
    [
        (SGLANG, "[2026-07-12 13:55:29 TP1 EP1] "),
        (SGLANG, "[18:19:57 TP1] "),
        (VLLM, "(Worker_TP1 pid=7) INFO 07-12 13:55:29 [a.py:1] "),
        (BUILTIN, "[2026-01-31 12:00:00.123 TP1 capture] INFO "),
        (PLAIN, "[rank1]:[E421 22:56:09.123456789 ProcessGroupNCCL.cpp:2055] "),
        (TENSORRT, "[07/12/2026-13:55:29] [TRT-LLM] [RANK 1] [E] "),
    ],
)
def test_a_record_glued_to_a_progress_bar(grammar: Grammar, head: str) -> None:
    records = read(f"  0%|   | 0/4 [00:00<?, ?it/s]\r{BAR}{head}text\nnext\n", grammar)
    assert [(r.prefix, r.text, r.rank, r.part, r.offset == 0) for r in records[:2]] == [
        ("", BAR, None, 0, True),
        (head, "text", 1, 1, True),
    ]
    assert records[0].level is INFO


def test_native_text_glued_to_a_progress_bar() -> None:
    bar, warning = read(BAR + "/srv/a.py:7: UserWarning: old\n", SGLANG)
    assert (bar.text, bar.level, warning.level) == (BAR, INFO, WARNING)


def test_a_record_that_a_bar_overwrites() -> None:
    head = "[2026-07-12 13:55:29 TP1] "
    records = read(f"{head}Capture begin\r 0%|  | 0/4 [00:00<?, ?it/s]\r{BAR}\n", SGLANG)
    assert [record.line for record in records] == [head + "Capture begin", BAR]


def test_a_bar_below_the_name_of_its_process() -> None:
    (record,) = read(f"(Worker_TP1 pid=7) \r 0%|  | 0/4 [00:00<?, ?it/s]\r{BAR}\n", VLLM)
    assert (record.text, record.rank, record.pid) == (BAR, 1, 7)


def test_windows_line_ends_and_colours() -> None:
    (record,) = read(
        b"\x1b[0;36m(Worker_TP1 pid=7)\x1b[0;0m INFO 07-12 13:55:29 \x1b[90m[a.py:1]\x1b[0m x\r\n",
        VLLM,
    )
    assert (record.rank, record.text) == (1, "x")


def test_a_line_of_a_hundred_kilobytes() -> None:
    text = "server_args=ServerArgs(" + "error='Traceback', " * 6000
    (record,) = read(f"[2026-07-12 13:55:29 TP1] {text}\n", SGLANG)
    assert (record.text, record.rank) == (text, 1)


WRAPPED = {
    "compose": ("engine-1  | ", None),
    "k8s": ("2026-07-12T13:55:29.123456789Z stdout F ", None),
    "mpirun": ("[1,3]<stderr>:", 3),
    "srun": (" 3: ", 3),
    "ray": ("(SchedulerActor pid=77, ip=10.0.0.2) ", 1),  # As its pid has said before.
    "torchrun": ("[default3]:", 3),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers(name: str) -> None:
    outer, rank = WRAPPED[name]
    inner = ["[2026-07-12 13:55:29 TP1] hi", "[2026-07-12 13:55:29] main", "bare", "more"]
    lines = [outer + line for line in inner]
    dialect, _ = survey("engine", "\n".join(lines).encode())
    assert dialect.names == ("sglang", name)
    assert named(dialect.names) == dialect
    records = read("\n".join(lines), dialect)
    assert [record.text for record in records] == ["hi", "main", "bare", "more"]
    assert [record.line for record in records] == lines
    assert [record.rank for record in records] == [1, rank, rank, rank]


def test_wrappers_in_wrappers() -> None:
    lines = ["job-1  | [1,2]<stdout>:[TensorRT-LLM][ERROR] x"] * 3
    dialect = detect(lines)
    assert dialect == Dialect(TENSORRT, (BY_NAME["compose"], BY_NAME["mpirun"]))
    assert [(r.rank, r.text) for r in read("\n".join(lines), dialect)] == [(2, "x")] * 3


@pytest.mark.parametrize(
    ("lines", "grammar"),
    [
        (["shell says hi", "[2026-01-31 12:00:00.123 TP1] INFO x"], BUILTIN),
        (["[rank1]:[E421 22:56:09.1 a.cpp:5] x"] * 9 + ["[2026-07-12 13:55:29 TP1] x"], SGLANG),
        (["[rank1]: KeyError"] * 9, TORCH),
        (["[  388.565288] NVRM: x"], KERNEL),
        (["what is this"], PLAIN),
        ([], PLAIN),
    ],
)
def test_detection(lines: list[str], grammar: Grammar) -> None:
    assert detect(lines) == Dialect(grammar)


def test_a_rank_log_of_ours_keeps_rank_and_phase_under_native_lines() -> None:
    records = read(
        "[2026-01-31 12:00:00.123 TP3 capture] INFO x\n"
        "gpu-a:7:9 [0] NCCL INFO y\n"
        "[rank0]:[W421 22:56:09.1 a.cpp:5] z\n",
        BUILTIN,
        "rank-3",
    )
    assert [(r.rank, r.phase) for r in records] == [(3, "capture")] * 3
