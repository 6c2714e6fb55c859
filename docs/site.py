"""Gathers the pages of the documentation site into build/pages; `make docs` builds the site from there.

The Markdown files stay as they are on the hosting site: README, docs/, results/ and examples/ link to each other by
relative paths, also to folders and programs. So the tree is copied, every folder that is linked to gets a page that
lists its files, and the API reference is added.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "pages"
PARTS = ("README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "docs", "results", "examples")
LEFT_OUT = (".xz", ".safetensors", ".posterity")  # large, and nothing to look at
LINK = re.compile(r"(\[[^\]]*)(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
REFERENCE = {
    "Running and reading": ["posterity.api"],
    "Families": ["posterity.families.base.Family", "posterity.families.distributions", "posterity.types"],
    "Methods": ["posterity.agents.base"],
    "The learner in a program of your own": ["posterity.experiment.learner.Learner"],
    "At a machine": ["posterity.control.controller.Controller", "posterity.control.plain.PlainPolicy"],
    "Records": ["posterity.experiment.records"],
}


def tracked() -> list[Path]:
    """The files that belong to the project; everything in its folders where there is no git."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", *PARTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0 and done.stdout:
        return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
    whole = [ROOT / part for part in PARTS]
    return [file for part in whole for file in ([part] if part.is_file() else part.rglob("*")) if file.is_file()]


def page(file: Path, text: str) -> str:
    """A page whose links to folders lead to the folder's own page. Of a link to what is not gathered the text stays."""

    def led(match: re.Match[str]) -> str:
        words, opening, path, place, closing = match.groups()
        target = (file.parent / path).resolve()
        if not target.is_dir():
            gathered = target.suffix not in LEFT_OUT and target.relative_to(ROOT).parts[0] in PARTS
            return match.group(0) if gathered else words[1:]
        inner = "README.md" if (target / "README.md").exists() else "index.md"
        return f"{words}{opening}{path.rstrip('/')}/{inner}{place or ''}{closing}"

    return LINK.sub(led, text)


def listing(folder: Path) -> str:
    """The page of a folder that has none."""
    names = sorted(child.name for child in folder.iterdir() if child.suffix not in LEFT_OUT)
    lines = [f"- [{name}]({name}{'/index.md' if (folder / name).is_dir() else ''})" for name in names]
    return "\n".join([f"# {folder.relative_to(PAGES)}", "", *lines, ""])


def reference() -> str:
    """The API reference; the words are those of the docstrings."""
    lines = ["# API reference", ""]
    for title, names in REFERENCE.items():
        lines += [f"## {title}", "", *(f"::: {name}\n    options:\n      heading_level: 3\n" for name in names)]
    return "\n".join(lines)


def main() -> int:
    """Gathers all of it anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for file in tracked():
        if file.suffix in LEFT_OUT or file == Path(__file__).resolve():
            continue
        copy = PAGES / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            copy.write_text(page(file, file.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(file, copy)
    (PAGES / "docs" / "reference.md").write_text(reference(), encoding="utf-8")
    for folder in (path for path in PAGES.rglob("*") if path.is_dir()):
        if not (folder / "README.md").exists():
            (folder / "index.md").write_text(listing(folder), encoding="utf-8")
    for folder in (path for path in PAGES.rglob("*") if path.is_dir()):
        for file in folder.glob("index.md"):  # a listing links to the page that its folder has
            text = file.read_text(encoding="utf-8")
            file.write_text(
                re.sub(
                    r"\(([^)]*)/index\.md\)",
                    lambda m, at=folder: f"({m[1]}/{'README' if (at / m[1] / 'README.md').exists() else 'index'}.md)",
                    text,
                ),
                encoding="utf-8",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
