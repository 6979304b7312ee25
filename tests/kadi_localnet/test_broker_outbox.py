from hypothesis import given
from hypothesis import strategies as st

from kadi_localnet.broker.outbox import Memory, Outbox


def drain(outbox: Outbox) -> list[bytes]:
    frames = []
    while (frame := outbox.pop()) is not None:
        frames.append(frame)
    return frames


def test_frames_leave_in_the_order_they_came() -> None:
    outbox = Outbox(Memory(), max_frames=10, max_bytes=100)
    outbox.put_event(b"1")
    assert outbox.put_reply(b"2")
    outbox.put_event(b"3")
    assert outbox.put_reply(b"4")
    assert drain(outbox) == [b"1", b"2", b"3", b"4"]


def test_the_oldest_events_give_way_and_are_counted() -> None:
    outbox = Outbox(Memory(), max_frames=3, max_bytes=100)
    for name in (b"a", b"b", b"c", b"d"):
        outbox.put_event(name)
    assert outbox.put_reply(b"reply")
    assert outbox.dropped == 2
    assert drain(outbox) == [b"c", b"d", b"reply"]


def test_events_give_way_by_bytes_too() -> None:
    outbox = Outbox(Memory(), max_frames=100, max_bytes=10)
    for name in (b"aaaa", b"bbbb", b"cccc"):
        outbox.put_event(name)
    assert outbox.dropped == 1
    assert outbox.size == 8
    assert drain(outbox) == [b"bbbb", b"cccc"]


def test_a_reply_without_room_is_refused_and_harms_no_event() -> None:
    outbox = Outbox(Memory(), max_frames=100, max_bytes=10)
    assert outbox.put_reply(b"12345678")
    outbox.put_event(b"e")
    assert not outbox.put_reply(b"123")
    outbox.put_event(b"too long")
    assert outbox.dropped == 1
    assert drain(outbox) == [b"12345678", b"e"]


def test_a_lone_frame_is_taken_whatever_its_size() -> None:
    outbox = Outbox(Memory(), max_frames=1, max_bytes=1)
    outbox.put_event(b"event")
    assert outbox.has_room(1000)
    assert outbox.put_reply(b"x" * 1000)
    assert outbox.dropped == 1
    assert not outbox.has_room(1)


@given(
    st.lists(st.tuples(st.sampled_from(["reply", "event", "pop", "clear"]), st.integers(0, 8))),
    st.integers(1, 6),
    st.integers(1, 20),
)
def test_bounds_hold_and_no_accepted_reply_is_lost(
    steps: list[tuple[str, int]], max_frames: int, max_bytes: int
) -> None:
    outbox = Outbox(Memory(), max_frames=max_frames, max_bytes=max_bytes)
    replies: list[bytes] = []
    offered_events = taken_events = 0
    for number, (step, size) in enumerate(steps):
        frame = b"%d:" % number + b"x" * size
        if step == "reply":
            room = outbox.has_room(len(frame))
            assert outbox.put_reply(frame) is room
            if room:
                replies.append(frame)
        elif step == "event":
            outbox.put_event(b"e" + frame)
            offered_events += 1
        elif step == "pop":
            popped = outbox.pop()
            if popped is not None and popped.startswith(b"e"):
                taken_events += 1
            elif popped is not None:
                assert popped == replies.pop(0)
        else:
            taken_events += sum(frame.startswith(b"e") for frame in drain(outbox))
            replies.clear()
        assert len(outbox) <= max_frames
        assert outbox.size <= max_bytes or len(outbox) == 1
    rest = drain(outbox)
    assert [frame for frame in rest if not frame.startswith(b"e")] == replies
    numbers = [int(frame.removeprefix(b"e").split(b":")[0]) for frame in rest]
    assert numbers == sorted(numbers)
    taken_events += len(rest) - len(replies)
    assert taken_events + outbox.dropped == offered_events
    assert (len(outbox), outbox.size) == (0, 0)


def test_clearing_forgets_everything() -> None:
    outbox = Outbox(Memory(), max_frames=5, max_bytes=50)
    outbox.put_event(b"event")
    outbox.put_reply(b"reply")
    outbox.clear()
    assert (outbox.pop(), len(outbox), outbox.size) == (None, 0, 0)
