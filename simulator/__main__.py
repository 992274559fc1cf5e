"""`python -m simulator` is the command `podgpu demo`."""

import sys

from simulator.demo import main

sys.exit(main())
