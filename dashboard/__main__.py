"""`python -m dashboard` is `dashboard`."""

import sys

from dashboard.cli import main

sys.exit(main())
