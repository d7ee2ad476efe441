"""Serves a web page that shows how models score and generate text, and its JSON API.

The page colors every word of a text by its surprisal, compares two runs on a text or two texts on a run, continues a
prompt word by word, and shows the learning curve of a run, which may still be training. docs/page.md describes the page
and its API.

By default, only this machine can connect; see --host. There is no password and no encryption: anyone who can connect
can use the models and see the names, flags and learning curves of the runs.

python -m trainers.serve --run_dir=runs/quickstart
python -m trainers.serve --run_dir=runs/books_adaptive,runs/books_lstm --port=8080
"""

import contextlib
import socket
from pathlib import Path

from absl import flags

from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line

FLAGS = flags.FLAGS
CONNECTIONS = 256  # open at once
EVERYBODY = ("0.0.0.0", "::")
GRACE = 2  # seconds that streams have to end when the server stops


def define_flags():
    paths = "Folder of a trained run, or several with commas between them."
    command_line.define_paths("run_dir", None, paths, required=True)
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the runs' models.")
    host = "Address to listen on. 127.0.0.1 accepts local connections only; 0.0.0.0 accepts connections from any host."
    flags.DEFINE_string("host", "127.0.0.1", host)
    flags.DEFINE_list("host_names", [], "Names by which others may reach the page, besides addresses and localhost.")
    flags.DEFINE_integer("port", 8000, "Port to listen on; 0 for any free one.", 0, 2**16 - 1)
    flags.DEFINE_integer("max_characters", 20_000, "Maximum number of characters in a text.", 1, 10**6)
    flags.DEFINE_integer(
        "max_words", 2_000, "Maximum number of words (pieces, characters or bytes) in a text.", 1, 10**6
    )
    flags.DEFINE_integer("max_length", 500, "Maximum number of words to generate at once.", 1, 10**5)
    flags.DEFINE_integer("max_requests", 32, "Maximum number of requests that compute at once.", 1, 10**4)


def main():
    from trainers.page.app import Page
    from trainers.page.bodies import Limits

    with contextlib.closing(listen(FLAGS.host, FLAGS.port)) as listening:
        page = Page(runs(), Limits(FLAGS.max_characters, FLAGS.max_words, FLAGS.max_length), FLAGS.max_requests)
        page.warm_up()
        host = f"[{FLAGS.host}]" if ":" in FLAGS.host else FLAGS.host
        print(f"Serving {', '.join(page.runs)} on http://{host}:{listening.getsockname()[1]}/ until Ctrl-C", flush=True)
        server(page.app({name.lower() for name in (FLAGS.host, *FLAGS.host_names)})).run([listening])


def listen(host, port):
    """Returns a listening socket, unless the address accepts connections from any host but is not in `EVERYBODY`."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"Cannot listen on --host={host} --port={port} ({reason}): pass another address.") from None
    if listening.getsockname()[0] in EVERYBODY and host not in EVERYBODY:
        listening.close()
        raise ValueError(
            f"--host={host} would accept connections from any host: pass 127.0.0.1 for this machine only, or 0.0.0.0."
        )
    return listening


def runs():
    """Returns the `ServedRun` of each folder of --run_dir, with different names."""
    from trainers.page.served_run import ServedRun

    served = {}
    for path in FLAGS.run_dir:
        RunFolder(path).flags()  # raises a ValueError for other folders
        name = base = Path(path).resolve().name.encode("utf-8", "replace").decode()
        number = 1
        while name in served:
            number += 1
            name = f"{base} ({number})"
        served[name] = ServedRun(path, name, FLAGS.model)
    return list(served.values())


def server(app):
    """Returns the uvicorn server of an ASGI application."""
    import uvicorn

    from trainers.page.connection import Connection

    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,  # another configuration would close the streams of the program's handlers
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
    )
    return uvicorn.Server(config)


if __name__ == "__main__":
    command_line.run(main, define_flags)
