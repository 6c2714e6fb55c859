"""Executes a notebook and keeps what its cells print and draw, without Jupyter.

    python examples/notebooks/execute.py examples/notebooks/first_lifelong_learner.ipynb

Cells run in order in a folder of their own, so that a second time is like the first.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")


def executed(notebook: dict[str, Any], parameters: Mapping[str, object]) -> dict[str, Any]:
    """The notebook with the outputs of its cells. `parameters` replace those of the cell that is tagged so."""
    names: dict[str, Any] = {}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += 1
        outputs = _run("".join(cell["source"]), names, number)
        if "parameters" in cell["metadata"].get("tags", []):
            unknown = set(parameters) - set(names)
            assert not unknown, f"the notebook has no parameters {sorted(unknown)}"
            names.update(parameters)
        cell["outputs"], cell["execution_count"] = outputs, number
    return notebook


def _run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """One cell: what it printed, its last value, and its figures."""
    import matplotlib.pyplot as plt

    tree, said = ast.parse(source), io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(said):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if said.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": said.getvalue().splitlines(keepends=True)})
    for figure in map(plt.figure, plt.get_fignums()):
        kept = io.BytesIO()
        figure.savefig(kept, format="png", dpi=80, bbox_inches="tight")
        outputs.append(_shown({"image/png": base64.b64encode(kept.getvalue()).decode()}))
    if value is not None and not plt.get_fignums():
        picture = getattr(value, "_repr_png_", lambda: None)()
        data = {"image/png": base64.b64encode(picture).decode()} if picture else {"text/plain": [repr(value)]}
        outputs.append({**_shown(data), "output_type": "execute_result", "execution_count": number})
    plt.close("all")
    return outputs


def _shown(data: dict[str, Any]) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": {}}


def main(path: Path) -> None:
    """Executes the notebook and writes it back."""
    notebook, here = json.loads(path.read_text(encoding="utf-8")), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            executed(notebook, {})
        finally:
            os.chdir(here)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
