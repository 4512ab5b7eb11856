// Runs the cases of a client of Node and prints one JSON line for each. A client is a driver: an object with the methods that scenarios.mjs calls.
import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'

// Longer than any session or time-out that a case sets, on a loaded machine.
const CASE_MS = 90_000

export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

const short = value => {
  const text = JSON.stringify(value, (_, part) => (typeof part === 'bigint' ? `${part}` : part)) ?? 'undefined'
  return text.length < 300 ? text : `${text.slice(0, 300)}...`
}

export function expect(what, seen, wanted) {
  if (!isDeepStrictEqual(seen, wanted)) throw new Error(`${what}: ${short(seen)} instead of ${short(wanted)}`)
}

// Asks until it is so; for states that others bring about, such as the end of a rebalance.
export async function waitUntil(what, seen, wanted, ms = 60_000) {
  const end = Date.now() + ms
  for (;;) {
    const now = await seen()
    if (isDeepStrictEqual(now, wanted)) return
    if (Date.now() > end) expect(`${what}, after ${ms} ms`, now, wanted)
    await sleep(50)
  }
}

// `count` records, of which `more` brings the next ones.
export async function collect(count, more, ms = 60_000) {
  const records = []
  const end = Date.now() + ms
  while (records.length < count && Date.now() < end) records.push(...(await more(count - records.length)))
  expect('the number of records', records.length, count)
  return records
}

// Clients that push their records hand them over here, and `take` gives them to a case.
export class Inbox {
  records = []

  async take(count) {
    if (this.records.length === 0) await sleep(50)
    return this.records.splice(0, count)
  }
}

// A listener with TLS, and how one logs in there where it wants that. `mechanism` is one of SASL, or undefined.
export class Secure {
  constructor(mechanism, right = true) {
    this.bootstrap = mechanism ? process.env.COMPAT_SASL : process.env.COMPAT_TLS
    this.tls = { ca: [readFileSync(process.env.COMPAT_CA)] }
    this.mechanism = mechanism
    this.username = process.env.COMPAT_USER
    this.password = right ? process.env.COMPAT_PASSWORD : 'not the password'
  }
}

async function run(scenario, driver) {
  if (!scenario) return { ok: false, detail: 'there is no such case' }
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${CASE_MS} ms`)), CASE_MS)
  })
  try {
    await Promise.race([scenario(driver), late])
    return { ok: true, detail: '' }
  } catch (error) {
    console.error(error)
    const causes = (error.errors ?? []).map(cause => `${cause.message}`).join('; ')
    return { ok: false, detail: `${error.name}: ${error.message} ${causes}`.slice(0, 500) }
  } finally {
    clearTimeout(timer)
  }
}

export async function main(Driver, version, scenarios) {
  const write = process.stdout.write.bind(process.stdout)
  // What the client prints itself must not stand between the answers.
  process.stdout.write = process.stderr.write.bind(process.stderr)
  const answer = object => write(`${JSON.stringify(object)}\n`)
  process.on('unhandledRejection', error => console.error('unhandled', error))
  const [bootstrap, ...asked] = process.argv.slice(2)
  answer({ client: Driver.client, version })
  const driver = new Driver(bootstrap)
  for (const name of asked) answer({ case: name, ...(await run(scenarios[name], driver)) })
  // Clients that keep connections open are not waited for.
  await new Promise(resolve => write('', resolve))
  process.exit(0)
}
