"""Videos without a display: what is filmed is what is evaluated, and it can be read back."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from posterity.cli import main
from posterity.experiment import film
from posterity.experiment.film import Clip, Forecast, Shot
from posterity.families import camera as cameras
from posterity.families.drawing import HEIGHT, WIDTH


def clip(steps: int, shade: int, forecast: Forecast | None = None) -> Clip:
    picture = np.full((HEIGHT, WIDTH, 3), shade, np.uint8)
    return Clip("who", "what", [Shot(picture, float(-step), forecast) for step in range(steps + 1)], 10.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks of item search, with snapshots."""
    out = tmp_path_factory.mktemp("video") / "run"
    budget = "--tasks 2 --iterations 2 --models 2 --snapshots"
    assert main(["run", "item-search", "--out", str(out), *budget.split()]) == 0
    return out


def test_a_filmed_episode_is_the_evaluated_one(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["evaluate", str(run), "--episodes", "1", "--scores", "zero-shot"]) == 0
    line = json.loads((run / "evaluation" / "zero-shot.jsonl").read_text().splitlines()[1])
    capsys.readouterr()
    out = tmp_path / "film.gif"
    assert main(["evaluate", str(run), "--video", "--scores", "zero-shot", "--tasks", "2", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"{line['steps']} steps, return {line['return']:.4g}" in told
    with Image.open(out) as image:
        assert image.size == (WIDTH, film.HEAD + HEIGHT + film.FOOT)
        assert image.n_frames > 1  # pyright: ignore[reportAttributeAccessIssue]


def test_tasks_and_runs_stand_side_by_side(run: Path, tmp_path: Path):
    out = tmp_path / "film.gif"
    words = ["--video", "--scores", "train", "--tasks", "1", "2", "--beside", str(run), "--out", str(out)]
    assert main(["evaluate", str(run), *words]) == 0
    with Image.open(out) as image:
        assert image.width == 4 * WIDTH + 3 * film.GAP


def test_a_forecast_is_drawn_from_where_the_return_is():
    """Orange is in a frame if and only if there is a forecast."""

    def oranges(frame: Any) -> int:
        return int((np.abs(frame.astype(int) - film.ORANGE).sum(axis=2) < 30).sum())

    with_it = film.frame([clip(20, 255, Forecast(-3.0, 1.0, 5))], 10)
    assert oranges(with_it[-film.FOOT :]) > 20
    assert oranges(film.frame([clip(20, 255)], 10)) == 0


def test_an_episode_that_is_over_waits_pale_for_the_longer_one():
    frame = film.frame([clip(2, 0), clip(9, 0)], 6)
    middle = film.HEAD + HEIGHT // 2
    assert frame[middle, WIDTH // 2].min() > 100
    assert frame[middle, WIDTH + film.GAP + WIDTH // 2].max() == 0


@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_a_video_can_be_read_back(tmp_path: Path, ending: str):
    if ending == ".mp4" and not film.ffmpeg():
        pytest.skip("no ffmpeg")
    path = film.write_video(tmp_path / f"film{ending}", [clip(5, 40)])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    if ending == ".gif":
        with Image.open(path) as image:
            assert 5 <= image.n_frames <= 6 + 10  # pyright: ignore[reportAttributeAccessIssue]
    else:
        done = subprocess.run([film.ffmpeg(), "-i", str(path)], capture_output=True, text=True, check=False)
        assert f"{WIDTH}x{film.HEAD + HEIGHT + film.FOOT}" in done.stderr


def test_without_ffmpeg_a_video_is_a_gif_and_mp4_is_refused_in_one_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(film, "ffmpeg", lambda: "")
    assert film.write_video(tmp_path / "film", [clip(2, 40)]).name == "film.gif"
    assert main(["evaluate", str(run), "--video", "--out", str(tmp_path / "film.mp4")]) == 2
    assert "apt install ffmpeg" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--video", "--tasks", "3"], "finished tasks 1 to 2"),
        (["--video", "--tasks", "0"], "counted from 1"),
        (["--video", "--out", "film.avi"], "expected .mp4 or .gif"),
        (["--beside", "other"], "go with --video"),
        (["--tasks", "1"], "goes with --video"),
        (["--video", "--tasks", *"1212121"], "at most 6"),
    ],
)
def test_what_cannot_be_filmed_is_one_line(run: Path, words: list[str], said: str, capfd: pytest.CaptureFixture[str]):
    assert main(["evaluate", str(run), *words]) == 2
    err = capfd.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_where_mujoco_has_nothing_to_draw_with_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    from posterity.errors import UserError

    monkeypatch.setattr(cameras, "_works", lambda name: False)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    cameras.renderer.cache_clear()
    with pytest.raises(UserError, match="apt install libegl1"):
        cameras.renderer()
    cameras.renderer.cache_clear()


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (920.0, 2, "920"),
        (24977.8, 4, "24978"),
        (99.4, 2, "99"),
        (99.7, 2, "100"),
        (0.0123, 2, "0.012"),
        (-858.2, 3, "-858"),
    ],
)
def test_numbers_in_a_film_are_written_out(value: float, digits: int, shown: str):
    """Rewards of Meta-World go to thousands: `9.2e+02` is nothing to read while it moves."""
    assert film._number(value, digits) == shown
