"""A trace becomes a page: each event that says something has a mark, an arrow runs from sender to taker, faults lie where they meet."""

from __future__ import annotations

import re

from azq.parts.sim.timeline import Picture, events_of, page

TRACE = [
    "1 0.100000 daemon-1:1 publish sim:1 1",
    "2 0.200000 daemon-1:1 snapshot",
    "3 0.300000 worker-2:1 take sim:1 1",
    "4 0.400000 - fault 0.400:kill:3:0.5000 worker-2",
    "5 0.400000 worker-2:1 killed",
    "6 9.000000 - fault 9.000:disk_full:3:0.5000 worker-2",
    "7 9.500000 - broken game <4> was finished and is lost",
]


def test_each_event_that_says_something_has_a_mark_and_a_line_in_the_list():
    text = page("Seed 1 failed", ["azq sim --seed 1"], TRACE)
    assert re.findall(r'<a id="m(\d+)"', text) == re.findall(r'<li id="e(\d+)"', text) == ["1", "3", "4", "5", "6", "7"]
    assert text.count('class="arrow"') == 1
    assert "game &lt;4&gt; was finished" in text
    assert "<script" not in text


def test_faults_stand_at_the_process_they_meet_and_quiet_seconds_are_cut():
    picture = Picture(list(events_of(TRACE)))
    places = {event.number: picture.place(event) for event in picture.shown}
    assert places[4][1] == places[5][1] == picture.rows["worker-2"]
    assert places[6][1] < min(picture.rows.values())
    assert 12 < places[4][0] - places[3][0] < 14
    assert places[6][0] - places[5][0] == 64
