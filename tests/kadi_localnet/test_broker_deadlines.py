from hypothesis import given
from hypothesis import strategies as st

from kadi_localnet.broker.deadlines import Deadlines


def test_keys_come_due_in_order_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("a2", 1.0)):
        deadlines.set(key, at)
    assert deadlines.next() == 1.0
    assert list(deadlines.due(0.5)) == []
    assert list(deadlines.due(2.0)) == ["a", "a2", "b"]
    assert list(deadlines.due(2.0)) == []
    assert len(deadlines) == 1


def test_moving_and_calling_off() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("moved", 1.0)
    deadlines.set("moved", 5.0)
    deadlines.set("off", 2.0)
    deadlines.discard("off")
    deadlines.discard("never there")
    assert deadlines.next() == 5.0
    assert list(deadlines.due(4.0)) == []
    assert list(deadlines.due(5.0)) == ["moved"]
    assert deadlines.next() is None


keys = st.integers(0, 5)
times = st.integers(0, 20).map(float)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), keys, times),
            st.tuples(st.just("discard"), keys, times),
            st.tuples(st.just("due"), keys, times),
        ),
        max_size=60,
    )
)
def test_it_behaves_as_a_dictionary_searched_in_full(steps: list[tuple[str, int, float]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    model: dict[int, float] = {}
    for step, key, at in steps:
        if step == "set":
            deadlines.set(key, at)
            model[key] = at
        elif step == "discard":
            deadlines.discard(key)
            model.pop(key, None)
        else:
            expected = {key for key, when in model.items() if when <= at}
            due = list(deadlines.due(at))
            assert sorted(due) == sorted(expected)
            when_due = [model.pop(key) for key in due]
            assert when_due == sorted(when_due)
        assert deadlines.next() == min(model.values(), default=None)
        assert len(deadlines) == len(model)


def test_deadlines_called_off_take_no_memory() -> None:
    deadlines: Deadlines[int] = Deadlines()
    deadlines.set(-1, 1e9)
    for key in range(10_000):
        deadlines.set(key, 1e6 + key)
        deadlines.discard(key)
    assert len(deadlines._heap) < 200
    assert list(deadlines.due(1e10)) == [-1]
