"""`posterity theory coin | radius | complexity | transfer`: the paper's theory, run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.table import Table

from posterity.commands.arguments import Terminal, parse, terminal, typed
from posterity.commands.reporting import EPSILON, write_report
from posterity.commands.running import compare, next_folder
from posterity.errors import UserError, unknown
from posterity.settings import Settings, setting
from posterity.tabular import theory as bounds
from posterity.tabular.coin import coin_table
from posterity.tabular.radius import prior_mass_radius


def theory(args: Sequence[str]) -> int:
    """One of the four."""
    if not args or args[0] in ("-h", "--help"):
        print("usage: posterity theory QUESTION [options]    posterity theory QUESTION --help\n")
        print("\n".join(f"  {name:<11} {(function.__doc__ or '').strip()}" for name, function in QUESTIONS.items()))
        return 0
    if args[0] not in QUESTIONS:
        raise unknown("question", args[0], QUESTIONS)
    return QUESTIONS[args[0]](args[1:])


class CoinArgs(Settings):
    """How often a fair coin must be flipped before the posterior is near the truth, by prior."""

    total: int = setting(10, "n1 + n2, the weight of the prior.")
    epsilon: float = setting(0.1, "How near: heads likelihood within epsilon of one half.")
    delta: float = setting(0.3, "Posterior mass allowed to be farther away.")
    as_json: bool = setting(False, "Print JSON, for programs.", alias="json")


def coin(args: Sequence[str]) -> int:
    """Flips a fair coin needs, for each prior (the paper's coin example)."""
    asked = parse(CoinArgs, args, "theory coin")
    rows = coin_table(asked.total, asked.epsilon, asked.delta)
    if asked.as_json:
        facts = [{"prior": [row.heads, row.tails], "flips": row.exact, "printed_in_paper": row.printed} for row in rows]
        print(json.dumps({"epsilon": asked.epsilon, "delta": asked.delta, "table": facts}, indent=1))
        return 0
    table = Table(title=f"Smallest B, epsilon {asked.epsilon:g}, delta {asked.delta:g}")
    for name in ("prior (n1, n2)", "exact", "printed in the paper"):
        table.add_column(name, justify="right")
    for row in rows:
        printed = "" if row.printed is None else str(row.printed)
        table.add_row(f"({row.heads}, {row.tails})", str(row.exact), printed)
    Terminal().print(table)
    return 0


class RadiusArgs(Settings):
    """The prior-mass radius d_pi of a Dirichlet prior for a true row of probabilities."""

    prior: tuple[float, ...] = setting(..., "Dirichlet parameters of the prior.")
    truth: tuple[float, ...] = setting(..., "True probabilities, one per parameter.")
    samples: int = setting(20000, "Monte Carlo draws, for more than two outcomes.")
    as_json: bool = setting(False, "Print JSON, for programs.", alias="json")


def radius(args: Sequence[str]) -> int:
    """How far a Dirichlet prior is from a truth: d_pi of Proposition 4.2."""
    asked = parse(RadiusArgs, args, "theory radius")
    value = float(prior_mass_radius(asked.prior, asked.truth, samples=asked.samples))
    exact = len(asked.prior) == 2
    if asked.as_json:
        known = value if value < float("inf") else None
        print(json.dumps({"prior": asked.prior, "truth": asked.truth, "radius": known, "exact": exact}))
    else:
        print(f"d_pi = {value:.5f} ({'exact' if exact else f'{asked.samples} draws'})")
    return 0


class ComplexityArgs(Settings):
    """Lemma 4.3 and Proposition 4.4: what a prior-mass radius means for observations and steps."""

    radius: float = setting(..., "d_pi, the prior-mass radius.")
    epsilon: float = setting(0.5, "Accuracy: L1 distance of a row (Lemma 4.3), value lost (Proposition 4.4).")
    delta: float = setting(0.1, "Chance of failure.")
    rho: float = setting(0.1, "Posterior mass allowed to be farther away than epsilon.")
    states: int | None = setting(None, "S, for the step bound.")
    actions: int | None = setting(None, "A, for the step bound.")
    gamma: float = setting(0.95, "Discount, for the step bound.")
    as_json: bool = setting(False, "Print JSON, for programs.", alias="json")


def complexity(args: Sequence[str]) -> int:
    """Observations of a pair (Lemma 4.3) and steps of a task (Proposition 4.4), given d_pi."""
    asked = parse(ComplexityArgs, args, "theory complexity")
    if (asked.states is None) != (asked.actions is None):
        raise UserError("The step bound needs both --states and --actions")
    given = (asked.radius, asked.epsilon, asked.delta, asked.rho)
    bounds.check(*given)
    facts: dict[str, float | str | None] = {}
    for name, bound in (
        ("lemma_4_3_order", bounds.concentration_order),
        ("proposition_4_2_observations", bounds.concentration_bound),
    ):
        try:
            facts[name] = bound(*given)
        except UserError as error:  # this bound says nothing here; another may
            facts |= {name: None, f"{name}_why": str(error)}
    if asked.states is not None and asked.actions is not None:
        numbers = {"epsilon": asked.epsilon, "delta": asked.delta, "gamma": asked.gamma}
        bound = bounds.step_bound(asked.states, asked.actions, asked.radius, **numbers)
        facts |= {f"proposition_4_4_{name}": value for name, value in bound._asdict().items()}
    if asked.as_json:
        print(json.dumps(facts, indent=1))
    else:
        for name, value in facts.items():
            shown = "says nothing" if value is None else f"{value:.6g}" if isinstance(value, float) else value
            print(f"{name.replace('_', ' ')}: {shown}")
    return 0


class TransferArgs(Settings):
    """The claim made visible on random MDPs: the prior's radius falls over tasks, and so do the steps a task takes."""

    out: Path | None = setting(None, "Folder for the runs and the figure; default: the next free runs/transfer-NNN.")
    tasks: int = setting(40, "Tasks in the stream.")
    seeds: int = setting(5, "Independent learners per method.")
    epsilon: float = setting(EPSILON, "Value lost below which a policy counts as optimal.")


def transfer(args: Sequence[str]) -> int:
    """Runs the claim: over tasks d_pi of the world posterior falls, and the steps to a good policy with it."""
    asked = parse(TransferArgs, args, "theory transfer")
    console = terminal()
    out = asked.out or next_folder("transfer")
    changes = {"tasks": asked.tasks, "seeds": asked.seeds, "measure_truth": True}
    paths = compare("random-mdp", ("blrl", "boss"), changes, out, typed("theory transfer", args), console)
    write_report(paths, out / "report", "1-", 3, console, asked.epsilon)
    return 0


QUESTIONS: dict[str, Callable[[Sequence[str]], int]] = {
    "coin": coin,
    "radius": radius,
    "complexity": complexity,
    "transfer": transfer,
}
