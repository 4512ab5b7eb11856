// KafkaJS. It comes with gzip; the other codecs are plugged in as its documentation says, with Node's own zstd.
import { createRequire } from 'node:module'
import { promisify } from 'node:util'
import zlib from 'node:zlib'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import lz4 from 'lz4-napi'
import { collect, Inbox, main } from './harness.mjs'
import { scenarios } from './scenarios.mjs'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD }
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: lz4.decompressFrame
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: encoder => promisify(zlib.zstdCompress)(encoder.buffer),
  decompress: promisify(zlib.zstdDecompress)
})

// One name has a list of values when it stands in a record several times.
const headersOf = pairs => {
  const headers = {}
  for (const [name, value] of pairs ?? []) headers[name] = [...(headers[name] ?? []), value]
  return headers
}

const recordOf = message => ({
  key: message.key,
  value: message.value,
  headers: Object.entries(message.headers ?? {}).flatMap(([name, values]) => [values].flat().map(value => [name, value])),
  timestamp: Number(message.timestamp),
  offset: Number(message.offset)
})

class Member {
  inbox = new Inbox()
  assigned = []
  joined = 0

  constructor(kafka, groupId) {
    this.consumer = kafka.consumer({ groupId, heartbeatInterval: 500, maxWaitTimeInMs: 200 })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.joined += 1
      this.assigned = Object.values(payload.memberAssignment).flat().sort()
    })
  }

  async start(topic) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [topic], fromBeginning: true })
    await this.consumer.run({ autoCommit: false, eachMessage: async ({ message }) => this.inbox.records.push(recordOf(message)) })
    return this
  }

  poll = count => this.inbox.take(count)
  assignment = () => this.assigned
  rebalances = () => this.joined
  commit = (topic, offset) => this.consumer.commitOffsets([{ topic, partition: 0, offset: `${offset}` }])
  close = () => this.consumer.disconnect()
}

class Driver {
  static client = 'kafkajs'
  nullHeaders = false
  readers = 0

  constructor(bootstrap, secure) {
    const { tls: ssl, mechanism, username, password } = secure ?? {}
    const sasl = mechanism && { mechanism: mechanism.toLowerCase(), username, password }
    this.kafka = new Kafka({ clientId: Driver.client, brokers: [bootstrap], logLevel: logLevel.ERROR, ssl, sasl })
    this.connecting = this.connect()
  }

  async connect() {
    const admin = this.kafka.admin()
    await admin.connect()
    return admin
  }

  async create(topic, numPartitions, config) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const admin = await this.connecting
    // It tells of a topic that exists by this answer.
    if (!(await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] }))) throw new Error('it exists')
  }

  refused = secure =>
    new Driver(secure.bootstrap, secure).connecting.then(
      () => false,
      error => error.name === 'KafkaJSSASLAuthenticationError'
    )

  alreadyExists = error => error.message === 'it exists'

  async produce(topic, records, { codec = 'none', idempotent = false } = {}) {
    const producer = this.kafka.producer({ idempotent })
    await producer.connect()
    const messages = records.map(({ key, value, headers, timestamp }) => {
      const message = { key, value, partition: 0, headers: headersOf(headers) }
      return timestamp === undefined ? message : { ...message, timestamp: `${timestamp}` }
    })
    await producer.send({ topic, messages, compression: codecs[codec] })
    await producer.disconnect()
  }

  // It reads as a member of a group only.
  async read(topic, count, offset) {
    const member = new Member(this.kafka, `${topic}-reader-${(this.readers += 1)}`)
    await member.start(topic)
    member.consumer.seek({ topic, partition: 0, offset: `${offset}` })
    const records = await collect(count, wanted => member.poll(wanted))
    await member.close()
    return records
  }

  async bounds(topic) {
    const [{ low, high }] = await (await this.connecting).fetchTopicOffsets(topic)
    return [Number(low), Number(high)]
  }

  // Where no record is found it answers with the end.
  async offsetAt(topic, time) {
    const [{ offset }] = await (await this.connecting).fetchTopicOffsetsByTimestamp(topic, time)
    return Number(offset) === (await this.bounds(topic))[1] ? null : Number(offset)
  }

  member = (groupId, topic) => new Member(this.kafka, groupId).start(topic)

  async partitions(topic) {
    const { topics } = await (await this.connecting).fetchTopicMetadata({ topics: [topic] })
    return new Map(topics[0].partitions.map(({ partitionId, leader }) => [partitionId, leader]))
  }

  async configs(name) {
    const { resources } = await (await this.connecting).describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name }] })
    return new Map(resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]))
  }

  async setConfig(topic, name, value) {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }]
    await (await this.connecting).alterConfigs({ validateOnly: false, resources })
  }

  // It finds the leader of topics only that it asked about before (findings.md).
  async deleteRecords(topic, before) {
    const admin = await this.connecting
    await admin.fetchTopicOffsets(topic)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: `${before}` }] })
  }

  grow = async (topic, count) => (await this.connecting).createPartitions({ topicPartitions: [{ topic, count }] })
  deleteTopic = async topic => (await this.connecting).deleteTopics({ topics: [topic] })
  topics = async () => (await this.connecting).listTopics()
  storeOffset = async (groupId, topic, offset) => (await this.connecting).setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: `${offset}` }] })
  groups = async () => (await (await this.connecting).listGroups()).groups.map(({ groupId }) => groupId)
  deleteGroup = async group => (await this.connecting).deleteGroups([group])

  async describeGroup(group) {
    const [{ state, members }] = (await (await this.connecting).describeGroups([group])).groups
    return { state, clients: members.map(({ clientId }) => clientId) }
  }
}

const { version } = createRequire(import.meta.url)('kafkajs/package.json')
await main(Driver, version, scenarios)
