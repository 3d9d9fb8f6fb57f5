"""The real supervisor, whose patience with other engines fits the speed of a replay.

`replay_supervisor.py [FILE]`: with FILE its GPUs are those that FILE, a line of the GPU sampler,
tells of. LOST_S in the environment: how long a node may be silent.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from panel.config.home import find_home
from panel.domain.errors import PanelError
from panel.engines import find_engine
from panel.engines.base import Policy
from panel.engines.external import External
from panel.supervisor import launcher, probes
from panel.supervisor.daemon import run_daemon
from panel.supervisor.watch.gpus import GpuWatch

SAMPLER = Path(__file__).with_name("fake_sampler.py")


def main(argv: list[str]) -> int:
    External.policy = Policy(evidence_s=0.5, grace_s=10.0)
    launcher.LOST_S = float(os.environ.get("LOST_S", "2.0"))
    if argv:
        command = (sys.executable, str(SAMPLER), argv[0])
        watch = partial(GpuWatch, command=command, control=Path(argv[0]))
        probes.GpuWatch = watch  # type: ignore[misc, assignment]
    try:
        run_daemon(find_home(), find_engine)
    except PanelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
