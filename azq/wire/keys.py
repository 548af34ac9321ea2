"""Every key azq owns in Redis: where it is, its type, who may read and write it, and its life.

`TABLE` is the one source: `azq.wire.acl` makes the rights of each role from it. Braces make all keys of one run fall into one slot of a
Redis Cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from azq.wire.kinds import Kind

Plane = Literal["control", "data", "either"]
Role = Literal["daemon", "learner", "rank", "inference", "worker", "gateway", "flower"]
RunKey = Callable[[str], str]  # a key of the run with this name


@dataclass(frozen=True, slots=True)
class Key:
    """A key or a family of them: `<word>` stands for whatever is there, `{run}` for a run's name in braces.

    `rights` of a role are of `r`, `w` by commands of the key's type alone, `x` to end the key too (DEL, EXPIRE), and `own`: all of them,
    where the name begins with that of the user who asks. The daemon may end and rename what it writes.
    """

    pattern: str
    plane: Plane
    type: str
    what: str
    rights: Mapping[Role, str]


def _key(pattern: str, kind: str, what: str, **rights: str) -> Key:
    return Key(pattern, "control", kind, what, rights)  # type: ignore[arg-type]


def _data(pattern: str, kind: str, what: str, **rights: str) -> Key:
    return replace(_key(pattern, kind, what, **rights), plane="data")


def _either(pattern: str, kind: str, what: str, **rights: str) -> Key:
    return replace(_key(pattern, kind, what, **rights), plane="either")


AZQ_ROLES: tuple[Role, ...] = ("daemon", "learner", "rank", "inference", "worker", "gateway")
_PLAYS_BY = {"learner": "r", "inference": "r", "worker": "r", "gateway": "r"}
_ALL_READ = {**_PLAYS_BY, "rank": "r"}
_ALL_BEAT = dict.fromkeys(_PLAYS_BY, "wx")
_LEARNT = {"daemon": "rw", "learner": "rw", "inference": "r", "worker": "r", "gateway": "r"}
_STORED = _LEARNT | {"learner": "rwx", "gateway": "rwx"}  # networks for browsers
_PLAYED = {"daemon": "rw", "worker": "rw", "gateway": "rw"}
_ENDED = {"daemon": "rw", "worker": "rwx", "gateway": "rwx"}
_HANDED_OVER = {"daemon": "rw", "worker": "w", "gateway": "w"}

# A server tries a user's patterns one after the other: what is asked for each game and each batch comes first.
# fmt: off
TABLE = (
    _data("azq:{run}:eval", "stream", "EvalRequest; group `inference`", daemon="rw", inference="rw", worker="w"),
    _data("azq:reply:<client>", "list", "EvalReply; a minute", daemon="own", inference="wx", worker="own"),
    _key("azq:{run}:open", "hash", "uid -> GameRecord of each game not finished (empty: no ply)", learner="r", **_PLAYED),
    _key("azq:{run}:held:<number>", "set", "uids that the job's lease holds", **_ENDED),
    _key("azq:{run}:samples", "stream", "SampleEvent; group `learner`; deleted when acknowledged", learner="rw", **_HANDED_OVER),
    _key("azq:{run}:ledger", "hash", "counts of games, number of the newest job, sound", learner="rw", **_PLAYED),
    _key("azq:{run}:job:<number>", "hash", "one job: spec, state, attempt, owner, lease_until_ms", **_ENDED),
    _key("azq:{run}:pool", "list", "uids of open games that no lease holds", **_PLAYED),
    _key("azq:{run}:run", "hash", "record, state, reason, times; until the run is deleted", daemon="rw", **_ALL_READ),
    _key("azq:{run}:", "none", "what scripts of a run declare, itself no key", **dict.fromkeys(AZQ_ROLES, "rw")),
    _key("azq:{run}:stall", "string", "there while self-play is held back; seconds", daemon="rw", learner="rwx", worker="r", gateway="r"),
    _key("azq:runs", "set", "names of all runs; for ever", daemon="rw", **_ALL_READ),
    _key("azq:{run}:strikes", "hash", "uid -> leases that ended badly since the game moved last, of open games", **_PLAYED),
    _key("azq:{run}:abandoned", "hash", "uid -> reason", learner="rw", **_PLAYED),
    _key("azq:{run}:jobs", "zset", "jobs not ended, by time of publication", inference="r", **_PLAYED),
    _key("azq:{run}:jobs_done", "list", "the newest ended jobs; capped", **_PLAYED),
    _key("azq:{run}:weights", "stream", "WeightEvent, all of them; plain readers", **_LEARNT),
    _key("azq:{run}:promotions", "stream", "PromotionEvent: which version serves; plain readers", daemon="rw", **_PLAYS_BY),
    _key("azq:{run}:networks", "stream", "ModelEvent: weights that browsers requested; plain readers", daemon="rw", gateway="rw"),
    _key("azq:{run}:onnx", "stream", "ModelEvent of an older azq, for people to play with; plain readers", daemon="rw", gateway="r"),
    _key("azq:{run}:results", "stream", "MatchResult, GradeResult; plain readers", daemon="rw", learner="r", worker="w", gateway="rw"),
    _key("azq:{run}:events", "stream", "RunEvent: what became of the run and its jobs; capped", learner="w", **_HANDED_OVER),
    _key("azq:{run}:once:<name>", "hash", "what a request under an idempotency key created; a day", daemon="rw"),
    _key("azq:once:<name>", "string", "the request that an idempotency key was sent with; a day", daemon="rw"),
    _key("azq:{run}:mended", "string", "what was wrong with the ledger's keys and when it was mended last; an hour", daemon="rw"),
    _key("azq:{run}:aside:<name>", "any", "a value that was wrong there; an hour", daemon="rw"),
    _key("azq:{run}:learner_lease", "hash", "holder, token and until_ms of the one learner", daemon="rw", learner="rw"),
    _key("azq:{run}:learner", "string", "LearnerStatus; seconds", daemon="rw", learner="rw", gateway="r"),
    _key("azq:{run}:learned", "string", "the newest LearnerStatus, alive or not; until the run is deleted", daemon="rw", learner="w"),
    _key("azq:{run}:trial:<what>", "string", "how often an inference worker began what may kill it; ten minutes", inference="rwx"),
    _key("azq:blob:<sha256>", "string", "a blob of the `redis` store, or the manifest of a large one", **_STORED),
    _key("azq:{azq:blob:<sha256>}:<name>", "string", "a chunk of a large blob; an hour until the blob is whole", **_STORED),
    _key("azq:{run}:ranks", "string", "RankTable: the learner's epoch of ranks; a minute", daemon="rw", learner="rwx", rank="r"),
    _key("azq:{run}:rank:<number>", "string", "RankBeat; seconds", learner="rw", rank="rwx"),
    _key("azq:{run}:meeting:<name>", "string", "what ranks of several hosts tell each other to meet; minutes", learner="rwx", rank="rwx"),
    _key("azq:{run}:round", "string", "EvalRound; until the run is deleted", daemon="rw"),
    _key("azq:{run}:history", "stream", "HistoryPoint; capped, about two days; plain readers", daemon="rw"),
    _key("azq:{run}:cost", "string", "Spending: what the run's machines cost so far; until the run is deleted", daemon="rw"),
    _key("azq:cost", "string", "Spending of the whole fleet; for ever", daemon="rw"),
    _key("azq:beat:<worker>", "string", "Heartbeat; seconds", daemon="rw", **_ALL_BEAT),
    _key("azq:deaths", "stream", "ProcessDeath: who ended otherwise than well; capped", daemon="rw"),
    _key("azq:schema", "string", "schema number of all that is kept here; for ever", daemon="rw", **_ALL_READ),
    _key("azq:daemon", "string", '"<host>:<pid>:<start>:<boot and pid namespace>" of the one daemon; seconds', daemon="rw"),
    _key("azq:fleet", "string", "Fleet of the live daemon; seconds", daemon="rw", **_ALL_READ),
    _key("azq:wanted", "string", "WantedRuns: of which somebody wants moves; ten minutes", daemon="rw", inference="r"),
    _key("azq:audit", "stream", "AuditLine: who changed what over REST or by a command; capped", daemon="rw"),
    _key("azq:study:<name>", "string", "StudyRecord: what a sweep found so far; thirty days", daemon="rw"),
    _key("azq:store:key", "string", "what learners sign with what they keep in a store; for ever", daemon="rw", learner="r", rank="r"),
    _key("azq:volunteers:secret", "string", "what tickets and tokens of contributors are signed with; for ever", gateway="rw"),
    _key("azq:volunteers:contributors", "hash", "contributor -> Contributor, without his token; for ever", gateway="rw", daemon="r"),
    _key("azq:volunteers:invitation:<sha256>", "hash", "name, uses: of an invitation, by the hash of its code; days", gateway="rwx"),
    _key("azq:volunteers:quota:<what>", "string", "what an address or contributor spent and did; a day", gateway="rwx", daemon="r"),
    _key("azq:volunteers:totals:<period>", "hash", "games, samples, last game by contributor; up to for ever", gateway="rwx", daemon="r"),
    _key("azq:volunteers:off", "string", "there while contributions are off: why", gateway="r"),
    _key("azq:{run}:purges", "string", "PurgeOrders: whose games leave the window, by the owner; with the run", learner="r"),
    _key("azq:{run}:purged:<worker>", "string", "PurgedGames: what that changed; an hour", learner="w"),
    _key("azq:machines", "hash", "name -> AdmittedMachine; written by the owner alone", daemon="r"),
    _either("azq:dead", "stream", "DeadLetter; capped", daemon="rw", learner="w", inference="w"),
    _either("azq:dead:count", "string", "dead letters ever", daemon="rw", learner="rw", inference="rw"),
    _key("azq._kombu.<binding>.celeryev", "set", "who hears Celery's events", flower="rwx", **_ENDED),
    _key("azq._kombu.<binding>.celery.pidbox", "set", "who answers Celery's remote control, and who asks by it", flower="rwx", **_ENDED),
    _key("azq._kombu.binding_deadlines", "zset", "when who hears and asks is forgotten", flower="rwx", **_ENDED),
    _key("azq.celeryev.<asker>", "list", "events for who hears them, which are published and not kept", flower="r"),
    _key("azq._kombu.<binding>.<kind>.<tag>", "set", "which queue an exchange fills", flower="r", **_PLAYED),
    _key("azq.[^_]<asker>.celery.pidbox<step>", "list", "such questions and answers", flower="rwx", **_ENDED),
    *(_key(f"azq.{kind}.<tag>", "list", "Celery's messages by tag and priority", flower="r", **_PLAYED) for kind in Kind),
    _key("azq.unacked", "hash", "messages that a worker took", flower="r", **_PLAYED),
    _key("azq.unacked_index", "zset", "when it took them", flower="r", **_PLAYED),
    _key("azq.unacked_mutex", "string", "who looks for messages of dead workers; seconds", flower="rwx", **_ENDED),
)
# fmt: on

RUNS = "azq:runs"
MACHINES = "azq:machines"
DEAD = "azq:dead"
DEAD_COUNT = "azq:dead:count"
DAEMON = "azq:daemon"
SCHEMA = "azq:schema"
FLEET = "azq:fleet"
WANTED = "azq:wanted"
AUDIT = "azq:audit"
COST = "azq:cost"
DEATHS = "azq:deaths"
STORE_KEY = "azq:store:key"
VOLUNTEER_SECRET = "azq:volunteers:secret"
CONTRIBUTORS = "azq:volunteers:contributors"
VOLUNTEERS_OFF = "azq:volunteers:off"
BEAT_PREFIX = "azq:beat:"
STUDY_PREFIX = "azq:study:"
LEARNER_GROUP = "learner"
INFERENCE_GROUP = "inference"
CELERY_PREFIX = "azq."
PIDBOX, EVENTS = f"{CELERY_PREFIX}/0.celery.pidbox", f"{CELERY_PREFIX}/0.celeryev/*"  # Celery's channels
OWNER = "default"  # the user who has the password of a server


def run_prefix(name: str) -> str:
    """What all keys of a run begin with: it is declared where a script makes their names itself."""
    return f"azq:{{{name}}}:"


def _of_run(rest: str) -> RunKey:
    return lambda name: f"{run_prefix(name)}{rest}"


run = _of_run("run")
ledger = _of_run("ledger")
open_games = _of_run("open")
pool = _of_run("pool")
abandoned = _of_run("abandoned")
strikes = _of_run("strikes")
jobs = _of_run("jobs")
jobs_done = _of_run("jobs_done")
mended = _of_run("mended")
aside = _of_run("aside:")
job_prefix = _of_run("job:")
held_prefix = _of_run("held:")
samples = _of_run("samples")
weights = _of_run("weights")
promotions = _of_run("promotions")
networks = _of_run("networks")
onnx = _of_run("onnx")
results = _of_run("results")
events = _of_run("events")
learner_status = _of_run("learner")
learned = _of_run("learned")
learner_lease = _of_run("learner_lease")
ranks = _of_run("ranks")
stall = _of_run("stall")
history = _of_run("history")
eval_round = _of_run("round")
eval_stream = _of_run("eval")
purges = _of_run("purges")
cost = _of_run("cost")


def _each_of_run(rest: str) -> Callable[[str, int | str], str]:
    return lambda name, which: f"{run_prefix(name)}{rest}{which}"


job = _each_of_run("job:")
held = _each_of_run("held:")
once = _each_of_run("once:")
rank = _each_of_run("rank:")
meeting = _each_of_run("meeting:")
trial = _each_of_run("trial:")
purged = _each_of_run("purged:")


def _family(prefix: str) -> Callable[[str], str]:
    return lambda member: f"{prefix}{member}"


pinned = _family("azq:once:")
blob = _family("azq:blob:")
invitation = _family("azq:volunteers:invitation:")
quota = _family("azq:volunteers:quota:")
totals = _family("azq:volunteers:totals:")
study = _family(STUDY_PREFIX)
beat = _family(BEAT_PREFIX)
reply = _family("azq:reply:")


def blob_chunk(sha256: str, name: str) -> str:
    # A key without braces hashes as a whole, so braces around it put the chunk into the blob's own slot.
    return f"azq:{{{blob(sha256)}}}:{name}"


def user_in(url: str) -> str:
    return urlsplit(url).username or OWNER


#: what is left of a run until it is deleted: its single jobs, which `jobs` and `jobs_done` name, and what expires by itself, are not here
OF_RUN = (
    *(run, ledger, open_games, pool, abandoned, jobs, jobs_done, samples, results, stall, events),
    *(weights, promotions, learner_status, learned, learner_lease, strikes, ranks, history, eval_round, eval_stream, networks, purges),
    *(cost, mended, onnx),
)
