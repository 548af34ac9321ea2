"""Every key azq owns in Redis: its type, its owner and its life. Celery's keys live beside them under `azq.`.

Braces make all keys of one run fall into one slot of a Redis Cluster.

control plane
    azq:runs                        set        names of all runs                                  for ever
    azq:{run}:run                   hash       record, state, reason, times                       until the run is deleted
    azq:{run}:ledger                hash       opened finished abandoned inserted duplicates_dropped job_seq
    azq:{run}:open                  hash       uid -> GameRecord frame, every game not finished (empty: no ply journaled yet)
    azq:{run}:pool                  list       uids of open games that no lease holds
    azq:{run}:abandoned             hash       uid -> reason
    azq:{run}:job:<number>          hash       one job: spec, state, attempt, owner, lease_until_ms, ...
    azq:{run}:held:<number>         set        uids that the job's lease holds
    azq:{run}:jobs                  zset       numbers of jobs neither done nor cancelled, by time of publication
    azq:{run}:jobs_done             list       the newest ended jobs (capped)
    azq:{run}:samples               stream     SampleEvent frames; group `learner`; deleted when acknowledged
    azq:{run}:weights               stream     WeightEvent frames, all of them; plain readers
    azq:{run}:results               stream     MatchResult and GradeResult frames, all of them; plain readers
    azq:{run}:events                stream     RunEvent frames: what became of the run and its jobs   capped
    azq:{run}:once:<name>           hash       what a request under an idempotency key created         a day to live
    azq:once:<name>                 string     run and fingerprint of the request that an idempotency key was sent with   a day to live
    azq:{run}:learner               string     LearnerStatus frame                                 seconds to live
    azq:blob:<sha256>               string     a blob of the `redis` store, or the manifest of a large one
    azq:{azq:blob:<sha256>}:<name>  string     a chunk of a large blob (same slot)                 an hour until the blob is whole
    azq:{run}:ranks                 string     RankTable frame: the learner's epoch of ranks       a minute to live
    azq:{run}:rank:<number>         string     RankBeat frame                                      seconds to live
    azq:beat:<worker>               string     Heartbeat frame                                     seconds to live
    azq:{run}:round                 string     EvalRound frame                                     until the run is deleted
    azq:schema                      string     schema number of all that is kept here              for ever
    azq:daemon                      string     "<host>:<pid>:<start>:<boot and pid namespace>" of the one daemon   seconds to live
    azq:fleet                       string     Fleet frame of the live daemon                      seconds to live
    azq:{run}:history               stream     HistoryPoint frames, capped: about two days at the daemon's default interval; plain readers
    azq:{run}:stall                 string     there while the limiter holds self-play back        seconds to live
    azq:dead                        stream     DeadLetter frames, capped                           (either plane)
    azq:dead:count                  string     dead letters ever                                   (either plane)
data plane
    azq:{run}:eval                  stream     EvalRequest frames; group `inference`; deleted when acknowledged
    azq:reply:<client>              list       EvalReply frames                                    a minute to live
"""

from __future__ import annotations

RUNS = "azq:runs"
DEAD = "azq:dead"
DEAD_COUNT = "azq:dead:count"
DAEMON = "azq:daemon"
SCHEMA = "azq:schema"
FLEET = "azq:fleet"
BEAT_PREFIX = "azq:beat:"
LEARNER_GROUP = "learner"
INFERENCE_GROUP = "inference"
CELERY_PREFIX = "azq."


def run_prefix(name: str) -> str:
    """What all keys of a run begin with: it is declared where a script makes their names itself."""
    return f"azq:{{{name}}}:"


def run(name: str) -> str:
    return f"azq:{{{name}}}:run"


def ledger(name: str) -> str:
    return f"azq:{{{name}}}:ledger"


def open_games(name: str) -> str:
    return f"azq:{{{name}}}:open"


def pool(name: str) -> str:
    return f"azq:{{{name}}}:pool"


def abandoned(name: str) -> str:
    return f"azq:{{{name}}}:abandoned"


def job_prefix(name: str) -> str:
    return f"azq:{{{name}}}:job:"


def held_prefix(name: str) -> str:
    return f"azq:{{{name}}}:held:"


def job(name: str, number: int) -> str:
    return f"{job_prefix(name)}{number}"


def held(name: str, number: int) -> str:
    return f"{held_prefix(name)}{number}"


def jobs(name: str) -> str:
    return f"azq:{{{name}}}:jobs"


def jobs_done(name: str) -> str:
    return f"azq:{{{name}}}:jobs_done"


def samples(name: str) -> str:
    return f"azq:{{{name}}}:samples"


def weights(name: str) -> str:
    return f"azq:{{{name}}}:weights"


def results(name: str) -> str:
    return f"azq:{{{name}}}:results"


def events(name: str) -> str:
    return f"azq:{{{name}}}:events"


def once(name: str, key: str) -> str:
    return f"azq:{{{name}}}:once:{key}"


def pinned(key: str) -> str:
    return f"azq:once:{key}"


def learner_status(name: str) -> str:
    return f"azq:{{{name}}}:learner"


def ranks(name: str) -> str:
    return f"azq:{{{name}}}:ranks"


def rank(name: str, number: int) -> str:
    return f"azq:{{{name}}}:rank:{number}"


def stall(name: str) -> str:
    return f"azq:{{{name}}}:stall"


def history(name: str) -> str:
    return f"azq:{{{name}}}:history"


def eval_round(name: str) -> str:
    return f"azq:{{{name}}}:round"


def blob(sha256: str) -> str:
    return f"azq:blob:{sha256}"


def blob_chunk(sha256: str, name: str) -> str:
    # A key without braces hashes as a whole, so braces around it put the chunk into the blob's own slot.
    return f"azq:{{{blob(sha256)}}}:{name}"


def beat(worker: str) -> str:
    return f"{BEAT_PREFIX}{worker}"


def eval_stream(name: str) -> str:
    return f"azq:{{{name}}}:eval"


def run_of(key: str) -> str:
    """The run whose key this is: what stands in its first braces."""
    return key.partition("{")[2].partition("}")[0]


def reply(client: str) -> str:
    return f"azq:reply:{client}"
