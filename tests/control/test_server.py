"""The server answers one message, and refuses all others with one line."""

import http.client
import json
import threading
from pathlib import Path

import numpy as np
import pytest

from posterity.control.controller import Controller
from posterity.control.server import MOST_BYTES, Server, Session
from posterity.errors import UserError

OBS = [1.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def controller(machine_file: Path):
    with Controller.load(machine_file) as loaded:
        loaded.warm_up(5.0)
        yield loaded


@pytest.fixture
def port(controller: Controller):
    server = Server(Session(controller, budget_ms=5.0), 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def ask(port: int, content: object, path: str = "/step", **headers: str) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, json.loads(text)


def test_an_episode_is_played_message_by_message(port: int, controller: Controller):
    status, reply = ask(port, {"obs": OBS, "first": True})
    assert status == 200
    assert set(reply) == {"action", "uncertainty", "familiar"}
    assert len(reply["action"]) == 1
    assert set(reply["uncertainty"]) == {"aleatoric", "epistemic"}
    assert len(reply["uncertainty"]["epistemic"]["obs"]) == 3
    assert reply["familiar"] is True
    seen = len(controller._recent)  # pyright: ignore[reportPrivateUsage]
    action = reply["action"]
    assert ask(port, {"obs": [0.9, 0.1, 0.5]}) == (400, {"error": "reward: missing; what did the last action earn?"})
    assert len(controller._recent) == seen, "nothing is made up"  # pyright: ignore[reportPrivateUsage]
    status, reply = ask(port, {"obs": [0.9, 0.1, 0.5], "reward": -1.5, "terminated": True})
    assert (status, reply["action"]) == (200, None)
    last = controller._recent[-1]  # pyright: ignore[reportPrivateUsage]
    assert len(controller._recent) == seen + 1  # pyright: ignore[reportPrivateUsage]
    np.testing.assert_allclose(last.action, action)
    np.testing.assert_allclose(last.obs, OBS)
    assert (float(last.reward), bool(last.terminated), bool(last.truncated)) == (-1.5, True, False)
    status, reply = ask(port, {"obs": OBS, "reward": 0.0})
    assert (status, reply) == (409, {"error": "An episode begins with a message that says first: true"})


def test_a_connection_stays_open_from_message_to_message(port: int):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for number in range(3):
        message = json.dumps({"obs": OBS, "reward": 0.0, "first": number == 0})
        connection.request("POST", "/step", message, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        assert (reply.status, reply.headers.get("Connection")) == (200, None)
        reply.read()
    connection.close()


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"", 400, "The message: Invalid JSON"),
        (b"{", 400, "Invalid JSON"),
        (b"[" * 60000, 400, "Invalid JSON"),
        (b"\xff\xfe", 400, "Invalid JSON"),
        (b'{"obs": [NaN, 0, 0], "first": true}', 400, "obs.0: Input should be a finite number"),
        ([], 400, "The message: Input should be an object"),
        ({}, 400, "obs: Field required"),
        ({"obs": OBS, "first": True, "extra": 1}, 400, "extra: Extra inputs"),
        ({"obs": OBS, "first": "perhaps"}, 400, "first: Input should be a valid boolean"),
        ({"obs": OBS[:2], "first": True}, 400, "The observation has shape (2,)"),
        ({"obs": [1e300, 0, 0], "first": True}, 400, "not finite"),
        ({"obs": ["one", 0, 0], "first": True}, 400, "obs.0"),
        (b" " * (MOST_BYTES + 1), 413, "at most 65536 bytes"),
    ],
)
def test_a_wrong_message_is_answered_with_one_line(port: int, content: object, status: int, says: str):
    found, reply = ask(port, content)
    assert found == status
    assert says in reply["error"]
    assert "\n" not in reply["error"]
    assert ask(port, {"obs": OBS, "first": True})[0] == 200, "the server stays up"


def test_pages_in_a_browser_and_other_computers_are_refused(port: int):
    message = {"obs": OBS, "first": True}
    assert ask(port, message, **{"Content-Type": "text/plain"})[0] == 415
    assert ask(port, message, Host="example.org:80")[0] == 403
    assert ask(port, message, path="/elsewhere")[0] == 404
    assert ask(port, message, **{"Content-Length": "-1"})[0] == 411


def test_get_says_how_to_ask(port: int):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/step")
    reply = connection.getresponse()
    assert reply.status == 405
    assert "POST" in json.loads(reply.read())["error"]
    connection.close()


def test_it_listens_on_this_computer_only(controller: Controller):
    server = Server(Session(controller, 1.0), 0)
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(UserError, match="choose another --port"):
        Server(Session(controller, 1.0), server.server_address[1])
    server.server_close()
