"""What is refused in one line."""

import pytest
from absl import flags

from tests.support.programs import call

REFUSED = (ValueError, OSError, FloatingPointError, flags.Error)  # what `command_line` prints in one line


def refused(function, *arguments, match, error=ValueError, **kwargs):
    """Calls a function, or runs a program with these flags, which must be refused in one line; returns the line."""
    is_program = not callable(function)
    with pytest.raises(REFUSED if is_program else error, match=match) as raised:
        call(function, *arguments) if is_program else function(*arguments, **kwargs)
    message = str(raised.value)
    assert len(message) < 500 and len(message.splitlines()) == 1
    return message
