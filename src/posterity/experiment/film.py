"""From played episodes to a video: pictures side by side, with what happens written on them, as mp4 or gif.

mp4 needs ffmpeg, on the path or as the package imageio-ffmpeg. Without it the video is a gif, by Pillow.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from posterity import files
from posterity.errors import UserError
from posterity.families.drawing import BLUE, HEIGHT, INK, ORANGE, PALE, PAPER, WIDTH, blended
from posterity.types import HostArray

HEAD, FOOT, GAP = 52, 126, 8  # pixels above and below a picture, and between two
STRIP = 48, 10  # pixels of the foot that the curve leaves free above and below
FASTEST = {".mp4": 60.0, ".gif": 20.0}  # frames a second
LAST = 1.0  # seconds that the last frame stays


class Forecast(NamedTuple):
    """What the player expects of the steps to come, by its own model."""

    mean: float  # return of the next `steps` steps
    std: float  # of it
    steps: int


class Shot(NamedTuple):
    """One moment of an episode."""

    picture: HostArray  # [H, W, 3] bytes
    total: float  # return so far
    forecast: Forecast | None


class Clip(NamedTuple):
    """One episode."""

    title: str  # who plays
    task: str  # what, with the hidden parameter that the player is not told
    shots: Sequence[Shot]  # the first before any step
    rate: float  # steps a second of its world

    @property
    def total(self) -> float:
        """The return of the episode."""
        return self.shots[-1].total


def write_video(path: Path, clips: Sequence[Clip]) -> Path:
    """Writes the clips side by side. A path without an ending becomes mp4 where ffmpeg is found, else gif."""
    if not path.suffix:
        path = path.with_name(f"{path.name}{'.mp4' if ffmpeg() else '.gif'}")
    check_format(path)
    speed = min(max(clip.rate for clip in clips), 500.0)
    stride = max(1, int(np.ceil(speed / FASTEST[path.suffix])))
    rate = speed / stride
    path.parent.mkdir(parents=True, exist_ok=True)
    (_write_mp4 if path.suffix == ".mp4" else _write_gif)(path, _frames(clips, stride, round(LAST * rate)), rate)
    return path


def check_format(path: Path) -> None:
    """Refuses what cannot be written, before anything is played."""
    if path.suffix not in ("", *FASTEST):
        raise UserError(f"'{path.suffix}' is no format for a video here; expected .mp4 or .gif")
    if path.suffix == ".mp4" and not ffmpeg():
        raise UserError(
            "No ffmpeg to write mp4 with: apt install ffmpeg, or pip install 'posterity[video]'. A .gif needs none"
        )


@cache
def ffmpeg() -> str:
    """The program ffmpeg; empty if there is none."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        module = import_module("imageio_ffmpeg")
        return str(module.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        return ""


def frame(clips: Sequence[Clip], step: int) -> HostArray:
    """[H, W, 3] all clips at a step; those that are over stay at their last."""
    width = len(clips) * WIDTH + (len(clips) - 1) * GAP
    sheet = Image.new("RGB", (width, HEAD + HEIGHT + FOOT), PAPER)
    pen, low, high = ImageDraw.Draw(sheet), *_limits(clips)
    longest = max(len(clip.shots) - 1 for clip in clips)
    for place, clip in enumerate(clips):
        left, now = place * (WIDTH + GAP), min(step, len(clip.shots) - 1)
        shot = clip.shots[now]
        pen.text((left + 12, 6), _short(clip.title, 16, bold=True), INK, _font(16, True))
        pen.text((left + 12, 28), _short(clip.task, 14), INK, _font(14))
        sheet.paste(_fitted(shot.picture, over=step > now), (left, HEAD))
        told = f"step {now}   return {_number(shot.total, 4)}"
        pen.text((left + 12, HEAD + HEIGHT + 6), told, BLUE, _font(14, True))
        if shot.forecast is not None:
            mean, std, steps = shot.forecast
            ahead = "next step" if steps == 1 else f"next {steps} steps"
            words = f"forecast of the {ahead}: {_number(mean, 3)} ± {_number(std, 2)}"
            pen.text((left + 12, HEAD + HEIGHT + 26), words, ORANGE, _font(14))
        _curve(pen, (left + 12, HEAD + HEIGHT + STRIP[0]), clip.shots[: now + 1], longest, (low, high))
    return np.asarray(sheet)


def _frames(clips: Sequence[Clip], stride: int, last: int) -> Iterator[HostArray]:
    """Every so many steps, the last one among them, which stays a while."""
    longest = max(len(clip.shots) - 1 for clip in clips)
    steps = [*range(0, longest, stride), longest]
    for step in steps + [longest] * last:
        yield frame(clips, step)


def _limits(clips: Sequence[Clip]) -> tuple[float, float]:
    """The least and the greatest return of all curves: one scale, so that they compare."""
    totals = [shot.total for clip in clips for shot in clip.shots]
    return min(totals), max(*totals, min(totals) + 1e-9)


def _curve(
    pen: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    shots: Sequence[Shot],
    longest: int,
    limits: tuple[float, float],
) -> None:
    """The return so far in blue, and from its end what is expected, in orange with one standard deviation."""
    (left, top), (low, high) = corner, limits
    wide, tall = WIDTH - 24, FOOT - sum(STRIP)

    def place(step: float, total: float) -> tuple[float, float]:
        share = min(max((total - low) / (high - low), -0.05), 1.05)
        return left + wide * min(step / max(longest, 1), 1.0), top + tall * (1.0 - share)

    pen.rectangle((left, top, left + wide, top + tall), fill=blended(PALE, 0.3))
    now, shot = len(shots) - 1, shots[-1]
    if shot.forecast is not None:
        mean, std, steps = shot.forecast
        end = shot.total + mean
        fan = [place(now, shot.total), place(now + steps, end + std), place(now + steps, end - std)]
        pen.polygon(fan, fill=blended(ORANGE, 0.35))
        pen.line([place(now, shot.total), place(now + steps, end)], fill=ORANGE, width=2)
    if now:
        pen.line([place(step, each.total) for step, each in enumerate(shots)], fill=BLUE, width=2)
    (x, y), r = place(now, shot.total), 3
    pen.ellipse((x - r, y - r, x + r, y + r), fill=BLUE)


def _fitted(picture: HostArray, over: bool) -> Image.Image:
    """The picture in its place; pale once its episode is over."""
    image = Image.fromarray(np.asarray(picture, np.uint8))
    if image.size != (WIDTH, HEIGHT):
        scale = min(WIDTH / image.width, HEIGHT / image.height)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    sheet = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    sheet.paste(image, ((WIDTH - image.width) // 2, (HEIGHT - image.height) // 2))
    return Image.blend(sheet, Image.new("RGB", sheet.size, PAPER), 0.5) if over else sheet


@cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Matplotlib brings it along."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)


def _number(value: float, digits: int) -> str:
    """With so many digits, and all of those before the point: a film has no room for 9.2e+02, nor a reader."""
    return f"{value:.{digits}g}" if abs(value) < 10.0**digits - 0.5 else f"{value:.0f}"


def _short(text: str, size: int, bold: bool = False) -> str:
    """A line that fits above a picture."""
    font, room = _font(size, bold), WIDTH - 24
    if font.getlength(text) <= room:
        return text
    while text and font.getlength(text + "…") > room:
        text = text[:-1]
    return text + "…"


def _write_mp4(path: Path, frames: Iterator[HostArray], rate: float) -> None:
    """Through ffmpeg, frame by frame; a broken one leaves nothing behind."""
    first = next(frames)
    height, width, _ = first.shape
    part = path.with_name(f"{path.name}.part")
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{rate:g}", "-i", "-"]
    made = ["-an", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(part)]
    command = [ffmpeg(), "-y", "-loglevel", "error", *raw, *made]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            process.stdin.write(first.tobytes())
            for each in frames:
                process.stdin.write(each.tobytes())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it tells why below
        said = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        part.unlink(missing_ok=True)
        raise UserError(f"ffmpeg could not write {path}: {(said.splitlines() or ['no reason given'])[-1]}")
    part.replace(path)


def _write_gif(path: Path, frames: Iterator[HostArray], rate: float) -> None:
    """By Pillow, with one palette for all frames, so that what stands still costs nothing."""
    import io

    images = [Image.fromarray(each) for each in frames]
    sample = images[:: max(1, len(images) // 8)]
    joined = Image.new("RGB", (sample[0].width, sample[0].height * len(sample)))
    for number, image in enumerate(sample):
        joined.paste(image, (0, number * image.height))
    palette = joined.quantize(128, dither=Image.Dither.NONE)
    quantised = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    kept = io.BytesIO()
    quantised[0].save(
        kept, "GIF", save_all=True, append_images=quantised[1:], duration=round(1000 / rate), loop=0, optimize=False
    )
    files.replace(path, kept.getvalue())
