"""`python -m exporter` is the command `podgpu`."""

import sys

from exporter.cli import main

sys.exit(main())
