"""The contribute page's connection and messages in Node: nothing that was finished is forgotten before it was answered for."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from nodejs import WEB, needs_node, node

from azq.wire import tabs
from azq.wire.codec import encode
from azq.wire.messages import GameRecord

pytestmark = needs_node
CONTRIBUTE = WEB / "contribute"


def fields_of(struct: type[msgspec.Struct]) -> list[str]:
    return list(struct.__struct_fields__)


def test_messages_have_the_fields_of_the_wire():
    here = json.loads(node(f'import {{ FIELDS }} from "{CONTRIBUTE}/wire.js"; console.log(JSON.stringify(FIELDS));'))
    known = [*tabs.FromTab.__args__, *tabs.FromGateway.__args__]
    assert here == {kind.__struct_config__.tag: fields_of(kind) for kind in known}


def test_what_a_tab_says_is_read_by_the_gateway_and_what_it_hears_is_understood():
    handed = GameRecord(9, b"\1\0", b"\2\0", b"\3\0\0\0", b"\4\0", b"\5\0\0\0")
    games = (tabs.Handed(9, b"t", encode(handed)), tabs.Handed(10, b"u", luck=2**51 + 1))
    frame = tabs.encode_tab(tabs.PlayGames("r", str(2**63 + 1), {"num_simulations": 8, "algorithm": "puct"}, games, version=6))
    script = f"""
        import {{ fromFrame, tabGame, toFrame }} from "{CONTRIBUTE}/wire.js";
        const bytes = (...values) => Uint8Array.from(values);
        const game = {{ uid: 2 ** 40, ticket: bytes(1), actions: bytes(2), policies: bytes(3), rootValues: bytes(4), simulations: bytes(5),
          weightVersions: bytes(6), spentMs: 7 }};
        const said = [
          {{ tag: "Hello", page: "1", token: "t", invite: "", device: "d", run: "r", name: "Ann" }},
          {{ tag: "WorkerReady", backend: "wasm", workers: 2, core: "c", features: [], games: 8, version: 5, versions: [4, 5] }},
          {{ tag: "Progress", games: 1, simulations: 2, evaluations: 3, plies: 4, playing: [2 ** 40], version: 5, cpu: 0.5 }},
          {{ tag: "GamesComplete", games: [tabGame(game)] }},
          {{ tag: "EvalResult", games: [tabGame(game)] }},
          {{ tag: "Bye" }},
        ];
        const heard = fromFrame(Uint8Array.from(Buffer.from("{frame.hex()}", "hex")));
        const plain = (value) => JSON.parse(JSON.stringify(value, (_, each) => (ArrayBuffer.isView(each) ? [...each] : each)));
        console.log(JSON.stringify({{ said: said.map((each) => Buffer.from(toFrame(each)).toString("hex")), heard: plain(heard) }}));
    """
    told: dict[str, Any] = json.loads(node(script))
    hello, ready, progress, complete, result, bye = (tabs.from_tab(bytes.fromhex(each)) for each in told["said"])
    assert hello == tabs.Hello("1", "t", "", "d", "r", "Ann")
    assert ready == tabs.WorkerReady("wasm", 2, "c", (), 8, 5, (4, 5))
    assert progress == tabs.TabProgress(1, 2, 3, 4, (2**40,), 5, 0.5)
    assert complete == tabs.GamesComplete((tabs.TabGame(2**40, b"\1", b"\2", b"\3", b"\4", b"\5", b"\6", 7),))
    assert result == tabs.EvalResult(complete.games)
    assert bye == tabs.Bye()
    assert told["heard"]["seed"] == str(2**63 + 1)
    first, second = told["heard"]["games"]
    assert second == {"uid": 10, "ticket": [ord("u")], "record": None, "luck": 2**51 + 1}
    arrays = {"actions": [1, 0], "policies": [2, 0], "rootValues": [3, 0, 0, 0], "simulations": [4, 0], "weightVersions": [5, 0, 0, 0]}
    assert (first["luck"], first["record"]) == (0, {"uid": 9, **arrays, "support": []})


# A gateway and a clock for `Link`: what is sent is read at once, and nothing happens but what the story says.
WORLD = f"""
    import {{ Link, patience }} from "{CONTRIBUTE}/link.js";
    import {{ encode, decode }} from "{WEB}/vendor/msgpack.mjs";
    const world = {{ now: 0, sockets: [], timers: [], states: [], heard: [], log: [], kept: new Set() }};
    const kept = {{ put: ({{ run, uid }}) => world.kept.add(`${{run}} ${{uid}}`),
      drop: (run, uids) => uids.forEach((uid) => world.kept.delete(`${{run}} ${{uid}}`)) }};
    class Socket {{
      constructor(url) {{ this.url = url; this.sent = []; this.bufferedAmount = 0; world.sockets.push(this); }}
      send(frame) {{ this.sent.push(decode(frame)[1]); }}
      close() {{ this.closed = true; }}
      say(...message) {{ this.onmessage({{ data: encode([{tabs.TAB_SCHEMA}, message]).slice().buffer }}); }}
      welcome() {{ this.onopen(); this.say("Welcome", "c", "t", "n", "r", "0"); }}
    }}
    const link = new Link({{ url: "ws://x", hello: () => ({{ page: "1", token: "", invite: "", device: "", run: "" }}), kept, Socket,
      now: () => world.now, random: () => 0.5, wait: (call, ms) => world.timers.push([call, ms]),
      on: {{ message: ({{ tag }}) => world.heard.push(tag), state: (state, why) => world.states.push(state) }} }});
    const game = (uid, size = 1) => ({{ uid, ticket: new Uint8Array(1), actions: new Uint8Array(size), policies: new Uint8Array(1),
      rootValues: new Uint8Array(1), simulations: new Uint8Array(1), weightVersions: new Uint8Array(1), spentMs: 0 }});
    const tags = (socket) => socket.sent.map(([tag]) => tag);
    const brought = (socket) => socket.sent.filter(([tag]) => tag === "GamesComplete").map(([, games]) => games.map((each) => each[1]));
    const say = (value) => world.log.push(value);
"""


def story(script: str) -> list[Any]:
    """What a story logs."""
    return list(json.loads(node(WORLD + script + "console.log(JSON.stringify(world.log));")))


def test_finished_games_are_offered_again_until_they_are_answered_for():
    said = story(
        """
        link.take([{ ...game(1), run: "r" }, { ...game(5), run: "other" }]);
        link.start();
        const [one] = world.sockets;
        one.welcome();
        link.offer(game(2)); link.offer(game(3));
        say(brought(one));
        one.say("Accepted", [1], {});
        one.onclose({ reason: "gone" });
        link.offer(game(4));
        world.timers.at(-1)[0]();
        const two = world.sockets.at(-1);
        two.welcome();
        say(brought(two));
        two.say("Refused", "late", "", [2], false);
        say([link.unanswered, [...world.kept]]);
        two.say("Welcome", "c", "t", "n", "other", "0");
        say(brought(two).at(-1));
        two.say("Welcome", "c", "t", "n", "r", "0");
        say(brought(two).at(-1));
        link.forget("r", [3]);
        link.stop();
        say([tags(two).at(-1), two.closed, link.unanswered]);
        """
    )
    assert said == [[[1], [2], [3]], [[2, 3, 4]], [3, ["r 3", "r 4"]], [5], [3, 4], ["Bye", True, 2]]


def test_nothing_is_kept_of_a_game_that_was_answered_for():
    once, again, before, after, *full = story(
        """
        import v8 from "node:v8";
        import vm from "node:vm";
        v8.setFlagsFromString("--expose-gc");
        const gc = vm.runInNewContext("gc");
        link.start();
        const [one] = world.sockets;
        one.welcome();
        const play = (first, last) => {
          for (let uid = first; uid <= last; uid++) { link.offer(game(uid)); one.say("Accepted", [uid], {}); }
          one.sent.length = world.heard.length = 0;
          gc();
          return process.memoryUsage().heapUsed;
        };
        link.offer(game(1)); one.say("Refused", "late", "", [1], false); say(brought(one));
        link.offer(game(1)); say(brought(one));
        say(play(2, 4000)); say(play(4001, 40000));
        for (let uid = 1; uid < 600; uid++) link.offer(game(uid));
        say(link.full);
        one.say("Accepted", [...Array(100).keys()], {}); say(link.full);
        """
    )
    assert (once, again) == ([[1]], [[1], [1]]), "handed again, it is brought again"
    assert after < 1.05 * before
    assert full == [True, False]


def test_what_outlives_a_page_is_bounded_in_time_and_number_and_of_its_schema():
    script = f"""
        import {{ sifted }} from "{CONTRIBUTE}/kept.js";
        const made = (uid, at_ms, schema = {tabs.TAB_SCHEMA}) => ({{ run: "r", uid, at_ms, schema }});
        const games = Array.from({{ length: 1100 }}, (_, i) => made(i, 90_000_000 - 1000 * i));
        const others = [made(-1, 1), made(-2, 9e9), made(-3, 90_000_000, null)];
        const {{ worth, rest }} = sifted([...games, ...others], 90_000_000);
        const ends = [rest[0], rest.at(-2), rest.at(-1)].map(({{ uid }}) => uid);
        console.log(JSON.stringify([worth.length, worth.at(-1).uid, worth[0].uid, rest.length, ends]));
    """
    assert json.loads(node(script)) == [1000, 0, 999, 103, [-1, -3, -2]]


def test_games_of_matches_are_brought_as_such():
    uids = [1, tabs.MATCH_UIDS - 1, tabs.MATCH_UIDS, tabs.MATCH_UIDS + 130, 2]
    said = story(
        f"""
        import {{ isMatch, luckOf }} from "{CONTRIBUTE}/wire.js";
        link.take({uids}.map((uid) => ({{ ...game(uid), run: "r" }})));
        link.start();
        world.sockets[0].welcome();
        say(world.sockets[0].sent.slice(1).map(([tag, games]) => [tag, games.map((each) => Number(each[1]))]));
        say({uids}.map((uid) => [isMatch(uid), luckOf(uid)]));
        """
    )
    assert said[0] == [["GamesComplete", uids[:2]], ["EvalResult", uids[2:4]], ["GamesComplete", uids[4:]]]
    assert said[1] == [[tabs.is_match(uid), tabs.luck_of(uid)] for uid in uids]


def test_frames_are_small_enough_for_a_gateway():
    said = story(
        """
        link.start();
        const all = [...Array(134).keys()].map((i) => ({ ...game(i + 1, i < 130 ? 1 : 300000), run: "r" }));
        link.take(all);
        world.sockets[0].welcome();
        say(brought(world.sockets[0]).map((games) => games.length));
        """
    )
    assert said == [[64, 64, 4, 2]]


def test_it_comes_back_after_a_random_share_of_a_bound_that_doubles_and_not_after_a_final_refusal():
    said = story(
        """
        link.start();
        for (let i = 0; i < 8; i++) { world.sockets.at(-1).onclose({}); world.timers.at(-1)[0](); }
        say(world.timers.map(([, ms]) => ms));
        say([patience(3, () => 0), patience(99, () => 1)]);
        world.sockets.at(-1).welcome();
        world.sockets.at(-1).onclose({});
        say(world.timers.at(-1)[1]);
        world.timers.at(-1)[0]();
        const last = world.sockets.at(-1);
        last.onopen();
        last.say("Refused", "blocked", "ask who runs it", [], true);
        say([last.closed, link.wanted, world.states.at(-1), world.sockets.length]);
        """
    )
    assert said == [[500, 1000, 2000, 4000, 8000, 16000, 30000, 30000], [0, 60000], 500, [True, False, "ended", 10]]


def test_a_sleep_and_a_connection_that_carries_nothing_end_it():
    said = story(
        """
        link.start();
        world.sockets[0].welcome();
        world.now += 5000; link.look();
        say(world.sockets.length);
        world.now += 3600000; link.look();
        say([world.sockets.length, world.sockets[0].closed]);
        world.sockets[1].welcome();
        world.sockets[1].bufferedAmount = 9;
        for (let i = 0; i < 8; i++) { world.now += 5000; link.look(); }
        say(world.sockets.length);
        """
    )
    assert said == [1, [2, True], 3]


def test_what_is_no_message_ends_it_with_a_clear_line():
    said = story(
        """
        link.start();
        world.sockets[0].welcome();
        world.sockets[0].say("Unheard", 1);
        say([link.wanted, world.states.at(-1)]);
        """
    )
    assert said == [[False, "ended"]]


def test_a_page_of_another_time_than_its_gateway_ends_and_asks_to_be_loaded_again():
    (said,) = story(
        """
        link.on.state = (state, why) => state === "ended" && say(why);
        link.start();
        const [one] = world.sockets;
        one.onopen();
        one.onmessage({ data: encode([99, ["Refused", "the frame has schema 2", "", [], false]]).slice().buffer });
        """
    )
    assert said == f"the gateway speaks schema 99, this page {tabs.TAB_SCHEMA}; load the page again"
