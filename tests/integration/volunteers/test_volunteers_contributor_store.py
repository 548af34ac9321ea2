"""ContributorStore at a real broker: who is let in, what is kept of him, what an operator does, also by the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient
from replay_games import play_game
from rest_site import RestSite
from typer.testing import CliRunner

from azq import games
from azq.cli.app import app
from azq.config import Config, GatewayConfig
from azq.errors import NotFound
from azq.ledger import Ledger
from azq.parts.volunteers.contribution_counts import DAY_S
from azq.parts.volunteers.contributor_store import RENAMES_PER_DAY, ContributorStore, Volunteer
from azq.parts.volunteers.reputation import HandOuts, Judgement, Trusted, after_batch, standing_of
from azq.parts.volunteers.routes import make_router
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import connect
from azq.wire.machines import PurgedGames, PurgeOrders
from azq.wire.messages import RunRecord, SampleEvent
from azq.wire.tabs import Refused
from daemon.api.app import create_app

GAME = games.load("tic_tac_toe")
NOW_MS = 1_770_000_000_000


@pytest.fixture
def client(broker: Any) -> Iterator[Any]:
    client = connect(broker.control_url)
    yield client
    client.close()


class Door:
    """ContributorStore under a clock that the test turns."""

    def __init__(self, client: Any, **limits: Any) -> None:
        self.now_ms = NOW_MS
        self.all = ContributorStore(client, GatewayConfig(**limits), b"secret", lambda: self.now_ms)

    def come(self, token: str = "", invite: str = "", address: str = "10.0.0.1", device: str = "laptop", name: str = "") -> Volunteer:
        found = self.all.welcome(token, invite, address, device, name)
        assert isinstance(found, Volunteer), found
        return found

    def refused(self, token: str = "", invite: str = "", address: str = "10.0.0.1") -> str:
        found = self.all.welcome(token, invite, address, "laptop")
        assert isinstance(found, Refused)
        return found.reason


def by(guest: Volunteer, uid: int) -> SampleEvent:
    return msgspec.structs.replace(play_game(GAME, uid), worker=f"browser:{guest.contributor}")


def test_a_device_comes_back_by_its_token_of_which_only_a_hash_is_kept(client: Any) -> None:
    door = Door(client)
    ann = door.come()
    assert door.come(ann.token) == ann
    assert door.come(f"{ann.contributor}.wrong").contributor != ann.contributor
    assert door.come("nonsense").contributor != ann.contributor
    secret = ann.token.partition(".")[2]
    kept = b"".join(client.dump(key) for key in client.keys("azq:volunteers:*"))
    assert secret.encode() not in kept
    assert b"10.0.0.1" not in kept


def test_invitations_name_their_guests_and_have_an_end(client: Any) -> None:
    door = Door(client, invited_only=True)
    assert "needs an invitation" in door.refused()
    code = door.all.invite("class 7b", uses=2, days=1)
    assert [door.come(invite=code).name for _ in range(2)] == ["class 7b"] * 2
    assert "used up" in door.refused(invite=code)
    assert "used up" in door.refused(invite="made-up")
    (key,) = client.keys("azq:volunteers:invitation:*")
    assert 0 < client.ttl(key) <= DAY_S
    assert code.encode() not in key
    known = door.come(door.come(invite=door.all.invite("", 1, 1)).token)
    assert known.name.startswith("guest-")


def test_a_contributor_calls_himself_as_he_likes_and_as_nobody_else_does(client: Any) -> None:
    door = Door(client)
    ann = door.come(name="  Ann\tMüller ")
    assert (ann.name, ann.problem) == ("Ann Müller", "")
    assert door.come(ann.token).name == "Ann Müller"
    bob = door.come(name="ANN.müller")
    assert (bob.name, bob.problem) == (f"guest-{bob.contributor[:6]}", "somebody else is called ANN.müller")
    assert door.come(bob.token, name=ann.contributor).problem == f"somebody else is called {ann.contributor}"
    assert "not <" in door.come(bob.token, name="<b>").problem
    assert door.come(bob.token, name="Bob", device="phone").name == "Bob"
    assert [(each.name, each.device) for each in door.all.all()] == [("Ann Müller", "laptop"), ("Bob", "phone")]
    assert door.come(ann.token, name="guest").name == f"guest-{ann.contributor[:6]}"
    assert door.come(bob.token, name="Ann Müller").name == "Ann Müller"


def test_a_name_that_was_given_stays(client: Any) -> None:
    door = Door(client)
    one = door.come(invite=door.all.invite("class 7b", 1, 1), name="Zoe")
    assert (one.name, one.problem) == ("class 7b", "you were given the name class 7b")
    ann = door.come(name="Rude")
    assert door.all.rename(ann.contributor, "") == f"guest-{ann.contributor[:6]}"
    assert "you were given" in door.come(ann.token, name="Rude").problem
    assert door.all.rename(ann.contributor, "class 7b") == "class 7b"


def test_names_change_so_often_a_day(client: Any) -> None:
    door = Door(client)
    ann = door.come(device="")
    for number in range(RENAMES_PER_DAY):
        assert door.come(ann.token, device="", name=f"Ann {number}").problem == ""
    assert "too often" in door.come(ann.token, device="", name="Ann").problem
    door.now_ms += 1000 * DAY_S
    assert door.come(ann.token, name="Ann").name == "Ann"


def test_quotas_by_key_and_by_address(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.parts.volunteers.contributor_store.DEVICES_PER_ADDRESS", 1)
    door = Door(client, keys_per_day=3, games_per_hour=10)
    ann, bob, _ = (door.come() for _ in range(3))
    assert "too many new devices" in door.refused()
    door.come(ann.token)
    door.come(address="10.0.0.2")
    assert door.all.refusal(ann.contributor, 10) == ""
    assert "an hour came from this device" in door.all.refusal(ann.contributor, 1)
    assert "from one address" in door.all.refusal(bob.contributor, 10)
    door.now_ms += 1000 * DAY_S
    assert door.all.refusal(ann.contributor, 10) == ""
    door.come()


def test_histories_change_and_blocks_work_at_once(client: Any) -> None:
    door, other = Door(client), Door(client)
    ann = door.come()
    for each in (door, other):
        each.all.change(ann.contributor, lambda history: after_batch(history, Judgement({1: (0.0,)}, {}, 5, 5)))
    assert other.all.history(ann.contributor).accepted == pytest.approx(2.0, rel=0.01)
    assert door.all.block(ann.contributor, "spam").trust is Trusted.BLOCKED
    assert "spam" in door.refused(ann.token)
    assert door.all.unblock(ann.contributor).trust is Trusted.PROBATION
    assert door.come(ann.token) == ann
    with pytest.raises(NotFound):
        door.all.change("nobody", lambda history: history)
    assert standing_of(door.all.history("nobody")).trust is Trusted.PROBATION


def test_what_is_done_with_games_is_kept_of_contributors_and_for_a_day_of_addresses(client: Any) -> None:
    door = Door(client)
    ann, bob = door.come(), door.come()
    door.all.add_hand_outs({ann.contributor: HandOuts(10, 6, 4), "@10.0.0.1": HandOuts(10, 6, 4), "gone": HandOuts(1)})
    assert door.all.history(ann.contributor).hands == HandOuts(10, 6, 4)
    assert door.all.address_hands(bob.contributor) == HandOuts(10, 6, 4), "who comes from the same address"
    again = Door(client).come(bob.token)
    assert (again.hands, again.address_hands) == (HandOuts(), HandOuts(10, 6, 4))
    assert 0 < max(client.ttl(key) for key in client.keys("azq:volunteers:quota:hands:*")) <= DAY_S
    assert not any(b"10.0.0.1" in key for key in client.keys("*"))


def test_rest_tells_what_a_contributor_and_his_address_did(client: Any, tmp_path: Path) -> None:
    door = Door(client)
    ann = door.come()
    door.all.add_hand_outs({ann.contributor: HandOuts(4, 3, 1), "@10.0.0.1": HandOuts(8, 3, 5)})
    with TestClient(create_app(RestSite(tmp_path).services, [make_router(Config(), client)]), "http://127.0.0.1") as rest:
        told = rest.get(f"/v1/volunteers/{ann.name}").json()
        assert (told["contributor"], told["handed"], told["dropped"], told["address_dropped"]) == (ann.contributor, 4, 1, 5)
        assert rest.get("/v1/volunteers/nobody").status_code == 404


def test_devices_of_whom_no_game_counts_are_forgotten_after_a_day(client: Any) -> None:
    door = Door(client)
    ann, bob, here, rude, late = (door.come() for _ in range(5))
    door.all.credit([by(ann, 1)])
    door.all.block(rude.contributor, "rude")
    door.now_ms += 1000 * DAY_S
    assert door.all.forget() == 0
    door.now_ms += 1
    new = door.come()
    assert door.all.forget({here.contributor}) == 2
    assert {each.contributor for each in door.all.all()} == {each.contributor for each in (ann, here, rude, new)}
    assert door.come(late.token).contributor not in (late.contributor, bob.contributor), "he begins again"


def test_the_switch_turns_everybody_away(client: Any) -> None:
    door = Door(client)
    ann = door.come()
    door.all.turn(on=False, reason="back on Monday")
    assert "no help is wanted" in door.refused(ann.token)
    assert door.all.refusal(ann.contributor, 1) == door.all.closed() == "back on Monday"
    door.all.turn(on=True)
    assert door.come(ann.token) == ann


def test_totals_by_day_month_and_ever(client: Any) -> None:
    door = Door(client)
    ann, bob = door.come(device="phone"), door.come()
    assert door.all.credit([by(ann, 1), by(ann, 2), by(bob, 3)])[ann.contributor]["games"] == 2
    door.now_ms += 1000 * DAY_S
    door.all.credit([by(bob, 4)])
    totals = door.all.totals()
    assert [totals[period]["games"] for period in ("ever", "day")] == [4, 1]
    assert totals["ever"]["contributors"] == 2
    leaders = door.all.leaderboard()
    assert [(row["device"], row["games"], row["games_day"]) for row in leaders] in (
        [("phone", 2, 0), ("laptop", 2, 1)],
        [("laptop", 2, 1), ("phone", 2, 0)],
    )
    assert [row["uptime_s"] for row in leaders] == [0.0, 0.0], "one moment, and a pause that is no work"
    later = [msgspec.structs.replace(by(bob, game), finished_ms=by(bob, game).finished_ms + 1000 * game) for game in (5, 7)]
    door.all.credit(later)
    assert next(row["uptime_s"] for row in door.all.leaderboard() if row["device"] == "laptop") == 7.0
    door.all.block(ann.contributor, "")
    assert len(door.all.leaderboard()) == 1


def test_the_commands_do_what_they_say(client: Any, broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_BROKER__CONTROL_URL", broker.control_url)
    monkeypatch.setenv("AZQ_BROKER__DATA_URL", broker.data_url)
    door = Door(client)
    ann = door.come()
    door.all.credit([by(ann, 1)])
    Ledger(client).create_run(RunRecord("r", b"{}", {}, "", 1))

    def said(*words: str) -> Any:
        answer = CliRunner().invoke(app, ["volunteers", *words, "--json"])
        assert answer.exit_code == 0, answer.output
        return json.loads(answer.stdout)

    (row,) = said("list")
    assert (row["contributor"], row["games"], row["trust"]) == (ann.contributor, 1, "probation")
    assert said("block", ann.name, "--reason", "rude")["blocked"] == ann.contributor
    door.all.add_hand_outs({ann.contributor: HandOuts(4, 3, 1), "@10.0.0.1": HandOuts(8, 3, 5)})
    shown = said("show", ann.contributor)
    assert (shown["reason"], shown["handed"], shown["brought"], shown["dropped"]) == ("rude", 4, 3, 1)
    assert (shown["address_handed"], shown["address_dropped"]) == (8, 5)
    said("unblock", ann.name)
    assert said("rename", ann.name, "--to", "Ann") == {"renamed": ann.contributor, "name": "Ann"}
    assert said("rename", "Ann")["name"] == ann.name
    code = said("invite", "--name", "friends")["link"].partition("#invite=")[2]
    assert door.come(invite=code).name == "friends"
    said("off", "--reason", "later")
    assert door.refused()
    said("on")
    assert said("purge", ann.name, "--run", "r", "--wait", "0") == {"purged": ann.contributor}
    orders = decode(client.get(keys.purges("r")), PurgeOrders).until_ms
    worker = f"browser:{ann.contributor}"
    assert list(orders) == [worker]
    monkeypatch.setattr("azq.parts.volunteers.commands.now_ms", lambda: 7)
    client.set(keys.purged("r", worker), encode(PurgedGames(7, 1, 5, 50)))
    assert said("purge", ann.name, "--run", "r")["share"] == pytest.approx(0.1)
