"""A controller behind HTTP, for a machine whose own program is not in Python. Bound to this computer only.

    POST /step   {"obs": [...], "reward": 0.0, "terminated": false, "truncated": false, "first": true}
    reply        {"action": [...], "uncertainty": {...}, "familiar": true}

`obs` is what the machine observes now and `reward` what the last action earned. `first` begins an episode; there was no
action before it. With `terminated` or `truncated`, `obs` was the last of its episode, and the reply's action is null.
Every other reply is {"error": "one line"} with a status of 400 or more. Messages are answered one after the other.

A page in a browser must not be able to steer a machine. So a message must be JSON by its content type, which no page
may send to another origin unasked, and its host must be this computer.
"""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from pydantic import ValidationError

from posterity.control.controller import Controller
from posterity.control.pilots import Forecast
from posterity.errors import UserError
from posterity.settings import Settings
from posterity.types import HostArray, Record

HOST = "127.0.0.1"
MOST_BYTES = 64 * 1024  # of a message
JUDGED_EVERY = 10  # messages
PATIENCE = 60.0  # seconds after which a silent connection is closed


class Step(Settings):
    """One message of a machine."""

    obs: tuple[float, ...]
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    first: bool = False


class RefusedError(Exception):
    """A message that is not answered, and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Session:
    """The conversation with one machine: what it was told to do last."""

    def __init__(self, controller: Controller, budget_ms: float) -> None:
        self.controller, self.budget_ms = controller, budget_ms
        self._last: tuple[HostArray, HostArray] | None = None  # observation and action
        self._lock = threading.Lock()
        self._steps, self._known = 0, True  # whether the machine was familiar when it was last judged

    def step(self, message: Step) -> Record:
        """The reply to one message."""
        with self._lock:
            if message.first:
                self._last = None
            elif self._last is None:
                raise RefusedError(HTTPStatus.CONFLICT, "An episode begins with a message that says first: true")
            elif message.reward is None:
                raise RefusedError(HTTPStatus.BAD_REQUEST, "reward: missing; what did the last action earn?")
            else:
                ends = message.terminated, message.truncated
                self.controller.observe(*self._last, message.reward, message.obs, *ends)
            if message.terminated or message.truncated:
                self._last = None
                return {"action": None, "uncertainty": None, "familiar": self._familiar()}
            action = self.controller.act(message.obs, self.budget_ms, first=message.first)
            self._last = cast(HostArray, message.obs), action
            return {
                "action": action.tolist(),
                "uncertainty": self._doubt(message, action),
                "familiar": self._familiar(),
            }

    def _familiar(self) -> bool | None:
        """Judged now and then only: it takes time, and changes slowly."""
        if self.controller.header.calibration is None:
            return None
        if self._steps % JUDGED_EVERY == 0:
            self._known = self.controller.is_familiar()
        self._steps += 1
        return self._known

    def _doubt(self, message: Step, action: HostArray) -> Record | None:
        if not self.controller.learns:
            return None
        return _plain(self.controller.uncertainty(message.obs, action))


def _plain(told: Forecast) -> Record:
    """Both kinds of uncertainty as JSON: standard deviations in the environment's units."""
    return {
        "aleatoric": {"reward": told.aleatoric_reward, "obs": told.aleatoric_obs.tolist()},
        "epistemic": {"reward": told.epistemic_reward, "obs": told.epistemic_obs.tolist()},
    }


class Handler(BaseHTTPRequestHandler):
    """HTTP around a session."""

    protocol_version = "HTTP/1.1"  # the connection stays open from message to message
    disable_nagle_algorithm = True
    timeout = PATIENCE

    def do_POST(self) -> None:
        """Answers a step."""
        try:
            reply = cast(Server, self.server).session.step(self._message())
        except RefusedError as error:
            self._reply(error.status, {"error": str(error)})
        except UserError as error:
            self._reply(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except Exception as error:  # a defect here: the machine is told, and the server stays up
            self._reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"})
        else:
            self._reply(HTTPStatus.OK, reply)

    def do_GET(self) -> None:
        """Says how to ask."""
        self._reply(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "Send a POST to /step with a JSON object"})

    def _message(self) -> Step:
        if self.headers.get("Host", "").rpartition(":")[0] not in (HOST, "localhost"):
            raise RefusedError(HTTPStatus.FORBIDDEN, f"This server answers to {HOST} only")
        if self.path != "/step":
            raise RefusedError(HTTPStatus.NOT_FOUND, f"There is no {self.path[:80]}; send messages to /step")
        if self.headers.get_content_type() != "application/json":
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Say Content-Type: application/json")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "Say Content-Length")
        if int(length) > MOST_BYTES:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A message has at most {MOST_BYTES} bytes")
        try:
            return Step.model_validate_json(self.rfile.read(int(length)))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "The message"
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"{place}: {first['msg']}") from error

    def _reply(self, status: HTTPStatus, content: Record) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status != HTTPStatus.OK:  # what is left of a refused message must not be taken for the next one
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """A line for every step would be too many."""


class Server(ThreadingHTTPServer):
    """Listens on this computer only."""

    daemon_threads = True

    def __init__(self, session: Session, port: int) -> None:
        self.session = session
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise UserError(f"Cannot listen on {HOST}:{port}: {error.strerror}; choose another --port") from error
