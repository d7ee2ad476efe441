import re

# What the backends say where a process waits for another one that is gone.
GONE = re.compile(
    "Collective ops is aborted|stopped sending heartbeats|Connection (reset|closed|refused)|Socket closed|Broken pipe|"
    "closed by peer|timed? ?out|NCCL communicator (was aborted|encountered)|ncclRemoteError|ncclSystemError|"
    "remote process exited",
    re.IGNORECASE,
)
OTHERS = (ValueError, ArithmeticError, OSError, LookupError, TypeError, MemoryError)  # never of a lost process


def lost_process(error):
    """Returns what an error says if it means that another process of the training was lost, else None.

    The class of the error depends on the backend: a `RuntimeError` under torch and JAX, an error of `tf.errors` under
    TensorFlow.
    """
    found = None if isinstance(error, OTHERS) else GONE.search(str(error))
    return found and " ".join(str(error)[found.start() :].split())[:200]
