"""The table and figure of how tasks should be pooled, from the records in pooling/."""

import csv
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

import posterity
from posterity.report.figures import COLOURS, STYLE
from posterity.report.metrics import interval, suboptimal_steps

HERE = Path(__file__).parent / "pooling"
ALIKE = (1, 2, 5, 20)
WAYS = {
    "evidence": (COLOURS["blrl"], "blrl, evidence, unknown pairs from the world"),
    "evidence-task": ("#56B4E9", "blrl, evidence, all pairs from the task"),
    "counts": ("#009E73", "blrl, counts, unknown pairs from the world"),
    "boss": (COLOURS["boss"], "boss"),
}


def main() -> None:
    rows = []
    for alike in ALIKE:
        for way in WAYS:
            run = posterity.read(HERE / f"alike-{alike}-{way}")
            late = slice(10, None)
            rows.append(
                {
                    "alike": alike,
                    "way": way,
                    "radius": interval(run.radius[:, late]),
                    "steps": interval(suboptimal_steps(run, 1.0)[:, late]),
                    "gap at the end": interval(run.gap[:, late, -1]),
                    "hidden": interval(run.hidden_radius[:, late]),
                }
            )
    with (HERE / "table.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        scores = ("radius", "steps", "gap at the end", "hidden")
        writer.writerow(("alike", "way", "score", "mean", "low", "high", "over"))
        for row in rows:
            for score in scores:
                mean, low, high, over = row[score]
                writer.writerow((row["alike"], row["way"], score, f"{mean:.6g}", f"{low:.6g}", f"{high:.6g}", over))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        axes = figure.subplots(1, 2)
        for panel, score, title in zip(
            axes,
            ("radius", "steps"),
            ("prior-mass radius $d_\\pi$", "steps of a task not $\\epsilon$-optimal ($\\epsilon$ = 1)"),
            strict=True,
        ):
            for way, (colour, label) in WAYS.items():
                mine = [row[score] for row in rows if row["way"] == way]
                mean = [score.mean for score in mine]
                error = [score.high - score.mean for score in mine]
                panel.errorbar(ALIKE, mean, yerr=error, color=colour, marker="o", capsize=3, label=label)
            if score == "radius":
                hidden = [row["hidden"].mean for row in rows if row["way"] == "evidence"]
                panel.plot(ALIKE, hidden, color="grey", linestyle="--", label="the hidden world itself")
            panel.set(
                xscale="log", xlabel="how alike the tasks are (concentration of the hidden world)", ylim=(0, None)
            )
            panel.set_xticks(ALIKE, [str(alike) for alike in ALIKE])
            panel.minorticks_off()
            panel.set_title(title, fontsize=10)
        axes[0].legend(fontsize=8)
        figure.suptitle("random-mdp, tasks 11-40, 5 seeds, 95 % intervals")
        for suffix in ("png", "svg"):
            figure.savefig(HERE / f"pooling.{suffix}", metadata={"Date": None} if suffix == "svg" else None)


if __name__ == "__main__":
    main()
