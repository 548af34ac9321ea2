// Policies of a game's record without their zeros, as azq/wire/messages.py has them: a bit for each action of a ply that has an entry,
// little bit order, each ply's padded to a byte, and the entries (float16) in order.

const rowBytes = (numActions) => Math.ceil(numActions / 8)

/** Visits the places (ply, action) that `support` names, in order. */
function* places(support, plies, numActions) {
  for (let ply = 0; ply < plies; ply++) {
    for (let action = 0; action < numActions; action++) {
      if (support[ply * rowBytes(numActions) + (action >> 3)] & (1 << (action & 7))) yield ply * numActions + action
    }
  }
}

/** The entries' bytes and support of whole policies (T, A) in bytes; those themselves, without support, where that saves less than half. */
export function withoutZeros(policies, numActions) {
  const plies = policies.length / (2 * numActions)
  const support = new Uint8Array(plies * rowBytes(numActions))
  const entries = []
  for (let place = 0; place < plies * numActions; place++) {
    if (policies[2 * place] === 0 && policies[2 * place + 1] === 0) continue
    const action = place % numActions
    support[((place - action) / numActions) * rowBytes(numActions) + (action >> 3)] |= 1 << (action & 7)
    entries.push(policies[2 * place], policies[2 * place + 1])
  }
  const saves = 2 * (support.length + entries.length) <= policies.length && support.length > 0
  return saves ? { policies: Uint8Array.from(entries), support } : { policies, support: new Uint8Array(0) }
}

/** Whole policies (T, A) in bytes. */
export function whole(entries, support, plies, numActions) {
  if (support.length !== plies * rowBytes(numActions)) throw new Error(`support of ${support.length} bytes does not fit ${plies} plies`)
  const policies = new Uint8Array(2 * plies * numActions)
  let read = 0
  for (const place of places(support, plies, numActions)) policies.set(entries.subarray(2 * read, 2 * ++read), 2 * place)
  if (2 * read !== entries.length) throw new Error(`policies have ${entries.length} bytes, their support names ${read} entries`)
  return policies
}
