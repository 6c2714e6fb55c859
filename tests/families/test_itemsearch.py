import numpy as np
import pytest

from posterity.families.itemsearch import KINDS, OBJECT_IN_TYPE, ROOM_TYPE, ItemSearch, ItemSearchSettings
from posterity.types import Key

FAMILY = ItemSearch()
HOUSES = FAMILY.tasks(Key.of(0).fold("stream"), 4000)


def test_the_tables_are_the_papers():
    np.testing.assert_allclose(ROOM_TYPE.sum(axis=1), 1.0)
    assert ROOM_TYPE[0].tolist() == [0.4, 0.0, 0.4, 0.2]
    assert ROOM_TYPE[3].tolist() == [0.0, 0.0, 0.8, 0.2]
    assert OBJECT_IN_TYPE[1].tolist() == [0.0, 0.2, 1.0]


def test_room_types_come_as_often_as_the_table_says():
    """Houses with nothing to find are drawn again, so the table holds given that there is something."""
    types = np.array([house.factors["types"] for house in HOUSES]) - 1
    seen = np.stack([(types == kind).mean(axis=0) for kind in range(4)], axis=1)
    generator = np.random.default_rng(0)
    drawn = np.stack([generator.choice(4, p=row, size=200_000) for row in ROOM_TYPE], axis=1)
    kept = (generator.random((200_000, 4, 3)) < OBJECT_IN_TYPE[drawn]).any(axis=(1, 2))
    expected = np.stack([(drawn[kept] == kind).mean(axis=0) for kind in range(4)], axis=1)
    assert np.abs(seen - expected).max() < 4 * 0.5 / np.sqrt(4000) + 0.005
    assert (seen[ROOM_TYPE == 0] == 0).all()


def test_objects_lie_in_rooms_that_can_hold_them_as_often_as_the_table_says():
    counts, rooms = np.zeros((4, 3)), np.zeros(4)
    for house in HOUSES:
        for room, kind in enumerate(house.factors["types"]):
            rooms[kind - 1] += 1
            for k, name in enumerate(KINDS):
                counts[kind - 1, k] += bool(set(house.factors["objects"][name]) & set(FAMILY.rooms[room].tolist()))
    share = counts / rooms[:, None]
    assert (share[OBJECT_IN_TYPE == 0] == 0).all()
    assert share[1, 2] == 1.0  # a purple box is in every room of type 2
    assert np.abs(share - OBJECT_IN_TYPE).max() < 0.05  # drawing empty houses again raises it a little


def test_objects_lie_anywhere_in_their_room_and_goals_are_drawn_evenly():
    """Chi-square over 4000 houses; 0.001 quantiles of 15 and 1 degrees of freedom."""
    cells, goals = np.zeros(FAMILY.rooms.shape[1]), np.zeros(2)
    for house in HOUSES:
        for places in house.factors["objects"].values():
            for place in places:
                cells += (FAMILY.rooms == place).sum(axis=0)
        present = [k for k, kind in enumerate(KINDS) if house.factors["objects"][kind]]
        if len(present) == 2:
            goals[present.index(house.factors["goal"])] += 1
    assert ((cells - cells.mean()) ** 2 / cells.mean()).sum() < 37.7
    assert ((goals - goals.mean()) ** 2 / goals.mean()).sum() < 10.8


def test_there_is_always_something_to_find_and_it_can_be_reached_in_one_epoch():
    layout = FAMILY.spec.layout
    assert layout is not None
    distance = np.full(FAMILY.spec.states, np.inf)
    for kind in range(len(KINDS)):
        distance[kind * FAMILY.cells + FAMILY.start] = 0
    for _ in range(FAMILY.spec.max_episode_steps):
        for action in range(FAMILY.spec.actions):
            np.minimum.at(distance, layout.move[:, action], distance + 1)
    for house in HOUSES[:500]:
        goal = house.factors["goal"]
        cells = house.factors["objects"][KINDS[goal]]
        assert cells
        assert all(distance[goal * FAMILY.cells + cell] <= FAMILY.spec.max_episode_steps for cell in cells)


def test_no_room_is_nearer_to_the_start_than_another():
    gap = np.abs(FAMILY.floor[FAMILY.rooms] - FAMILY.floor[FAMILY.start]).sum(axis=-1)
    assert np.unique(np.sort(gap, axis=1), axis=0).shape[0] == 1


def test_walls_stop_and_moves_can_be_undone():
    layout = FAMILY.spec.layout
    assert layout is not None
    for state in range(3 * FAMILY.cells):
        for action in range(4):
            other = layout.move[state, action]
            assert other == state or layout.move[other, (action + 2) % 4] == state


def test_entering_the_object_pays_one_and_ends_the_episode():
    house = HOUSES[0]
    goal = house.factors["goal"]
    cell = house.factors["objects"][KINDS[goal]][0]
    truth = FAMILY.truth(house)
    layout = FAMILY.spec.layout
    assert layout is not None
    assert truth.successor is not None
    enters = layout.move == goal * FAMILY.cells + cell
    assert enters.any()
    assert (truth.successor[enters] == layout.found).all()
    assert (truth.reward[enters] @ FAMILY.spec.levels == 1.0).all()
    other = [house.factors["objects"][kind] for k, kind in enumerate(KINDS) if k != goal]
    start_block = slice(goal * FAMILY.cells, (goal + 1) * FAMILY.cells)
    paying = int((truth.reward[start_block, :, 1] > 0).sum())
    assert paying <= 4 * len(house.factors["objects"][KINDS[goal]]), f"only the goal pays, not {other}"


def test_the_picture_shows_goal_start_and_walls():
    picture = FAMILY.draw(HOUSES[0])
    lines = picture.splitlines()
    assert len(lines) == FAMILY.side + 4
    assert KINDS[HOUSES[0].factors["goal"]][0].upper() in "".join(lines[: FAMILY.side + 2])
    assert "@" in lines[FAMILY.settings.room + 1]
    assert lines[0] == "██" * (FAMILY.side + 2)


@pytest.mark.parametrize("room", [2, 5])
def test_houses_of_other_sizes(room: int):
    family = ItemSearch(ItemSearchSettings(room=room))
    assert family.cells == 4 * room * room + 5
    assert family.rooms.shape == (4, room * room)
