"""The command `posterity`: arguments in, one function called, one line out.

Nothing is imported before it is known what was asked for, so `--help` answers at once. A command is a function of the
remaining arguments that returns the exit code.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from posterity import __version__
from posterity.errors import UserError, printable, unknown

COMMANDS = {
    "demo": ("posterity.commands.demo:demo", "a tour of four minutes on a laptop, ending in reports"),
    "families": (
        "posterity.commands.listing:families",
        "the families of tasks; --show NAME draws one, --check FILE.py:NAME checks yours",
    ),
    "methods": ("posterity.commands.listing:methods", "the learners"),
    "presets": ("posterity.commands.listing:presets", "where the settings of a run start from"),
    "run": ("posterity.commands.running:run", "learn a stream of tasks"),
    "resume": ("posterity.commands.running:resume", "go on with a run that was stopped"),
    "sweep": (
        "posterity.commands.sweeping:sweep",
        "families x methods x seeds, on this machine, a Ray cluster or Slurm",
    ),
    "evaluate": (
        "posterity.commands.evaluating:evaluate",
        "zero-shot, Start, Train and Back of a run, apart from training",
    ),
    "join": ("posterity.commands.joining:join", "one run of several that differ only in their seeds"),
    "pack": ("posterity.commands.packing:pack", "a run in small pieces, to be carried to another machine"),
    "unpack": ("posterity.commands.packing:unpack", "a run of such pieces, to go on with"),
    "report": ("posterity.commands.reporting:report", "table, CSV and figures of one run or several"),
    "export": ("posterity.commands.exporting:export", "one learner of a run as a file, to take to a machine"),
    "serve": ("posterity.commands.serving:serve", "answer a machine over HTTP on this computer with an exported file"),
    "bench": ("posterity.commands.benching:bench", "planner, fit, env, run: how fast this machine is"),
    "theory": ("posterity.commands.theory:theory", "coin, radius, complexity, transfer: the paper's theory, run"),
}
DONE, USER_ERROR, INTERRUPTED = 0, 2, 130


def main(args: Sequence[str] | None = None) -> int:
    """The program. Exit codes: 0 done, 2 something only the user can mend, 130 interrupted."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        return _dispatch(words)
    except UserError as error:
        return _complain(str(error))
    except BrokenPipeError:  # whoever read our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _complain(f"{error.strerror or error}{where}")
    except (MemoryError, RuntimeError) as error:  # of the latter JAX's, which are not imported here
        if not (why := _of_the_device(error)):
            raise
        return _complain(why)
    except KeyboardInterrupt:
        print("posterity: interrupted", file=sys.stderr)
        return INTERRUPTED


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return DONE
    if words[0] in ("-V", "--version"):
        print(f"posterity {__version__}")
        return DONE
    if words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS)
    module, _, function = COMMANDS[words[0]][0].partition(":")
    return getattr(importlib.import_module(module), function)(words[1:])


def _complain(text: str) -> int:
    """One line on the error output, without anything that could steer a terminal."""
    print(f"posterity: {printable(' '.join(text.splitlines()))}", file=sys.stderr)
    return USER_ERROR


def _of_the_device(error: Exception) -> str:
    """What the surroundings have to do with an error; empty if it is a defect."""
    text = str(error)
    if isinstance(error, MemoryError):
        return f"There is not enough memory for this; try smaller settings ({text})"
    if "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return f"There is not enough memory on the device for this; try smaller settings ({text})"
    if "Unable to initialize backend" in text or "unknown backend" in text.lower():
        return f"JAX cannot use the device that JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')} names: {text}"
    return ""


def _overview() -> str:
    lines = [f"  {name:<10} {summary}" for name, (_, summary) in COMMANDS.items()]
    head = "posterity: what was learned of earlier tasks is the prior for the next one."
    usage = "usage: posterity COMMAND [options]    posterity COMMAND --help    posterity --version"
    return "\n".join([head, "", usage, "", *lines])
