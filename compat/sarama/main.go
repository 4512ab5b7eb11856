// Sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"milena/compat/harness"
)

const client = "sarama"

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

type driver struct {
	brokers []string
	secure  *harness.Secure
	sarama.Client
	admin sarama.ClusterAdmin
}

func main() {
	harness.Main(client, harness.Version("github.com/IBM/sarama"), func(bootstrap string) harness.Driver {
		return connected(bootstrap, nil)
	})
}

func connected(bootstrap string, secure *harness.Secure) driver {
	d := driver{brokers: []string{bootstrap}, secure: secure}
	d.Client = harness.Must(sarama.NewClient(d.brokers, d.config()))
	d.admin = harness.Must(sarama.NewClusterAdmin(d.brokers, d.config()))
	return d
}

func (driver) Connected(secure *harness.Secure) harness.Driver {
	return connected(secure.Bootstrap, secure)
}

func (driver) Refused(secure *harness.Secure) bool {
	d := driver{secure: secure}
	_, err := sarama.NewClient([]string{secure.Bootstrap}, d.config())
	return errors.Is(err, sarama.ErrSASLAuthenticationFailed)
}

// Sarama leaves SCRAM to a library of one's choice.
type conversation struct{ *scram.ClientConversation }

type sha256Conversation struct{ conversation }

func (c *sha256Conversation) Begin(user, password, authzID string) error {
	return c.begin(scram.SHA256, user, password, authzID)
}

type sha512Conversation struct{ conversation }

func (c *sha512Conversation) Begin(user, password, authzID string) error {
	return c.begin(scram.SHA512, user, password, authzID)
}

func (c *conversation) begin(hash scram.HashGeneratorFcn, user, password, authzID string) error {
	client, err := hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

func (d driver) secured(config *sarama.Config) {
	config.Net.TLS.Enable, config.Net.TLS.Config = true, d.secure.TLS
	if d.secure.Mechanism == "" {
		return
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(d.secure.Mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = d.secure.User, d.secure.Password
	switch d.secure.Mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &sha256Conversation{} }
	case sarama.SASLTypeSCRAMSHA512:
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &sha512Conversation{} }
	}
}

func (d driver) config() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = client
	config.Version = sarama.MaxVersion
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	if d.secure != nil {
		d.secured(config)
	}
	return config
}

func (d driver) Create(topic string, partitions int, config map[string]string) error {
	entries := map[string]*string{}
	for key, value := range config {
		entries[key] = &value
	}
	return d.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1, ConfigEntries: entries}, false)
}

func (driver) AlreadyExists(err error) bool { return errors.Is(err, sarama.ErrTopicAlreadyExists) }

// A nil encoder is null.
func encoder(bytes []byte) sarama.Encoder {
	if bytes == nil {
		return nil
	}
	return sarama.ByteEncoder(bytes)
}

func (d driver) Produce(topic string, records []harness.Record, codec string, idempotent bool) {
	config := d.config()
	config.Producer.Compression = codecs[codec]
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	if idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer := harness.Must(sarama.NewSyncProducer(d.brokers, config))
	defer producer.Close()
	messages := []*sarama.ProducerMessage{}
	for _, record := range records {
		message := &sarama.ProducerMessage{Topic: topic, Key: encoder(record.Key), Value: encoder(record.Value)}
		if record.Timestamp != 0 {
			message.Timestamp = time.UnixMilli(record.Timestamp)
		}
		for _, header := range record.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages = append(messages, message)
	}
	harness.Check(producer.SendMessages(messages))
}

func recordOf(message *sarama.ConsumerMessage) harness.Record {
	record := harness.Record{Key: message.Key, Value: message.Value, Timestamp: message.Timestamp.UnixMilli(), Offset: message.Offset}
	for _, header := range message.Headers {
		record.Headers = append(record.Headers, harness.Header{Name: string(header.Key), Value: header.Value})
	}
	return record
}

func (d driver) Read(topic string, count int, offset int64) []harness.Record {
	reader := harness.Must(sarama.NewConsumer(d.brokers, d.config()))
	defer reader.Close()
	partition := harness.Must(reader.ConsumePartition(topic, 0, offset))
	defer partition.Close()
	return harness.Collect(count, func(int) []harness.Record {
		select {
		case message := <-partition.Messages():
			return []harness.Record{recordOf(message)}
		case err := <-partition.Errors():
			harness.Check(err)
		case <-time.After(time.Second):
		}
		return nil
	})
}

func (d driver) OffsetAt(topic string, milliseconds int64) int64 {
	return harness.Must(d.GetOffset(topic, 0, milliseconds))
}

func (d driver) Bounds(topic string) [2]int64 {
	return [2]int64{d.OffsetAt(topic, sarama.OffsetOldest), d.OffsetAt(topic, sarama.OffsetNewest)}
}

type member struct {
	harness.Inbox
	sarama.ConsumerGroup
	topic   string
	session chan sarama.ConsumerGroupSession
	stop    context.CancelFunc
}

func (d driver) Member(group, topic, instance string) harness.Member {
	config := d.config()
	config.Consumer.Group.InstanceId = instance
	joins := &member{ConsumerGroup: harness.Must(sarama.NewConsumerGroup(d.brokers, group, config)), topic: topic, session: make(chan sarama.ConsumerGroupSession, 1)}
	ctx, stop := context.WithCancel(context.Background())
	joins.stop = stop
	go func() {
		for err := range joins.Errors() {
			fmt.Fprintln(os.Stderr, group, err)
		}
	}()
	go func() {
		// Each generation of the group is one call.
		for ctx.Err() == nil {
			if err := joins.Consume(ctx, []string{topic}, joins); err != nil {
				return
			}
		}
	}()
	return joins
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	assigned := []int{}
	for _, partition := range session.Claims()[m.topic] {
		assigned = append(assigned, int(partition))
	}
	slices.Sort(assigned)
	select {
	case <-m.session:
	default:
	}
	m.session <- session
	m.Assign(assigned)
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.Push(recordOf(message))
	}
	return nil
}

func (m *member) Commit(topic string, offset int64) {
	session := <-m.session
	session.MarkOffset(topic, 0, offset, "")
	session.Commit()
}

func (m *member) Close() {
	m.stop()
	harness.Check(m.ConsumerGroup.Close())
}

// A static member does not leave when it closes.
func (m *member) Abandon() { m.Close() }

func (d driver) Partitions(topic string) map[int]int {
	found := map[int]int{}
	for _, partition := range harness.Must(d.admin.DescribeTopics([]string{topic}))[0].Partitions {
		found[int(partition.ID)] = int(partition.Leader)
	}
	return found
}

func (d driver) Configs(topic string) map[string]string {
	found := map[string]string{}
	for _, entry := range harness.Must(d.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})) {
		found[entry.Name] = entry.Value
	}
	return found
}

func (d driver) SetConfig(topic, key, value string) {
	entries := map[string]sarama.IncrementalAlterConfigsEntry{key: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
	harness.Check(d.admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false))
}

func (d driver) Grow(topic string, count int) {
	harness.Check(d.admin.CreatePartitions(topic, int32(count), nil, false))
}

func (d driver) DeleteRecords(topic string, before int64) {
	harness.Check(d.admin.DeleteRecords(topic, map[int32]int64{0: before}))
}

func (d driver) DeleteTopic(topic string) { harness.Check(d.admin.DeleteTopic(topic)) }

func (d driver) Topics() []string {
	names := []string{}
	for name := range harness.Must(d.admin.ListTopics()) {
		names = append(names, name)
	}
	return names
}

func (d driver) StoreOffset(group, topic string, offset int64) {
	offsets := map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: offset, LeaderEpoch: -1}}}
	answer := harness.Must(d.admin.AlterConsumerGroupOffsets(group, offsets, nil))
	harness.Expect("the answer", answer.Errors[topic][0], sarama.ErrNoError)
}

func (d driver) Groups() []string {
	names := []string{}
	for name := range harness.Must(d.admin.ListConsumerGroups()) {
		names = append(names, name)
	}
	return names
}

func (d driver) DescribeGroup(group string) (string, []string) {
	shown := harness.Must(d.admin.DescribeConsumerGroups([]string{group}))[0]
	harness.Expect("the answer", shown.Err, sarama.ErrNoError)
	clients := []string{}
	for _, member := range shown.Members {
		clients = append(clients, member.ClientId)
	}
	return shown.State, clients
}

func (d driver) DeleteGroup(group string) { harness.Check(d.admin.DeleteConsumerGroup(group)) }
