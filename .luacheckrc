-- The files of azq/ledger/lua are parts of one text: `azq.ledger.scripts` writes keys and constants above them, and the later ones
-- use what the first three define.
std = "lua51"
max_line_length = 140
ignore = {"211"} -- defined here, used in another part
read_globals = {
  "redis", "cmsgpack", "KEYS", "ARGV",
  -- keys of the run
  "RUN", "LEDGER", "OPEN_GAMES", "POOL", "ABANDONED", "STRIKES", "JOBS", "JOBS_DONE", "SAMPLES", "WEIGHTS", "RESULTS", "STALL", "EVENTS", "LEARNER_LEASE",
  "JOB_PREFIX", "HELD_PREFIX",
  -- constants of the rules
  "COMPANY", "JOB_FIELDS", "KEPT_ENDED_JOBS", "KEPT_EVENTS", "LEARNING", "LOST_WITH_IT", "MAKES_GAMES", "MOST_COMPANY", "OF_RUN",
  "ONCE_LIFE_S", "RECENT", "SET_ASIDE", "SET_ASIDE_REASON", "SPELT_FIELDS", "SUSPECT", "TRANSITIONS", "UNCHECKED", "WRITTEN_OFF",
  -- prelude.lua, strikes.lua, leases.lua
  "ONCE", "FIRST", "JOB", "HELD", "number", "token", "owner", "life_ms", "call", "text", "now", "note", "note_job", "first_answer",
  "remember", "view", "strikes_of", "strike", "moved_on", "is_testing", "next_suspect", "lost", "may_work", "renew", "give_back",
  "end_job", "end_lease",
}
globals = {"commands"}
