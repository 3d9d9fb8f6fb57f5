"""The real supervisor, whose engine `builtin` has a spawner without torch."""

from __future__ import annotations

import sys
from pathlib import Path

from panel.config.home import find_home
from panel.domain.errors import PanelError
from panel.engines import find_engine
from panel.engines.builtin import Builtin
from panel.probes.hang import suspect
from panel.supervisor import kept
from panel.supervisor.daemon import run_daemon


class Fake(Builtin):
    spawner = (str(Path(__file__).with_name("fake_spawner.py")),)

    def missing(self) -> str | None:
        return None


def main() -> int:
    # Tests need not wait as long as operators do.
    suspect.SERVING_S = 2.0
    kept.END_S = 1.0
    try:
        run_daemon(find_home(), lambda name: Fake() if name == "builtin" else find_engine(name))
    except PanelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
