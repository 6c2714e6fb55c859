"""What the bench of doubt measured, as a table and as a figure."""

from pathlib import Path

import pytest

from posterity.report import doubt
from posterity.types import Record


def measured(lanes: int) -> list[Record]:
    """Two kinds of posterior, as the bench has them."""

    def row(kind: str, where: str, transitions: int, **facts: float) -> Record:
        spreads = {f"{name}_spread": 0.1 * value for name, value in facts.items()} if lanes > 1 else {}
        return {"posterior": kind, "where": where, "transitions": transitions, "lanes": lanes, **facts, **spreads}

    told = {"model_rmse": 0.2, "coverage_90": 0.9, "aleatoric_std": 0.1, "epistemic_std": 0.02}
    rows = []
    for kind in ("mean field (paper)", "ensemble"):
        for count in (200, 1000):
            rows += [row(kind, doubt.NEAR, count, **told), row(kind, doubt.FAR, count, epistemic_std=0.5)]
        rows += [row(kind, doubt.NEW, 0, **told), row(kind, doubt.NEW, 16, **told), row(kind, doubt.FITTED, 16, **told)]
    return rows


def test_doubt_far_away_stands_beside_doubt_nearby():
    sheet = doubt.sheet(measured(lanes=1))
    assert sheet.cells("where") == 2 * [doubt.NEAR, doubt.NEAR, doubt.NEW, doubt.NEW, doubt.FITTED]
    assert sheet.cells("doubt far away") == 2 * ["0.500", "0.500", "", "", ""]
    assert sheet.cells("doubt")[0] == "0.020"


def test_with_several_learners_every_number_has_its_spread():
    sheet = doubt.sheet(measured(lanes=4))
    assert sheet.rows[0][3:] == ("0.200 ± 0.020", "0.900 ± 0.090", "0.100 ± 0.010", "0.020 ± 0.002", "0.500 ± 0.050")
    assert "± is one standard deviation over learners" in sheet.notes


@pytest.mark.parametrize("lanes", [1, 4])
def test_the_figure_has_every_kind_in_its_legend_and_a_column_s_width(tmp_path: Path, lanes: int):
    figure = doubt.figure({"measured": measured(lanes)})
    names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert names == ["mean field (paper)", "ensemble"]
    assert figure.get_size_inches()[0] == pytest.approx(3.5)
    figure.savefig(tmp_path / "doubt.png")
    assert (tmp_path / "doubt.png").stat().st_size > 1000
