// @platformatic/kafka.
import { readFileSync } from 'node:fs'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { Admin, ConfigResourceTypes, Consumer, IncrementalAlterConfigOperationTypes, Producer } from '@platformatic/kafka'
import { collect, Inbox, main } from './harness.mjs'
import { scenarios } from './scenarios.mjs'

const CLIENT = 'platformatic'
const or = value => value ?? null

// Whether an error, or one that is behind it, has this code.
const says = (error, code) => Boolean(error) && (error.code === code || says(error.cause, code) || (error.errors ?? []).some(behind => says(behind, code)))

const recordOf = message => ({
  key: or(message.key),
  value: or(message.value),
  headers: message.headerEntries.map(([name, value]) => [name.toString(), or(value)]),
  timestamp: Number(message.timestamp),
  offset: Number(message.offset)
})

class Member {
  inbox = new Inbox()
  joined = 0

  constructor(base, groupId, groupInstanceId) {
    const id = groupInstanceId ? { groupInstanceId } : {}
    this.consumer = new Consumer({ ...base, ...id, groupId, autocommit: false, sessionTimeout: 30_000, heartbeatInterval: 500, maxWaitTime: 200 })
    this.consumer.on('consumer:group:join', () => (this.joined += 1))
  }

  async start(topic, from) {
    this.stream = await this.consumer.consume({ topics: [topic], ...from })
    this.stream.on('error', error => console.error('stream', error))
    this.stream.on('data', message => this.inbox.records.push(recordOf(message)))
    return this
  }

  poll = count => this.inbox.take(count)
  assignment = () => (this.consumer.assignments ?? []).flatMap(({ partitions }) => partitions).sort()
  rebalances = () => this.joined
  commit = (topic, offset) => this.consumer.commit({ offsets: [{ topic, partition: 0, offset: BigInt(offset), leaderEpoch: -1 }] })
  close = () => this.consumer.close(true)
}

// Its consumer leaves the group whenever it closes, also a static member: one that goes without leaving is a thread that is ended.
class Threaded {
  state = { assigned: [], joined: 0 }

  constructor(settings) {
    this.worker = new Worker(new URL(import.meta.url), { workerData: settings })
    this.worker.on('message', state => (this.state = state))
    this.worker.on('error', error => console.error('thread', error))
  }

  assignment = () => this.state.assigned
  rebalances = () => this.state.joined
  abandon = () => this.worker.terminate()
  close = () => this.worker.terminate()
}

async function thread({ base, groupId, topic, instance }) {
  const member = await new Member(base, groupId, instance).start(topic, { mode: 'committed', fallbackMode: 'earliest' })
  setInterval(() => parentPort.postMessage({ assigned: member.assignment(), joined: member.rebalances() }), 50)
}

class Driver {
  static client = CLIENT
  nullHeaders = true
  readers = 0

  constructor(bootstrap, secure) {
    const { tls, mechanism, username, password } = secure ?? {}
    const sasl = mechanism && { mechanism, username, password }
    this.base = { clientId: CLIENT, bootstrapBrokers: [bootstrap], ...(tls && { tls }), ...(sasl && { sasl }) }
    this.admin = new Admin(this.base)
  }

  create = (topic, partitions, config) => {
    const configs = Object.entries(config).map(([name, value]) => ({ name, value }))
    return this.admin.createTopics({ topics: [topic], partitions, replicas: 1, configs })
  }

  refused = secure =>
    new Driver(secure.bootstrap, secure).topics().then(
      () => false,
      error => says(error, 'PLT_KFK_AUTHENTICATION')
    )

  alreadyExists = error => Boolean(error.findBy?.('apiCode', 36))

  async produce(topic, records, { codec = 'none', idempotent = false } = {}) {
    const producer = new Producer({ ...this.base, idempotent, compression: codec })
    const messages = records.map(({ key, value, headers = [], timestamp }) => {
      // Names are buffers, so that a map can have two that are alike.
      const message = { topic, partition: 0, key: key ?? undefined, value: value ?? undefined, headers: new Map(headers.map(([name, text]) => [Buffer.from(name), text])) }
      return timestamp === undefined ? message : { ...message, timestamp: BigInt(timestamp) }
    })
    await producer.send({ messages, acks: -1 })
    await producer.close()
  }

  async read(topic, count, offset) {
    const reader = new Member(this.base, `${topic}-reader-${(this.readers += 1)}`)
    await reader.start(topic, { mode: 'manual', offsets: [{ topic, partition: 0, offset: BigInt(offset) }] })
    const records = await collect(count, wanted => reader.poll(wanted))
    await reader.close()
    return records
  }

  async listed(topic, timestamp) {
    const [{ partitions }] = await this.admin.listOffsets({ topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp: BigInt(timestamp) }] }] })
    return Number(partitions[0].offset)
  }

  bounds = async topic => [await this.listed(topic, -2), await this.listed(topic, -1)]

  async offsetAt(topic, time) {
    const offset = await this.listed(topic, time)
    return offset === -1 ? null : offset
  }

  member = (groupId, topic, instance) =>
    instance ? new Threaded({ base: this.base, groupId, topic, instance }) : new Member(this.base, groupId).start(topic, { mode: 'committed', fallbackMode: 'earliest' })

  async partitions(topic) {
    const { topics } = await this.admin.metadata({ topics: [topic], forceUpdate: true })
    return new Map(topics.get(topic).partitions.map(({ leader }, id) => [id, leader]))
  }

  async configs(resourceName) {
    const [{ configs }] = await this.admin.describeConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName }] })
    return new Map(configs.map(({ name, value }) => [name, value]))
  }

  setConfig = (resourceName, name, value) =>
    this.admin.incrementalAlterConfigs({
      resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName, configs: [{ name, value, configOperation: IncrementalAlterConfigOperationTypes.SET }] }]
    })

  grow = (name, count) => this.admin.createPartitions({ topics: [{ name, count }] })
  deleteRecords = (name, before) => this.admin.deleteRecords({ topics: [{ name, partitions: [{ partition: 0, offset: BigInt(before) }] }] })
  deleteTopic = topic => this.admin.deleteTopics({ topics: [topic] })
  topics = () => this.admin.listTopics()
  storeOffset = (groupId, name, offset) => this.admin.alterConsumerGroupOffsets({ groupId, topics: [{ name, partitionOffsets: [{ partition: 0, offset: BigInt(offset) }] }] })
  groups = async () => [...(await this.admin.listGroups()).keys()]
  deleteGroup = group => this.admin.deleteGroups({ groups: [group] })

  async describeGroup(group) {
    const { state, members } = (await this.admin.describeGroups({ groups: [group] })).get(group)
    return { state, clients: [...members.values()].map(({ clientId }) => clientId) }
  }
}

if (isMainThread) {
  const { version } = JSON.parse(readFileSync(new URL('node_modules/@platformatic/kafka/package.json', import.meta.url)))
  await main(Driver, version, scenarios)
} else {
  await thread(workerData)
}
