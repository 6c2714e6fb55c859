"""`python -m posterity` is the command `posterity`."""

import sys

from posterity.cli import main

sys.exit(main())
