// franz-go: kgo and its admin client kadm.
package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"milena/compat/harness"
)

const client = "franz-go"

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

type driver struct {
	bootstrap string
	security  []kgo.Opt
	admin     *kadm.Client
}

func main() {
	harness.Main(client, harness.Version("github.com/twmb/franz-go"), func(bootstrap string) harness.Driver {
		return newDriver(bootstrap)
	})
}

func newDriver(bootstrap string, security ...kgo.Opt) driver {
	d := driver{bootstrap: bootstrap, security: security}
	d.admin = kadm.NewClient(d.connect())
	return d
}

func (d driver) connect(options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(d.bootstrap), kgo.ClientID(client), kgo.FetchMaxWait(200*time.Millisecond))
	return harness.Must(kgo.NewClient(append(options, d.security...)...))
}

func (driver) Connected(secure *harness.Secure) harness.Driver { return connected(secure) }

func connected(secure *harness.Secure) driver {
	security := []kgo.Opt{kgo.DialTLSConfig(secure.TLS)}
	credentials := scram.Auth{User: secure.User, Pass: secure.Password}
	switch secure.Mechanism {
	case "PLAIN":
		security = append(security, kgo.SASL(plain.Auth{User: secure.User, Pass: secure.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		security = append(security, kgo.SASL(credentials.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		security = append(security, kgo.SASL(credentials.AsSha512Mechanism()))
	}
	return newDriver(secure.Bootstrap, security...)
}

func (driver) Refused(secure *harness.Secure) bool {
	_, err := connected(secure).admin.ListTopics(within())
	return errors.Is(err, kerr.SaslAuthenticationFailed)
}

func within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func poll(from *kgo.Client, most int) []harness.Record {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	fetches := from.PollRecords(ctx, most)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			harness.Fail("%s %d: %v", failed.Topic, failed.Partition, failed.Err)
		}
	}
	records := []harness.Record{}
	fetches.EachRecord(func(record *kgo.Record) {
		read := harness.Record{Key: record.Key, Value: record.Value, Timestamp: record.Timestamp.UnixMilli(), Offset: record.Offset}
		for _, header := range record.Headers {
			read.Headers = append(read.Headers, harness.Header{Name: header.Key, Value: header.Value})
		}
		records = append(records, read)
	})
	return records
}

func (d driver) Create(topic string, partitions int, config map[string]string) error {
	configs := map[string]*string{}
	for key, value := range config {
		configs[key] = &value
	}
	_, err := d.admin.CreateTopic(within(), int32(partitions), 1, configs, topic)
	return err
}

func (driver) AlreadyExists(err error) bool { return errors.Is(err, kerr.TopicAlreadyExists) }

func (d driver) Produce(topic string, records []harness.Record, codec string, idempotent bool) {
	options := []kgo.Opt{kgo.ProducerBatchCompression(codecs[codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20 * time.Millisecond)}
	if !idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer := d.connect(options...)
	defer producer.Close()
	sent := []*kgo.Record{}
	for _, record := range records {
		send := &kgo.Record{Topic: topic, Key: record.Key, Value: record.Value}
		if record.Timestamp != 0 {
			send.Timestamp = time.UnixMilli(record.Timestamp)
		}
		for _, header := range record.Headers {
			send.Headers = append(send.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		sent = append(sent, send)
	}
	harness.Check(producer.ProduceSync(within(), sent...).FirstErr())
}

func (d driver) Read(topic string, count int, offset int64) []harness.Record {
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(offset)}}
	reader := d.connect(kgo.ConsumePartitions(from))
	defer reader.Close()
	return harness.Collect(count, func(most int) []harness.Record { return poll(reader, most) })
}

func listed(offsets kadm.ListedOffsets, err error) kadm.ListedOffset {
	harness.Check(err)
	found := kadm.ListedOffset{Err: errors.New("no partition")}
	offsets.Each(func(offset kadm.ListedOffset) {
		if offset.Partition == 0 {
			found = offset
		}
	})
	harness.Check(found.Err)
	return found
}

// Where no record is found it answers with the end, and without a time.
func (d driver) OffsetAt(topic string, milliseconds int64) int64 {
	found := listed(d.admin.ListOffsetsAfterMilli(within(), milliseconds, topic))
	if found.Timestamp == -1 {
		return -1
	}
	return found.Offset
}

func (d driver) Bounds(topic string) [2]int64 {
	return [2]int64{listed(d.admin.ListStartOffsets(within(), topic)).Offset, listed(d.admin.ListEndOffsets(within(), topic)).Offset}
}

type member struct {
	*kgo.Client
	mutex    sync.Mutex
	assigned map[int32]bool
	joined   int
}

func (d driver) Member(group, topic, instance string) harness.Member {
	joins := &member{assigned: map[int32]bool{}}
	options := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(joins.changed(topic, true)), kgo.OnPartitionsRevoked(joins.changed(topic, false)), kgo.OnPartitionsLost(joins.changed(topic, false)),
	}
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	joins.Client = d.connect(options...)
	return joins
}

// Its default is cooperative: only what is new or gone is told.
func (m *member) changed(topic string, has bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		m.joined++
		for _, partition := range partitions[topic] {
			delete(m.assigned, partition)
			if has {
				m.assigned[partition] = true
			}
		}
	}
}

func (m *member) Poll(most int) []harness.Record { return poll(m.Client, most) }

func (m *member) Assignment() []int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	found := []int{}
	for _, partition := range slices.Sorted(maps.Keys(m.assigned)) {
		found = append(found, int(partition))
	}
	return found
}

func (m *member) Rebalances() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.joined
}

func (m *member) Commit(topic string, offset int64) {
	harness.Check(m.CommitRecords(within(), &kgo.Record{Topic: topic, Offset: offset - 1, LeaderEpoch: -1}))
}

// A static member does not leave when it closes.
func (m *member) Abandon() { m.Close() }

func (d driver) Partitions(topic string) map[int]int {
	found := map[int]int{}
	for _, partition := range harness.Must(d.admin.ListTopics(within(), topic))[topic].Partitions {
		found[int(partition.Partition)] = int(partition.Leader)
	}
	return found
}

func (d driver) Configs(topic string) map[string]string {
	shown := harness.Must(harness.Must(d.admin.DescribeTopicConfigs(within(), topic)).On(topic, nil))
	harness.Check(shown.Err)
	found := map[string]string{}
	for _, config := range shown.Configs {
		found[config.Key] = config.MaybeValue()
	}
	return found
}

func (d driver) SetConfig(topic, key, value string) {
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}
	answer := harness.Must(harness.Must(d.admin.AlterTopicConfigs(within(), change, topic)).On(topic, nil))
	harness.Check(answer.Err)
}

func (d driver) Grow(topic string, count int) {
	harness.Check(harness.Must(d.admin.UpdatePartitions(within(), count, topic)).Error())
}

func (d driver) DeleteRecords(topic string, before int64) {
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, before, -1)
	answer := harness.Must(d.admin.DeleteRecords(within(), offsets))
	harness.Check(answer.Error())
	harness.Expect("the answered offset", answer[topic][0].LowWatermark, before)
}

func (d driver) DeleteTopic(topic string) {
	harness.Check(harness.Must(d.admin.DeleteTopic(within(), topic)).Err)
}

func (d driver) Topics() []string { return harness.Must(d.admin.ListTopics(within())).Names() }

func (d driver) StoreOffset(group, topic string, offset int64) {
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, offset, -1)
	harness.Check(d.admin.CommitAllOffsets(within(), group, offsets))
}

func (d driver) Groups() []string { return harness.Must(d.admin.ListGroups(within())).Groups() }

func (d driver) DescribeGroup(group string) (string, []string) {
	shown := harness.Must(d.admin.DescribeGroups(within(), group))[group]
	harness.Check(shown.Err)
	clients := []string{}
	for _, member := range shown.Members {
		clients = append(clients, member.ClientID)
	}
	return shown.State, clients
}

func (d driver) DeleteGroup(group string) {
	harness.Check(harness.Must(d.admin.DeleteGroup(within(), group)).Err)
}
