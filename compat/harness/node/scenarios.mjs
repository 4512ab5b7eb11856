// The cases, in terms of what a driver can do: the same ones as in the drivers of other languages.
//
// A driver is made of an address, and of a `Secure` where the listener there is secured. It has: create, alreadyExists (whether an error says so), produce, read, offsetAt, bounds, member, partitions, configs, setConfig, grow,
// deleteRecords, deleteTopic, topics, storeOffset, groups, describeGroup, deleteGroup; and refused, whether a client
// with a wrong password is told so. A member has: poll, assignment, rebalances, commit, close, and
// abandon, which goes without leaving the group. Keys, values and values of headers are buffers or null, times are milliseconds.
import { collect, expect, Secure, waitUntil } from './harness.mjs'

// A fixed moment.
const MOMENT = 1_700_000_000_000
const bytes = text => Buffer.from(text)
const MANY = Array.from({ length: 500 }, (_, i) => ({ key: bytes(`key ${i % 7}`), value: bytes(`record ${`${i}`.padStart(6, '0')} of a text that compresses well`) }))
const NUMBERS = Array.from({ length: 20 }, (_, i) => `${i}`)
const texts = records => records.map(record => record.value.toString())

// The topic and the group of a case.
const nameOf = (driver, name) => `${process.env.COMPAT_RUN ?? 'c'}-${driver.constructor.client}-${name}`

async function topicOf(driver, name, partitions = 1, config = {}) {
  const topic = nameOf(driver, name)
  await driver.create(topic, partitions, config)
  // Apache Kafka answers before all that it says elsewhere knows of it.
  const wanted = Array.from({ length: partitions }, (_, i) => i)
  await waitUntil('the partitions of a new topic', async () => [...(await driver.partitions(topic)).keys()].sort(), wanted)
  return topic
}

// All records, and that there are no more.
async function readAll(driver, topic, count) {
  const records = await driver.read(topic, count, 0)
  expect('offsets', records.map(record => record.offset), Array.from({ length: count }, (_, i) => i))
  expect('the ends of the log', await driver.bounds(topic), [0, count])
  return records
}

const roundTrip = (name, settings) => async driver => {
  const topic = await topicOf(driver, name)
  await driver.produce(topic, MANY, settings)
  const seen = await readAll(driver, topic, MANY.length)
  expect('records', seen.map(({ key, value }) => ({ key, value })), MANY)
}

async function keys(driver) {
  const topic = await topicOf(driver, 'keys')
  const sent = [null, bytes(''), Buffer.from([0xff, 0, 0xfe])]
  await driver.produce(topic, sent.map(key => ({ key, value: bytes('v') })))
  expect('keys', (await readAll(driver, topic, sent.length)).map(record => record.key), sent)
}

async function headers(driver) {
  const topic = await topicOf(driver, 'headers')
  const sent = [['a', bytes('1')], ['a', bytes('2')], ['null', null], ['empty', bytes('')]].filter(([, value]) => driver.nullHeaders || value !== null)
  await driver.produce(topic, [{ key: null, value: bytes('v'), headers: sent }])
  expect('headers', (await readAll(driver, topic, 1))[0].headers, sent)
}

async function tombstones(driver) {
  const topic = await topicOf(driver, 'tombstones')
  const sent = [bytes('v'), null, bytes('')]
  await driver.produce(topic, sent.map(value => ({ key: bytes('k'), value })))
  expect('values', (await readAll(driver, topic, 3)).map(record => record.value), sent)
}

async function timestamps(driver) {
  const topic = await topicOf(driver, 'timestamps')
  const sent = [MOMENT, MOMENT + 1, MOMENT - 5000]
  await driver.produce(topic, sent.map(timestamp => ({ key: null, value: bytes('v'), timestamp })))
  expect('times', (await readAll(driver, topic, 3)).map(record => record.timestamp), sent)
}

async function seekByTime(driver) {
  const topic = await topicOf(driver, 'seek-by-time')
  await driver.produce(topic, NUMBERS.slice(0, 10).map((value, i) => ({ key: null, value: bytes(value), timestamp: MOMENT + i * 1000 })))
  const found = await driver.offsetAt(topic, MOMENT + 3500)
  expect('the offset of the time', found, 4)
  expect('the record there', texts(await driver.read(topic, 1, found)), ['4'])
  expect('the offset of a time behind all', await driver.offsetAt(topic, MOMENT + 99_000), null)
}

const shares = (...members) => members.map(member => member.assignment().length)

async function groupRebalance(driver) {
  const topic = await topicOf(driver, 'group-rebalance', 4)
  const one = await driver.member(topic, topic)
  const two = await driver.member(topic, topic)
  await waitUntil('two partitions each', () => shares(one, two), [2, 2])
  expect('the partitions of both', [...one.assignment(), ...two.assignment()].sort(), [0, 1, 2, 3])
  await two.close()
  await waitUntil('all partitions for the one that stays', () => shares(one), [4])
  await one.close()
}

async function readTenAndCommit(driver, name) {
  const topic = await topicOf(driver, name)
  await driver.produce(topic, NUMBERS.map(value => ({ key: null, value: bytes(value) })))
  const member = await driver.member(topic, topic)
  const records = await collect(10, count => member.poll(count))
  expect('the first ten', texts(records), NUMBERS.slice(0, 10))
  await member.commit(topic, 10)
  await member.close()
}

async function goOn(driver, name) {
  const member = await driver.member(nameOf(driver, name), nameOf(driver, name))
  expect('the rest', texts(await collect(10, count => member.poll(count))), NUMBERS.slice(10))
  await member.close()
}

const connected = (driver, secure) => new driver.constructor(secure.bootstrap, secure)

async function tls(driver) {
  const encrypted = connected(driver, new Secure())
  await roundTrip('tls')(encrypted)
  await readTenAndCommit(encrypted, 'tls-group')
  await goOn(encrypted, 'tls-group')
}

// Whoever logs in by the one mechanism writes, and by the other one goes on reading; with another password nobody gets in.
const sasl = (name, first, second) => async driver => {
  const writes = connected(driver, new Secure(first))
  await roundTrip(name)(writes)
  await readTenAndCommit(writes, `${name}-group`)
  await goOn(connected(driver, new Secure(second)), `${name}-group`)
  for (const mechanism of new Set([first, second])) {
    expect(`the word on a wrong password by ${mechanism}`, await driver.refused(new Secure(mechanism, false)), true)
  }
}

async function staticMember(driver) {
  const topic = await topicOf(driver, 'static-member', 4)
  const stays = await driver.member(topic, topic, 'stays')
  const goes = await driver.member(topic, topic, 'goes')
  await waitUntil('two partitions each', () => shares(stays, goes), [2, 2])
  const had = goes.assignment()
  const seen = stays.rebalances()
  await goes.abandon()
  const back = await driver.member(topic, topic, 'goes')
  await waitUntil('its partitions again', () => shares(stays, back), [2, 2])
  expect('the partitions after its return', back.assignment(), had)
  expect('the rebalances of the other', stays.rebalances(), seen)
  await stays.close()
  await back.close()
}

async function adminCreate(driver) {
  const topic = await topicOf(driver, 'admin-create', 3, { 'retention.ms': '86400000' })
  const refusal = await driver.create(topic, 3, {}).then(() => null, error => error)
  if (refusal === null) throw new Error('a topic was created twice')
  expect(`whether [${refusal.message}] says that it exists`, driver.alreadyExists(refusal), true)
}

async function adminDescribe(driver) {
  const topic = await topicOf(driver, 'admin-describe', 3, { 'retention.ms': '86400000' })
  const leaders = [...(await driver.partitions(topic)).values()]
  expect('whether all have a leader', leaders.map(leader => leader >= 0), [true, true, true])
  const configs = await driver.configs(topic)
  expect('retention.ms', configs.get('retention.ms'), '86400000')
  expect('cleanup.policy', configs.get('cleanup.policy'), 'delete')
}

async function adminAlterConfig(driver) {
  const topic = await topicOf(driver, 'admin-alter-config')
  await driver.setConfig(topic, 'retention.ms', '3600000')
  await waitUntil('retention.ms', async () => (await driver.configs(topic)).get('retention.ms'), '3600000')
}

async function adminGrow(driver) {
  const topic = await topicOf(driver, 'admin-grow')
  await driver.grow(topic, 3)
  await waitUntil('the partitions', async () => [...(await driver.partitions(topic)).keys()].sort(), [0, 1, 2])
}

const ten = () => Array.from({ length: 10 }, () => ({ key: null, value: bytes('v') }))

async function adminListOffsets(driver) {
  const topic = await topicOf(driver, 'admin-list-offsets')
  await driver.produce(topic, ten())
  expect('the ends of the log', await driver.bounds(topic), [0, 10])
}

async function adminResetOffsets(driver) {
  const topic = nameOf(driver, 'admin-reset-offsets')
  await readTenAndCommit(driver, 'admin-reset-offsets')
  await driver.storeOffset(topic, topic, 3)
  const member = await driver.member(topic, topic)
  expect('the records from there', texts(await collect(17, count => member.poll(count))), NUMBERS.slice(3))
  await member.close()
}

async function adminDeleteRecords(driver) {
  const topic = await topicOf(driver, 'admin-delete-records')
  await driver.produce(topic, ten())
  await driver.deleteRecords(topic, 5)
  expect('the ends of the log', await driver.bounds(topic), [5, 10])
}

async function adminDeleteTopic(driver) {
  const topic = await topicOf(driver, 'admin-delete-topic')
  const listed = async () => (await driver.topics()).includes(topic)
  await waitUntil('listed after its creation', listed, true)
  await driver.deleteTopic(topic)
  await waitUntil('listed after its deletion', listed, false)
}

async function groupWithAnOffset(driver, name) {
  const topic = await topicOf(driver, name)
  await driver.storeOffset(topic, topic, 0)
  await waitUntil('whether the group is listed', async () => (await driver.groups()).includes(topic), true)
  return topic
}

async function adminDescribeGroup(driver) {
  const topic = await topicOf(driver, 'admin-describe-group', 2)
  const member = await driver.member(topic, topic)
  await waitUntil('its partitions', () => shares(member), [2])
  const { state, clients } = await driver.describeGroup(topic)
  expect('its state', state.toLowerCase(), 'stable')
  expect('its members', clients, [driver.constructor.client])
  await member.close()
}

async function adminDeleteGroup(driver) {
  const group = await groupWithAnOffset(driver, 'admin-delete-group')
  await driver.deleteGroup(group)
  await waitUntil('whether the group is listed after its deletion', async () => (await driver.groups()).includes(group), false)
}

export const scenarios = {
  ...Object.fromEntries(['none', 'gzip', 'snappy', 'lz4', 'zstd'].map(codec => [`codec-${codec}`, roundTrip(`codec-${codec}`, { codec })])),
  keys,
  headers,
  tombstones,
  timestamps,
  'seek-by-time': seekByTime,
  idempotent: roundTrip('idempotent', { idempotent: true }),
  'group-rebalance': groupRebalance,
  'group-continue': async driver => {
    await readTenAndCommit(driver, 'group-continue')
    await goOn(driver, 'group-continue')
  },
  'static-member': staticMember,
  tls,
  'sasl-plain': sasl('sasl-plain', 'PLAIN', 'PLAIN'),
  'sasl-scram': sasl('sasl-scram', 'SCRAM-SHA-512', 'SCRAM-SHA-256'),
  'restart-before': driver => readTenAndCommit(driver, 'restart'),
  'restart-after': driver => goOn(driver, 'restart'),
  'admin-create': adminCreate,
  'admin-describe': adminDescribe,
  'admin-alter-config': adminAlterConfig,
  'admin-grow': adminGrow,
  'admin-list-offsets': adminListOffsets,
  'admin-reset-offsets': adminResetOffsets,
  'admin-delete-records': adminDeleteRecords,
  'admin-delete-topic': adminDeleteTopic,
  'admin-list-groups': driver => groupWithAnOffset(driver, 'admin-list-groups'),
  'admin-describe-group': adminDescribeGroup,
  'admin-delete-group': adminDeleteGroup
}
