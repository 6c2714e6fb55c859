from posterity.planning import folding


def test_tiles_cover_a_layer_with_little_padding():
    assert [folding.tiles(size) for size in (1, 16, 48, 64, 128)] == [(16,), (16,), (64,), (64,), (128,)]
    assert [folding.tiles(size) for size in (200, 256, 300)] == [(128, 64, 16), (128, 128), (128, 128, 32, 16)]
