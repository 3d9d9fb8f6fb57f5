"""`python -m panel.supervisor`: the supervisor in the foreground; the environment says which home.

Exit codes: 0 shut down or told to end, 1 a fault, 2 another one serves this home or wrong settings.
"""

from __future__ import annotations

import sys

from panel.config.home import find_home
from panel.domain.errors import PanelError
from panel.supervisor.daemon import run_daemon


def main() -> int:
    """Run the daemon; return the exit code."""
    try:
        run_daemon(find_home())
    except PanelError as error:
        print(f"moepanel supervisor: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
