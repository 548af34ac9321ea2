// The tab's connection to its gateway: comes back by itself, and keeps finished games until the gateway has said what became of them.

import { fromFrame, isMatch, tabGame, toFrame } from "./wire.js";

const FIRST_MS = 1000, LONGEST_MS = 60_000;
const FRAME_BYTES = 768 * 1024, FRAME_GAMES = 64; // below what a gateway takes
const MOST_UNANSWERED = 512; // games, so that those of a slow gateway do not fill the page
const STUCK_MS = 30_000; // that bytes may wait to leave
const SLEPT_MS = 60_000; // between two looks at the clock: the machine slept

/** How long to wait before the next attempt: anything up to a bound that doubles, so that many tabs do not come back at once. */
export const patience = (attempts, random = Math.random) => random() * Math.min(LONGEST_MS, FIRST_MS * 2 ** attempts);

export class Link {
  #socket = null;
  #attempts = 0;
  #timer = null;
  #unanswered = new Map(); // {game, sent: whether it went over this connection} by run and uid
  #looked_ms;
  #drained_ms;

  /**
   * `url`: the gateway's; `hello()`: the first message's fields; `on.message(message)`: what the gateway says; `on.state(state, why)`:
   * "away", "waiting", "welcome" or "ended"; `kept`: where finished games outlive the page. The rest are doubles for tests.
   */
  constructor({ url, hello, on, kept, Socket = globalThis.WebSocket, now = Date.now, wait = (call, ms) => setTimeout(call, ms), random = Math.random }) {
    Object.assign(this, { url, hello, on, kept, Socket, now, wait, random, wanted: false, welcome: false, retry_ms: 0, run: "" });
    this.#looked_ms = this.#drained_ms = now();
  }

  get unanswered() {
    return this.#unanswered.size;
  }

  /** Whether so many games wait for their answer that one at a time is enough. */
  get full() {
    return this.#unanswered.size > MOST_UNANSWERED;
  }

  start() {
    this.wanted = true;
    this.#attempts = 0;
    this.#connect();
  }

  /** Leaves for good; finished games without an answer stay stored for the next start. */
  stop() {
    this.send({ tag: "Bye" });
    this.wanted = false;
    clearTimeout(this.#timer);
    this.#leave();
    this.on.state("ended", "");
  }

  /** Whether it went; what is lost that way is said again by the messages that follow. */
  send(message) {
    if (!this.welcome && message.tag !== "Hello") return false;
    this.#socket.send(toFrame(message));
    return true;
  }

  /** A game of this run is finished; it is offered until it is answered for. */
  offer(game) {
    const whole = { ...game, run: this.run };
    this.kept.put(whole);
    this.take([whole]);
  }

  /** Finished games, of whichever run: each is offered whenever the gateway has this tab play for it. */
  take(games) {
    for (const game of games) this.#unanswered.set(keyOf(game), { game, sent: false });
    this.#deliver();
  }

  /** Games that were answered for, to whichever tab of this browser. */
  forget(run, uids) {
    for (const uid of uids) this.#unanswered.delete(keyOf({ run, uid }));
  }

  /** Now and then: notices a sleep of the machine and a connection that carries nothing any more. */
  look() {
    const now_ms = this.now();
    const slept = Math.abs(now_ms - this.#looked_ms) > SLEPT_MS;
    this.#looked_ms = now_ms;
    if (!this.#socket?.bufferedAmount || slept) this.#drained_ms = now_ms;
    const stuck = now_ms - this.#drained_ms > STUCK_MS;
    if (this.wanted && (slept || stuck)) this.again(slept ? "this machine slept" : "nothing leaves any more");
  }

  /** Connects again at once. */
  again(why) {
    if (!this.wanted) return;
    this.#leave();
    this.on.state("away", why);
    this.#attempts = 0;
    this.#connect();
  }

  #connect() {
    clearTimeout(this.#timer);
    let socket;
    try {
      socket = new this.Socket(this.url);
    } catch (error) {
      return this.#lost(error.message);
    }
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      if (socket === this.#socket) this.send({ tag: "Hello", ...this.hello() });
    };
    socket.onmessage = ({ data }) => socket === this.#socket && this.#take(data);
    socket.onclose = ({ reason }) => socket === this.#socket && this.#lost(reason || "the gateway does not answer");
    this.on.state("away", "connecting");
  }

  #take(data) {
    let message;
    try {
      message = fromFrame(new Uint8Array(data));
    } catch (error) {
      return this.#end(error.message);
    }
    if (message.tag === "Welcome") {
      Object.assign(this, { welcome: true, run: message.run });
      this.#attempts = 0;
      for (const each of this.#unanswered.values()) each.sent = false;
      this.on.state("welcome", "");
    }
    if ((message.tag === "Accepted" || message.tag === "Refused") && message.uids?.length) {
      this.forget(this.run, message.uids);
      this.kept.drop(this.run, message.uids);
    }
    this.on.message(message);
    if (message.tag === "Welcome") this.#deliver();
    if (message.tag === "Refused" && message.final) this.#end([message.reason, message.remedy].filter(Boolean).join("; "));
  }

  #deliver() {
    const offered = [...this.#unanswered.values()].filter(({ game, sent }) => this.welcome && game.run === this.run && !sent);
    const waiting = offered.map((each) => Object.assign(each, { sent: true }).game);
    while (waiting.length) {
      let bytes = 0;
      const games = [];
      const match = isMatch(waiting[0].uid);
      while (waiting.length && isMatch(waiting[0].uid) === match && games.length < FRAME_GAMES && (!games.length || bytes + sizeOf(waiting[0]) <= FRAME_BYTES)) {
        bytes += sizeOf(waiting[0]);
        games.push(waiting.shift());
      }
      this.send({ tag: match ? "EvalResult" : "GamesComplete", games: games.map(tabGame) });
    }
  }

  #lost(why) {
    this.#leave();
    if (!this.wanted) return;
    this.retry_ms = patience(this.#attempts++, this.random);
    this.on.state("waiting", why);
    this.#timer = this.wait(() => this.wanted && this.#connect(), this.retry_ms);
  }

  #end(why) {
    this.wanted = false;
    this.#leave();
    this.on.state("ended", why);
  }

  #leave() {
    const socket = this.#socket;
    this.#socket = null;
    this.welcome = false;
    socket?.close();
  }
}

const keyOf = ({ run, uid }) => `${run} ${uid}`;

const sizeOf = (game) => Object.values(game).reduce((sum, part) => sum + (part?.length ?? 9) + 5, 0);
