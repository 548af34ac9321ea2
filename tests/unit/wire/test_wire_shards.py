from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from azq.ledger.scripts import run_keys
from azq.ledger.types import RequestKey
from azq.wire import keys, shards

names = st.text(min_size=1, max_size=30)


@given(names, st.integers(1, 20))
def test_every_broker_is_ranked_once_and_always_alike(key, count):
    order = shards.ranked(key, range(count))
    assert sorted(order) == list(range(count))
    assert order == shards.ranked(key, reversed(range(count)))


@given(names, st.integers(1, 20))
def test_a_new_broker_takes_its_share_and_moves_nothing_else(key, count):
    before, after = shards.ranked(key, range(count)), shards.ranked(key, range(count + 1))
    assert tuple(shard for shard in after if shard != count) == before
    assert after[0] in (before[0], count)


def test_clients_spread_evenly_and_a_new_broker_takes_one_share():
    clients = [f"selfplay@host{index // 8}:{1000 + index}:1" for index in range(3000)]
    for count in (2, 3, 5, 16):
        spread = Counter(shards.ranked(client, range(count))[0] for client in clients)
        fair = len(clients) / count
        assert len(spread) == count
        assert all(abs(share - fair) < 5 * fair**0.5 for share in spread.values()), spread
        moved = sum(shards.ranked(client, range(count))[0] != shards.ranked(client, range(count + 1))[0] for client in clients)
        assert abs(moved - len(clients) / (count + 1)) < 5 * (len(clients) / (count + 1)) ** 0.5


@given(names, st.integers(0, 99))
def test_a_name_tells_where_its_owner_listens(client, shard):
    assert shards.shard_named(shards.on_shard(client, shard), 100) == shard
    assert shards.shard_named(keys.reply(shards.on_shard(client, shard)), 100) == shard


def test_other_names_are_at_home_on_the_first_broker():
    for name in ("c1", "selfplay@host:7:1", "odd#", "odd#x", "odd#-1", "odd#²", "odd#3"):
        assert shards.shard_named(name, 3) == 0


def test_a_script_of_the_ledger_touches_keys_of_one_slot():
    once = RequestKey("key", "print")
    assert len({key_slot(key.encode()) for key in run_keys("run", once)}) == 1
