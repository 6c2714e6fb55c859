"""Lifelong reinforcement learning: what was learned of earlier tasks is the prior for the next one."""

__version__ = "0.1.0"
