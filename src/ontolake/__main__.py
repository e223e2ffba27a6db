"""`python -m ontolake` is the command `onto`."""

import sys

from ontolake.cli import main

sys.exit(main())
