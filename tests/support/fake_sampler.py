"""A GPU sampler that reports what a file says: `fake_sampler.py FILE`, five times a second."""

from __future__ import annotations

import sys
import time
from pathlib import Path

while True:
    print(Path(sys.argv[1]).read_text().strip(), flush=True)
    time.sleep(0.2)
