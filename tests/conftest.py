"""What all tests share."""

import importlib.metadata
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# What JAX compiles is kept on disk while the tests run, so that a program which several tests, or both of pytest's
# workers, need is compiled once. Set before JAX is imported, and inherited by the commands that tests start.
_kept = Path(tempfile.gettempdir()) / f"posterity-tests-{os.getuid()}"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_kept))
os.environ["XDG_STATE_HOME"] = str(_kept / "state")  # where the key lies that runs with code of one's own are signed by
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Programs are compiled many times and run for moments: what optimising them takes is never won back.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if importlib.metadata.version("jaxlib").startswith("0.10."):  # elsewhere the flag may be unknown, which ends a process
    # one piece of machine code a program, not 32 for as many cores
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", flags)
# Arrays of different ranks are matched by words in the code ([None], `mlp.across`) or not at all: a [N] that meets a
# [B, N] by mistake would otherwise be a wrong number and no error.
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"

# Files whose agents are alike go to one of pytest's workers, which traces their programs once. What takes longest
# comes first, so that the workers end together; all other files follow, each a group of its own.
TOGETHER = {
    "agents/test_contract.py": "contract",
    "experiment/test_learner.py": "pendulum",
    "experiment/test_evaluate.py": "pendulum",
    "experiment/test_bench.py": "pendulum",
    "experiment/test_run.py": "pendulum",
    "experiment/test_going_on.py": "pendulum",
    "agents/test_vblrl.py": "vblrl",
    "agents/test_vblrl_learning.py": "vblrl",
    "agents/test_vblrl_evaluation.py": "vblrl",
    "control/test_bench.py": "control",
    "control/test_controller.py": "control",
    "control/test_export.py": "control",
    "control/test_playing.py": "control",
    "control/test_server.py": "control",
    "agents/test_actor_learning.py": "actor",
    "soak/test_short.py": "soak",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files named above first; otherwise as they were."""
    order = {name: place for place, name in enumerate(TOGETHER)}
    items.sort(key=lambda item: order.get(str(item.path.relative_to(Path(__file__).parent)), len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, with the files named above together."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        """A file of tests, or a group of files, is what a worker is given."""

        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return TOGETHER.get(file.removeprefix("tests/"), file)

    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


MakeUp = Callable[..., Path]


@pytest.fixture(scope="session")
def made_up() -> MakeUp:
    """Makes a run folder whose return is 100 seed + 10 task + iteration, and whose seeds begin with 7."""

    def make(
        path: Path,
        method: str = "blrl",
        *,
        family: str = "made-up",
        seed: int = 7,
        seeds: int = 3,
        tasks: int = 4,
        iterations: int = 5,
        measured: bool = False,
        more: float = 0.0,  # added to every return
    ) -> Path:
        from posterity.experiment.records import HEADER, encode

        path.mkdir(parents=True)
        (path / "config.toml").write_text(
            f'family = "{family}"\nmethod = "{method}"\npreset = "quick"\nseed = {seed}\nseeds = {seeds}\n'
            f"tasks = {tasks}\niterations = {iterations}\nsteps_per_iteration = 10\n"
        )
        (path / "versions.json").write_text(json.dumps({"sessions": [{"command": "none"}]}))
        lines: list[dict[str, Any]] = []
        for task in range(tasks):
            for lane in range(seeds):
                facts = {"radius": 2.0 / (task + 1)} if measured else {}
                lines.append({"kind": "task", "seed": seed + lane, "task": task, **facts})
            for iteration in range(iterations):
                for lane in range(seeds):
                    facts = {"value_gap": float(iteration < 3 - task)} if measured else {}
                    place = {"kind": "iteration", "seed": seed + lane, "task": task, "iteration": iteration}
                    score = 100.0 * lane + 10 * task + iteration + more
                    lines.append({**place, "return": score, **facts, "wall_seconds": 60.0})
        (path / "records.jsonl").write_bytes(HEADER + b"".join(map(encode, lines)))
        return path

    return make


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty present folder; wide enough a terminal for the tables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def iterate() -> Callable[..., Any]:
    """Goes on with a run for so many iterations, then stops it: `iterate(config, folder, 2)`."""
    from posterity.experiment.progress import Quiet
    from posterity.experiment.run import Outcome, lifelong

    class After(Quiet):
        """Counts iterations."""

        def __init__(self, iterations: int) -> None:
            self.left = iterations

        def advance(self, mean_return: float) -> None:
            self.left -= 1

        def reason(self) -> str:
            return "enough" if self.left <= 0 else ""

    def run(config: Any, folder: Any, iterations: int = 1) -> Outcome:
        stop = After(iterations)
        return lifelong(config, folder, stop, stop.reason)

    return run


@pytest.fixture
def played() -> Callable[[Path, str, dict[int, list[list[float]]]], Path]:
    """Adds a score to a made-up run: seed -> task -> the returns of its episodes."""

    def play(path: Path, name: str, returns: dict[int, list[list[float]]]) -> Path:
        from posterity.experiment.records import encode

        (path / "evaluation").mkdir(exist_ok=True)
        back = name.startswith("back")
        lines = [
            {"score": "back" if back else name, "seed": seed, "task": task, "episode": episode}
            | {"after": len(tasks) if back else task, "return": value, "steps": 5}
            for seed, tasks in returns.items()
            for task, episodes in enumerate(tasks)
            for episode, value in enumerate(episodes)
        ]
        (path / "evaluation" / f"{name}.jsonl").write_bytes(b"".join(map(encode, lines)))
        return path

    return play


_built: dict[bytes, Any] = {}  # the agents that tests share


@pytest.fixture(autouse=True, scope="module")
def _few_enough_programs() -> Iterator[None]:
    """Forgets what was compiled when a file of tests ends and much has gathered.

    Each compiled program holds pieces of memory of its own, and a process may have 65,530 of them on Linux: one that
    keeps the programs of all tests crashes. Until there are many, which is at about 2 GB, they are kept for the files
    to come.
    """
    yield
    pieces = Path("/proc/self/maps")
    if "jax" in sys.modules and (not pieces.exists() or pieces.read_bytes().count(b"\n") > 10_000):
        _built.clear()
        sys.modules["jax"].clear_caches()


@pytest.fixture(autouse=True, scope="session")
def _agents_built_once() -> Iterator[None]:
    """Of agents with networks that are built alike by the name of their method, the first is used for all.

    Building one is nothing; tracing its programs again is most of what a short run takes. That an agent keeps nothing
    outside its state, so that an old one does as a new one would: agents/test_contract.py.
    """
    from posterity.agents import METHODS, Method

    build = Method.build

    def once(self: Method, spec: Any, settings: Any, budget: Any) -> Any:
        if self.finite or self not in METHODS.values():
            return build(self, spec, settings, budget)
        try:
            key = pickle.dumps((self.agent, self.fixed, tuple(spec), settings.model_dump_json(), tuple(budget)))
        except (pickle.PicklingError, AttributeError, TypeError):  # a family's own function, made where it is used
            return build(self, spec, settings, budget)
        if key not in _built:
            _built[key] = build(self, spec, settings, budget)
        return _built[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Method, "build", once)
        yield
