"""``python -m accessa_client`` is the command ``accessa``."""

import sys

from accessa_client.cli import main

sys.exit(main())
