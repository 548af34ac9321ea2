"""How many leaves fit a message, in literal numbers: 8 MiB less 1,024 bytes for what is no array."""

from __future__ import annotations

import pytest

from azq.wire.leaves import answer_bytes, most_leaves


def test_an_answer_holds_two_bytes_for_each_logit_and_value():
    assert answer_bytes(0, 9, 1) == 1024
    assert answer_bytes(1, 9, 1) == 1024 + 20
    assert answer_bytes(512, 8191, 1) == 8_389_632  # over 8 MiB: 8,388,608


@pytest.mark.parametrize(
    ("packed_size", "actions", "values", "leaves"),
    [
        (1, 8191, 1, 511),  # the answer decides
        (16_384, 9, 1, 511),  # the request does
        (8, 2, 2, 1_048_448),  # both alike
        (8_387_584, 9, 1, 1),
        (8_387_585, 9, 1, 0),
        (1, 4_193_790, 2, 1),
        (1, 4_193_791, 2, 0),
    ],
)
def test_request_and_answer_of_the_most_leaves_each_fit(packed_size, actions, values, leaves):
    assert most_leaves(packed_size, actions, values) == leaves
