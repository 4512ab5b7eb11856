// segmentio's kafka-go: Reader, Writer and Client.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"milena/compat/harness"
)

const client = "kafka-go"

var codecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

type driver struct {
	bootstrap string
	tls       *tls.Config
	mechanism sasl.Mechanism
	*kafka.Client
	// How many members a group has had, as their clients are told apart by it.
	mutex   sync.Mutex
	members map[string]int
}

func main() {
	harness.Main(client, harness.Version("github.com/segmentio/kafka-go"), func(bootstrap string) harness.Driver {
		return connected(bootstrap, nil, nil)
	})
}

func connected(bootstrap string, tls *tls.Config, mechanism sasl.Mechanism) *driver {
	d := &driver{bootstrap: bootstrap, tls: tls, mechanism: mechanism, members: map[string]int{}}
	d.Client = &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: 30 * time.Second, Transport: d.transport()}
	return d
}

func (d *driver) transport() *kafka.Transport {
	return &kafka.Transport{ClientID: client, TLS: d.tls, SASL: d.mechanism}
}

func (d *driver) dialer(name string) *kafka.Dialer {
	return &kafka.Dialer{ClientID: name, DialFunc: (&net.Dialer{}).DialContext, Timeout: 10 * time.Second, TLS: d.tls, SASLMechanism: d.mechanism}
}

func (*driver) Connected(secure *harness.Secure) harness.Driver {
	var mechanism sasl.Mechanism
	switch secure.Mechanism {
	case "PLAIN":
		mechanism = plain.Mechanism{Username: secure.User, Password: secure.Password}
	case "SCRAM-SHA-256":
		mechanism = harness.Must(scram.Mechanism(scram.SHA256, secure.User, secure.Password))
	case "SCRAM-SHA-512":
		mechanism = harness.Must(scram.Mechanism(scram.SHA512, secure.User, secure.Password))
	}
	return connected(secure.Bootstrap, secure.TLS, mechanism)
}

func (d *driver) Refused(secure *harness.Secure) bool {
	_, err := d.Connected(secure).(*driver).Metadata(background, &kafka.MetadataRequest{})
	return errors.Is(err, kafka.SASLAuthenticationFailed)
}

var background = context.Background()

func (d *driver) Create(topic string, partitions int, config map[string]string) error {
	entries := []kafka.ConfigEntry{}
	for key, value := range config {
		entries = append(entries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
	}
	topics := []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: entries}}
	answer, err := d.CreateTopics(background, &kafka.CreateTopicsRequest{Topics: topics})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (*driver) AlreadyExists(err error) bool { return errors.Is(err, kafka.TopicAlreadyExists) }

func (d *driver) Produce(topic string, records []harness.Record, codec string, idempotent bool) {
	// A transport keeps what it knows of topics for 6 seconds: one that is shared would not know of a topic that was just created.
	transport := d.transport()
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{
		Addr: kafka.TCP(d.bootstrap), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codecs[codec],
		BatchTimeout: 20 * time.Millisecond, BatchSize: len(records), Transport: transport,
	}
	defer writer.Close()
	messages := []kafka.Message{}
	for _, record := range records {
		message := kafka.Message{Key: record.Key, Value: record.Value}
		if record.Timestamp != 0 {
			message.Time = time.UnixMilli(record.Timestamp)
		}
		for _, header := range record.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		messages = append(messages, message)
	}
	harness.Check(writer.WriteMessages(background, messages...))
}

// The next record, if there is one soon.
func next(reader *kafka.Reader) []harness.Record {
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	message, err := reader.FetchMessage(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	harness.Check(err)
	record := harness.Record{Key: message.Key, Value: message.Value, Timestamp: message.Time.UnixMilli(), Offset: message.Offset}
	for _, header := range message.Headers {
		record.Headers = append(record.Headers, harness.Header{Name: header.Key, Value: header.Value})
	}
	return []harness.Record{record}
}

// Read reads with a Reader and with the Client, as only the latter tells null from empty (findings.md); in all else they must agree.
func (d *driver) Read(topic string, count int, offset int64) []harness.Record {
	records := d.fetch(topic, count, offset)
	for i, record := range d.readWithReader(topic, count, offset) {
		harness.Expect("a record by the Reader", fmt.Sprintf("%q", record), fmt.Sprintf("%q", records[i]))
	}
	return records
}

func (d *driver) fetch(topic string, count int, offset int64) []harness.Record {
	return harness.Collect(count, func(most int) []harness.Record {
		answer := harness.Must(d.Fetch(background, &kafka.FetchRequest{Topic: topic, Offset: offset, MaxBytes: 1 << 20, MaxWait: 200 * time.Millisecond}))
		harness.Check(answer.Error)
		records := []harness.Record{}
		for len(records) < most {
			read, err := answer.Records.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			harness.Check(err)
			if read.Offset < offset {
				continue
			}
			record := harness.Record{Timestamp: read.Time.UnixMilli(), Offset: read.Offset}
			record.Key, record.Value = harness.Must(kafka.ReadAll(read.Key)), harness.Must(kafka.ReadAll(read.Value))
			for _, header := range read.Headers {
				record.Headers = append(record.Headers, harness.Header{Name: header.Key, Value: header.Value})
			}
			records, offset = append(records, record), read.Offset+1
		}
		return records
	})
}

func (d *driver) readWithReader(topic string, count int, offset int64) []harness.Record {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{d.bootstrap}, Topic: topic, MaxWait: 200 * time.Millisecond, Dialer: d.dialer(client)})
	defer reader.Close()
	harness.Check(reader.SetOffset(offset))
	return harness.Collect(count, func(int) []harness.Record { return next(reader) })
}

func (d *driver) offsets(topic string, asked ...kafka.OffsetRequest) kafka.PartitionOffsets {
	answer := harness.Must(d.ListOffsets(background, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: asked}}))
	harness.Check(answer.Topics[topic][0].Error)
	return answer.Topics[topic][0]
}

func (d *driver) OffsetAt(topic string, milliseconds int64) int64 {
	for offset := range d.offsets(topic, kafka.TimeOffsetOf(0, time.UnixMilli(milliseconds))).Offsets {
		return offset
	}
	return -1
}

func (d *driver) Bounds(topic string) [2]int64 {
	found := d.offsets(topic, kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0))
	return [2]int64{found.FirstOffset, found.LastOffset}
}

type member struct {
	*driver
	*kafka.Reader
	group, topic, client string
}

// A Reader does not tell which partitions it has: the group is asked for those of its client.
func (d *driver) Member(group, topic, instance string) harness.Member {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	name := client
	if d.members[group] > 0 {
		name = fmt.Sprintf("%s %d", client, d.members[group])
	}
	d.members[group]++
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{d.bootstrap}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond, HeartbeatInterval: 500 * time.Millisecond,
		Dialer: d.dialer(name),
	})
	return &member{d, reader, group, topic, name}
}

func (m *member) Poll(int) []harness.Record { return next(m.Reader) }

func (d *driver) described(group string) kafka.DescribeGroupsResponseGroup {
	shown := harness.Must(d.DescribeGroups(background, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})).Groups[0]
	harness.Check(shown.Error)
	return shown
}

func (m *member) Assignment() []int {
	found := []int{}
	for _, member := range m.described(m.group).Members {
		for _, topic := range member.MemberAssignments.Topics {
			if member.ClientID == m.client && topic.Topic == m.topic {
				found = append(found, topic.Partitions...)
			}
		}
	}
	slices.Sort(found)
	return found
}

func (m *member) Rebalances() int { return int(m.Stats().Rebalances) }

func (m *member) Commit(topic string, offset int64) {
	harness.Check(m.CommitMessages(background, kafka.Message{Topic: topic, Offset: offset - 1}))
}

func (m *member) Close() { harness.Check(m.Reader.Close()) }

func (m *member) Abandon() { harness.Fail("it has no static membership") }

func (d *driver) topicsOf(names []string) []kafka.Topic {
	return harness.Must(d.Metadata(background, &kafka.MetadataRequest{Topics: names})).Topics
}

func (d *driver) Partitions(topic string) map[int]int {
	found := map[int]int{}
	for _, partition := range d.topicsOf([]string{topic})[0].Partitions {
		found[partition.ID] = partition.Leader.ID
	}
	return found
}

func (d *driver) Configs(topic string) map[string]string {
	resources := []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}}
	shown := harness.Must(d.DescribeConfigs(background, &kafka.DescribeConfigsRequest{Resources: resources})).Resources[0]
	harness.Check(shown.Error)
	found := map[string]string{}
	for _, entry := range shown.ConfigEntries {
		found[entry.ConfigName] = entry.ConfigValue
	}
	return found
}

func (d *driver) SetConfig(topic, key, value string) {
	change := []kafka.IncrementalAlterConfigsRequestConfig{{Name: key, Value: value, ConfigOperation: kafka.ConfigOperationSet}}
	resources := []kafka.IncrementalAlterConfigsRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, Configs: change}}
	harness.Check(harness.Must(d.IncrementalAlterConfigs(background, &kafka.IncrementalAlterConfigsRequest{Resources: resources})).Resources[0].Error)
}

func (d *driver) Grow(topic string, count int) {
	topics := []kafka.TopicPartitionsConfig{{Name: topic, Count: int32(count)}}
	harness.Check(harness.Must(d.CreatePartitions(background, &kafka.CreatePartitionsRequest{Topics: topics})).Errors[topic])
}

func (d *driver) DeleteRecords(string, int64) { harness.Fail("it has no DeleteRecords") }

func (d *driver) DeleteTopic(topic string) {
	harness.Check(harness.Must(d.DeleteTopics(background, &kafka.DeleteTopicsRequest{Topics: []string{topic}})).Errors[topic])
}

func (d *driver) Topics() []string {
	names := []string{}
	for _, topic := range d.topicsOf(nil) {
		names = append(names, topic.Name)
	}
	return names
}

func (d *driver) StoreOffset(group, topic string, offset int64) {
	offsets := map[string][]kafka.OffsetCommit{topic: {{Partition: 0, Offset: offset}}}
	answer := harness.Must(d.OffsetCommit(background, &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: offsets}))
	harness.Check(answer.Topics[topic][0].Error)
}

func (d *driver) Groups() []string {
	answer := harness.Must(d.ListGroups(background, &kafka.ListGroupsRequest{}))
	harness.Check(answer.Error)
	names := []string{}
	for _, group := range answer.Groups {
		names = append(names, group.GroupID)
	}
	return names
}

func (d *driver) DescribeGroup(group string) (string, []string) {
	shown, clients := d.described(group), []string{}
	for _, member := range shown.Members {
		clients = append(clients, member.ClientID)
	}
	return shown.GroupState, clients
}

func (d *driver) DeleteGroup(group string) {
	harness.Check(harness.Must(d.DeleteGroups(background, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})).Errors[group])
}
