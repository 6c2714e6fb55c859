"""Weights as the rollout kernel takes them: tiles, and what does not fit."""

import pytest

from posterity.kernels import weights
from posterity.kernels.weights import Precision


def test_tiles_cover_a_layer_with_little_padding():
    assert [weights.tiles(size) for size in (1, 16, 48, 64, 128)] == [(16,), (16,), (64,), (64,), (128,)]
    assert [weights.tiles(size) for size in (200, 256, 300)] == [(128, 64, 16), (128, 128), (128, 128, 32, 16)]


@pytest.mark.parametrize(
    ("capability", "room"), [((9, 0), 200), ((10, 0), 200), ((8, 0), 140), ((8, 6), 76), ((8, 9), 76)]
)
def test_how_large_a_network_may_be_depends_on_the_card(
    capability: tuple[int, int], room: int, monkeypatch: pytest.MonkeyPatch
):
    """Padded to 16 x 256 + 256 x 256 + 256 x 32 weights, at two or four bytes: 152 or 304 KB."""
    monkeypatch.setattr(weights, "capability", lambda: capability)
    needs: dict[Precision, int] = {"bf16": 152, "tf32": 304, "f32": 304}
    for precision, needed in needs.items():
        reason = weights.unsupported((4, 256, 256, 8), "elu", precision)
        assert reason == (
            "" if needed <= room else f"the fused planner needs {needed} KB for the weights and has {room}"
        )


def test_a_network_it_has_no_code_for_is_named():
    assert weights.unsupported((4, 8), "elu", "bf16") == "the fused planner needs a hidden layer"
    said = "the fused planner has no activation 'gelu'; it has elu, silu, tanh, relu"
    assert weights.unsupported((4, 16, 8), "gelu", "bf16") == said
    assert weights.unsupported((4, 16, 8), "silu", "bf16") == ""
