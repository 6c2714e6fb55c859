"""The figure of doubt in docs/methods/vblrl.md, from what `posterity bench uncertainty --lanes 4 --json` printed.

python results/uncertainty/figure.py
"""

import json
from pathlib import Path

from posterity.report.doubt import figure

HERE = Path(__file__).parent

if __name__ == "__main__":
    figure(json.loads((HERE / "pendulum-gravity.json").read_text())).savefig(HERE / "doubt.png", dpi=200)
