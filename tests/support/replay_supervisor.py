"""The real supervisor, whose patience with other engines fits the speed of a replay."""

from __future__ import annotations

import sys

from panel.config.home import find_home
from panel.domain.errors import PanelError
from panel.engines import find_engine
from panel.engines.base import Policy
from panel.engines.external import External
from panel.supervisor.daemon import run_daemon


def main() -> int:
    External.policy = Policy(evidence_s=0.5, grace_s=10.0)
    try:
        run_daemon(find_home(), find_engine)
    except PanelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
