"""`posterity serve`: a controller that a machine's own program asks over HTTP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from posterity.commands.arguments import parse, terminal
from posterity.settings import Settings, argument, setting


class ServeArgs(Settings):
    """Answers POST /step on this computer with actions of an exported file, until it is stopped."""

    file: Path = argument(..., "The file that `posterity export` wrote.")
    port: int = setting(8571, "The port to listen on, at 127.0.0.1; 0: any free one.", ge=0, le=65535)
    budget_ms: float = setting(10.0, "Milliseconds to search for an action.", ge=0)
    learn: bool = setting(False, "Go on learning in the background.")
    new_task: bool = setting(False, "The machine is one that was not met yet.")
    save: Path | None = setting(None, "The file to write what was learned to, when the server ends.")
    trust: bool = setting(False, "Run the code of a method that is not posterity's own, if the file names one.")


def serve(args: Sequence[str]) -> int:
    """Serves until Ctrl-C or a signal to end."""
    asked = parse(ServeArgs, args, "serve")
    from posterity.control.controller import Controller
    from posterity.control.server import Server, Session

    console = terminal()
    with Controller.load(asked.file, learn=asked.learn, trust=asked.trust) as controller:
        server = Server(Session(controller, asked.budget_ms), asked.port)  # first: a port in use is told at once
        try:
            if asked.new_task:
                controller.begin_task()
            header = controller.header
            wait = "Compiling, up to a minute." if header.policy is None else "It holds a policy only."
            console.print(f"{asked.file}: {header.method} on {header.family}. {wait}")
            controller.warm_up(asked.budget_ms)
            console.print(f"Ready: POST http://127.0.0.1:{server.server_address[1]}/step. Ctrl-C ends it.")
            signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            server.server_close()
            if asked.save is not None:
                controller.save(asked.save)
                console.print(f"What was learned is in {asked.save} ({controller.progress.updates} updates).")
    return 0
