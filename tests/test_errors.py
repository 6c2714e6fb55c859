from posterity.errors import unknown


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known_ones():
    text = str(unknown("family", "hoper-gravity", ["walker-gravity", "hopper-gravity"]))
    assert (
        text == "Unknown family 'hoper-gravity'. Did you mean 'hopper-gravity'? Known: hopper-gravity, walker-gravity"
    )


def test_a_name_like_no_other_gets_no_guess():
    assert str(unknown("method", "zzz", ["blrl"])) == "Unknown method 'zzz'. Known: blrl"
