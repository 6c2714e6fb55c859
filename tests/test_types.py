import subprocess
import sys

import numpy as np

from posterity.types import Key


def test_a_key_always_gives_the_same_stream():
    key = Key.of(3).fold("task", 1)
    np.testing.assert_array_equal(key.generator().random(5), key.generator().random(5))
    assert key.seed() == key.seed()


def test_keys_of_different_places_give_different_streams():
    root = Key.of(3)
    places = [root, root.fold(0), root.fold(0, 0), root.fold(7), Key.of(3 + (7 << 32)), Key.of(4)]
    places += [root.fold("task", 1), root.fold("task", 2), root.fold("step", 1)]
    assert len({key.seed() for key in places}) == len(places)
    assert len({float(key.generator().random()) for key in places}) == len(places)


def test_folding_at_once_or_one_by_one_is_the_same_place():
    assert Key.of(0).fold("task", 3, "act") == Key.of(0).fold("task").fold(3).fold("act")


def test_a_key_does_not_depend_on_the_process():
    """Python's own hash of a string changes from process to process; a key must not, or no run could be resumed."""
    code = "from posterity.types import Key; print(Key.of(5).fold('task', 2).seed())"
    seeds = {subprocess.check_output([sys.executable, "-c", code], text=True).strip() for _ in range(2)}
    assert seeds == {str(Key.of(5).fold("task", 2).seed())}


def test_seeds_fit_what_gymnasium_takes():
    assert all(0 <= Key.of(n).seed() < 2**31 for n in range(100))
