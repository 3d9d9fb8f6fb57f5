"""`python -m panel.server.spawner`: import once, wait for an order, fork the gang, leave.

It prints `{"ready": true}` when it is warm and then reads one line from standard input:
`{"argv": [flags], "env": {name: value}, "logs": {source: path}}`. It answers with
`{"pids": {source: pid}}` or `{"error": text, "code": exit code}` and ends. Standard input is also
the gang's lifeline: each process ends itself when its writer is gone.
"""

from __future__ import annotations

import json
import os
import sys

_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # Counting GPUs must not initialise CUDA in the process that is forked.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
_STDIN = 0


def preload() -> None:
    """Import what ranks and front end need, with one thread, as forking demands."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    import torch

    torch.set_num_threads(1)
    import panel.server.frontend
    import panel.server.gang

    if torch.cuda.device_count():
        import panel.server.cuda.assembly  # noqa: F401


def main() -> int:
    """Serve one order; return the exit code."""
    preload()
    _say({"ready": True, "pid": os.getpid()})
    line = _read_line()
    if not line:
        return 0
    order = json.loads(line)
    os.environ.update(order.get("env", {}))
    logs: dict[str, str] = order.get("logs", {})
    from panel.server import frontend
    from panel.server.checks import RefusedError, prepare
    from panel.server.exits import Exit
    from panel.server.gang import fork_gang
    from panel.server.options import OptionError, parse

    try:
        gang = prepare(parse(order["argv"]))
    except OptionError as error:
        return _refuse(Exit.USAGE, error)
    except RefusedError as refused:
        return _refuse(refused.code, refused)
    _say({"pids": fork_gang(gang, frontend.run, logs, _STDIN)})
    return 0


def _refuse(code: int, error: Exception) -> int:
    _say({"error": str(error), "code": int(code)})
    return int(code)


def _say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


def _read_line() -> bytes:
    """Read a line and not a byte more: what follows on the pipe is the children's to see."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(_STDIN, 1)
        if not byte:
            break
        line += byte
    return line


if __name__ == "__main__":
    sys.exit(main())
