"""The figure of doubt in docs/methods/vblrl.md, from a record of the bench.

posterity bench uncertainty --json > results/notes/26-bench-pendulum.json
python results/notes/26-figure.py
"""

import json
from pathlib import Path

from posterity.report.doubt import figure

HERE = Path(__file__).parent

if __name__ == "__main__":
    record = json.loads((HERE / "26-bench-pendulum.json").read_text())
    figure(record).savefig(HERE / "26-doubt.png", dpi=140)
