"""A network on a sheet: every weight has a place, and comes back from it."""

import jax
import jax.numpy as jnp
import numpy as np

from posterity.kernels import layout
from posterity.kernels.layout import ParamLayout
from posterity.models import mlp

NETWORK = jax.tree.map(lambda leaf: leaf + 0.1, mlp.init(jax.random.key(0), (4, 32, 32, 8)))  # O = 3, A = 1


def test_a_sheet_holds_all_weights_and_gives_them_back():
    plan = layout.layout_of(NETWORK)
    assert plan == ParamLayout(inputs=4, outputs=4, layers=2, units=32)
    sheet = layout.pack(NETWORK, plan, fill=7.0)
    assert sheet.shape == (plan.rows, 32)
    assert int((sheet == 7.0).sum()) == sheet.size - sum(leaf.size for leaf in jax.tree.leaves(NETWORK))
    for one, other in zip(jax.tree.leaves(layout.unpack(sheet, plan)), jax.tree.leaves(NETWORK), strict=True):
        np.testing.assert_array_equal(one, other)


def test_sheets_keep_their_place_under_vmap():
    plan = layout.layout_of(NETWORK)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), NETWORK)
    sheets = jax.vmap(lambda network: layout.pack(network, plan))(both)
    np.testing.assert_array_equal(sheets[1], -layout.pack(NETWORK, plan))


def test_the_layout_of_the_papers_networks():
    paper = ParamLayout(inputs=14, outputs=12, layers=2, units=128)
    assert (paper.wide, paper.heads, paper.first_head, paper.biases, paper.rows) == (16, 16, 144, 176, 180)
    assert [paper.hidden(layer) for layer in (0, 1)] == [(0, 16), (16, 128)]
