"""`python -m panel.supervisor.reach`: see that the supervisor of this node's home answers.

Starts one where none does, and prints `{"socket", "version", "started"}`. Others run it by ssh.
"""

from __future__ import annotations

import json
import sys

from panel import __version__
from panel.config.home import find_home
from panel.domain.errors import PanelError
from panel.supervisor.start import answers, ensure_running


def main() -> int:
    """Print where it listens; return the exit code."""
    try:
        home = find_home()
        started = not answers(home.socket)
        socket = ensure_running(home)
    except PanelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps({"socket": str(socket), "version": __version__, "started": started}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
