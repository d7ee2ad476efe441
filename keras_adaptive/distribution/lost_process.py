import re

# Messages of the backends in a process that waits for another process that has ended.
GONE = re.compile(
    "Collective ops is aborted|stopped sending heartbeats|Connection (reset|closed|refused)|Socket closed|Broken pipe|"
    "closed by peer|timed? ?out|NCCL communicator (was aborted|encountered)|ncclRemoteError|ncclSystemError|"
    "remote process exited",
    re.IGNORECASE,
)
OTHERS = (ValueError, ArithmeticError, OSError, LookupError, TypeError, MemoryError)  # torch and TensorFlow raise none
OF_JAX = re.compile("[A-Z_]+: Gloo ")  # begins a message that JAX raises as a ValueError


def lost_process(error: BaseException) -> str | None:
    """Returns the message of an error if it means that another process of the training was lost, else None.

    The class of the error depends on the backend: a `RuntimeError` under torch, that or a `ValueError` under JAX, and
    an error of `tf.errors` under TensorFlow. At most 200 characters of the message are returned.

    Example:

    >>> lost_process(RuntimeError("[gloo] Connection closed by peer [10.0.0.2]:4711"))
    'Connection closed by peer [10.0.0.2]:4711'
    >>> lost_process(RuntimeError("CUDA out of memory"))
    """
    other = isinstance(error, OTHERS) and not OF_JAX.match(str(error))
    match = None if other else GONE.search(str(error))
    return " ".join(str(error)[match.start() :].split())[:200] if match else None
