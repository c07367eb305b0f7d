"""The version of the distribution, in its one place."""

from typing import Final

VERSION: Final = "0.1.0"
