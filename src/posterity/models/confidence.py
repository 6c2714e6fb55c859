"""Whose prediction to trust, the task model's or the world model's (paper, Definition 4.5, Algorithm 2).

    c = - Var_p(mean_p) - alpha Var_p(sigma_p)        over P particles, unbiased; sigma is the standard deviation

The model with the higher confidence goes on: for the reward, and by itself for the next state. The paper leaves open
how the dimensions of a state are brought together: here variances are in units of the data's deviation and added up.
Released code: two tests joined by "or", on the variances of mean and log-variance, for each dimension and without
alpha; then the world's next state always.

Ours beside it is `blend`: nobody is chosen, both predictions count by how sure each model is of it.

    weight of the world's = v_task / (v_task + v_world)        v = mean_p(sigma_p^2) + Var_p(mean_p), at the same place

What tasks differ by is chance to a model of all tasks, so it is in the world model's sigma and in no spread of means:
v knows of it, c does not. Both means and both variances are averaged with these weights, dimension by dimension.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from posterity.models.dynamics import Prediction
from posterity.models.mlp import across
from posterity.settings import Settings, setting

BackVariant = Literal["confidence", "blend", "task-only", "world-only"]
ALPHA = 1.0  # weight of the spread of predicted deviations in the confidence; the paper gives no value
BACK_VARIANTS: tuple[BackVariant, ...] = ("confidence", "blend", "task-only", "world-only")


class BackwardSettings(Settings):
    """How the task model and the world model are combined when going back to an earlier task."""

    variant: BackVariant = setting(
        "confidence",
        "Whose predictions Back is planned with: the more confident model's, both blended, the task's or the world's.",
    )


class Choice(NamedTuple):
    """Whose predictions go on."""

    prediction: Prediction  # [P, ..., 1 + O]
    world: jax.Array  # [..., 1 + O] true where it is the world model's, or how much of it is


def confidence(prediction: Prediction, scale: jax.Array, alpha: float = ALPHA) -> jax.Array:
    """[..., 1 + O] Definition 4.5 for each dimension of predictions [P, ..., 1 + O], in units of `scale` [1 + O]."""
    units = across(scale, prediction.mean)
    mean = prediction.mean / units
    deviation = jnp.exp(0.5 * prediction.log_variance) / units
    return -mean.var(axis=0, ddof=1) - alpha * deviation.var(axis=0, ddof=1)


def choose(task: Prediction, world: Prediction, scale: jax.Array, alpha: float = ALPHA) -> Choice:
    """For each row the more confident model's prediction; the task model's if they are equal."""
    own, general = confidence(task, scale, alpha), confidence(world, scale, alpha)
    state = own[..., 1:].sum(axis=-1, keepdims=True) < general[..., 1:].sum(axis=-1, keepdims=True)
    reward = own[..., :1] < general[..., :1]
    trusted = jnp.concatenate([reward, jnp.broadcast_to(state, own[..., 1:].shape)], axis=-1)
    mean = jnp.where(trusted[None], world.mean, task.mean)
    return Choice(Prediction(mean, jnp.where(trusted[None], world.log_variance, task.log_variance)), trusted)


def variance(here: Prediction, other: Prediction) -> jax.Array:
    """[..., 1 + O] of what is predicted, chance and doubt together: the same places seen by two draws of networks.

    Particles are in places of their own, so their means differ without any doubt. Half the squared difference of two
    networks at one place is their variance without bias; it is averaged over places, as chance is.
    """
    return (jnp.exp(here.log_variance) + 0.5 * (here.mean - other.mean) ** 2).mean(axis=0)


def blend(task: Prediction, world: Prediction, own: jax.Array, general: jax.Array) -> Choice:
    """Both predictions [P, ..., 1 + O], each by how sure it is, their variances [..., 1 + O] being known."""
    share = own / (own + general)
    much, rest = share[None], (1.0 - share)[None]
    mean = much * world.mean + rest * task.mean
    chance = much * jnp.exp(world.log_variance) + rest * jnp.exp(task.log_variance)
    return Choice(Prediction(mean, jnp.log(chance)), share)
