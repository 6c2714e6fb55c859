#!/bin/sh
# A model of this folder from a run that is finished, wherever it was made:
#
#     results/models/add.sh runs/FAMILY [FAMILY [MEMORY]]         e.g. results/models/add.sh runs/walker-gravity walker-gravity 400
#
# The run has to have its checkpoints and lie in runs/FAMILY: the file's header says so, and a test asks for it. MEMORY
# is how many transitions of each task go along (1600 if not given): they are most of a file, so give no more than a
# task has. It writes FAMILY.posterity and FAMILY.txt, films an episode, and prints the line for the table in README.md.
set -e
run=$1 bin=.venv/bin
name=${2:-$($bin/python -c 'import sys, tomllib; print(tomllib.load(open(sys.argv[1] + "/config.toml", "rb"))["family"])' "$run")}
file=results/models/$name.posterity
$bin/posterity export "$run" --out "$file" --task new --memory "${3:-1600}" --force
$bin/posterity evaluate "$file" --episodes 5 | tee "results/models/$name.txt"
$bin/posterity evaluate "$file" --video --out "runs/$name.gif"
$bin/python - "$file" "results/models/$name.txt" <<'PYTHON'
import pathlib, re, sys
file, text = map(pathlib.Path, sys.argv[1:])
played, task, mean, each = re.search(r"task (\d+)(?:, )?(.*): mean return (\S+) \((.*)\)", text.read_text()).groups()
size = file.stat().st_size / 1024
size = f"{size:.0f} KiB" if size < 600 else f"{size / 1024:.1f} MiB"
print(f"| [{file.name}]({file.name}) | {int(played) - 1} | {played}{': ' + task if task else ''} | {mean} | {each} | {size} |")
PYTHON
