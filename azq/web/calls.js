// Calls into azq.wasm, the bytes that go with them, and what is checked before.

const REFUSED = -1000
const KINDS = { boolean: 0, integer: 1, number: 2, string: 3 }

export function integer(value, name, least, most) {
  if (!Number.isInteger(value) || value < least || value > most) throw new Error(`${name} must be an integer in ${least}..${most}, not ${value}`)
  return value
}

export function word64(value, name) {
  if (typeof value !== "bigint" || value < 0n || value >= 1n << 64n) throw new Error(`${name} must be a BigInt in 0..2^64-1, not ${value}`)
  return value
}

export function bytesOf(array, name) {
  if (!ArrayBuffer.isView(array)) throw new Error(`${name} must be a typed array, not ${array === null ? "null" : typeof array}`)
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
}

export const encoded = (text) => new TextEncoder().encode(text)

/** The calls into the module, and the bytes that go with them. */
export class Calls {
  constructor(exports) {
    this.exports = exports
  }

  /** Writes what a call is to read. */
  input(...parts) {
    const size = parts.reduce((sum, part) => sum + part.length, 0)
    const at = this.exports.azq_input(size) >>> 0
    const input = new Uint8Array(this.exports.memory.buffer, at, size)
    parts.reduce((first, part) => (input.set(part, first), first + part.length), 0)
  }

  /** Calls a function of the module; an Error says what it refused. */
  ask(name, ...args) {
    const answer = this.exports[name](...args)
    if (answer === REFUSED) throw new Error(this.#words())
    return answer
  }

  /** The same, of one that returns an object's address. */
  make(name, ...args) {
    const address = this.exports[name](...args)
    if (address === 0) throw new Error(this.#words())
    return address
  }

  /** The same, of one that answers in words. */
  words(name, ...args) {
    this.ask(name, ...args)
    return this.#words()
  }

  /** The same, of one that answers in numbers, which are taken from its answer in turn. */
  numbers(name, ...args) {
    this.ask(name, ...args)
    const buffer = this.#output()
    let at = 0
    return (Type, count = (buffer.byteLength - at) / Type.BYTES_PER_ELEMENT) => {
      const first = at
      at += count * Type.BYTES_PER_ELEMENT
      return new Type(buffer.slice(first, at))
    }
  }

  #output() {
    const at = this.exports.azq_output() >>> 0
    return this.exports.memory.buffer.slice(at, at + (this.exports.azq_output_size() >>> 0))
  }

  #words() {
    return new TextDecoder().decode(this.#output())
  }

  /** Names the parameters of the next call that takes some. */
  params(params) {
    const named = Object.entries(params).map(([name, value]) => {
      const kind = Number.isSafeInteger(value) ? "integer" : typeof value
      if (!(kind in KINDS)) throw new Error(`${name} must be a number, a text, true or false, not ${value}`)
      return { key: encoded(name), kind, value }
    })
    for (const { key, kind, value } of named) {
      this.input(key, kind === "string" ? encoded(value) : new Uint8Array(0))
      this.exports.azq_param(key.length, KINDS[kind], kind === "string" ? 0 : Number(value))
    }
  }

  /** Numbers that lie in the module's memory, until it grows. */
  view(Type, address, count) {
    return new Type(this.exports.memory.buffer, address >>> 0, count)
  }
}
