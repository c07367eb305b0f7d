"""What a call raises, to look at it."""

from collections.abc import Callable


def raised(call: Callable[[], object]) -> BaseException:
    """Return what the call raises."""
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")
