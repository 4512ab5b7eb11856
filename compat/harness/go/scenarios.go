package harness

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A fixed moment, in milliseconds.
const moment = 1_700_000_000_000

// One client, and what it can do.
type scenario struct {
	client string
	Driver
}

// The cases: the same ones as in the drivers of other languages.
var scenarios = map[string]func(scenario){
	"codec-none":           func(of scenario) { of.roundTrip("codec-none", "none", false) },
	"codec-gzip":           func(of scenario) { of.roundTrip("codec-gzip", "gzip", false) },
	"codec-snappy":         func(of scenario) { of.roundTrip("codec-snappy", "snappy", false) },
	"codec-lz4":            func(of scenario) { of.roundTrip("codec-lz4", "lz4", false) },
	"codec-zstd":           func(of scenario) { of.roundTrip("codec-zstd", "zstd", false) },
	"keys":                 keys,
	"headers":              headers,
	"tombstones":           tombstones,
	"timestamps":           timestamps,
	"seek-by-time":         seekByTime,
	"idempotent":           func(of scenario) { of.roundTrip("idempotent", "none", true) },
	"group-rebalance":      groupRebalance,
	"group-continue":       func(of scenario) { of.readTenAndCommit("group-continue"); of.goOn("group-continue") },
	"static-member":        staticMember,
	"tls":                  encrypted,
	"sasl-plain":           func(of scenario) { of.sasl("sasl-plain", "PLAIN", "PLAIN") },
	"sasl-scram":           func(of scenario) { of.sasl("sasl-scram", "SCRAM-SHA-512", "SCRAM-SHA-256") },
	"restart-before":       func(of scenario) { of.readTenAndCommit("restart") },
	"restart-after":        func(of scenario) { of.goOn("restart") },
	"admin-create":         adminCreate,
	"admin-describe":       adminDescribe,
	"admin-alter-config":   adminAlterConfig,
	"admin-grow":           adminGrow,
	"admin-list-offsets":   adminListOffsets,
	"admin-reset-offsets":  adminResetOffsets,
	"admin-delete-records": adminDeleteRecords,
	"admin-delete-topic":   adminDeleteTopic,
	"admin-list-groups":    func(of scenario) { of.groupWithAnOffset("admin-list-groups") },
	"admin-describe-group": adminDescribeGroup,
	"admin-delete-group":   adminDeleteGroup,
}

func many(count int, make func(i int) Record) []Record {
	records := []Record{}
	for i := range count {
		records = append(records, make(i))
	}
	return records
}

func numbers(from, to int) []string {
	texts := []string{}
	for i := from; i < to; i++ {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

func values(records []Record) []string {
	texts := []string{}
	for _, record := range records {
		texts = append(texts, string(record.Value))
	}
	return texts
}

// The topic and the group of a case.
func (of scenario) name(name string) string {
	return fmt.Sprintf("%s-%s-%s", os.Getenv("COMPAT_RUN"), of.client, name)
}

func (of scenario) topic(name string, partitions int, config map[string]string) string {
	topic := of.name(name)
	Check(of.Create(topic, partitions, config))
	wanted := []int{}
	for i := range partitions {
		wanted = append(wanted, i)
	}
	// Apache Kafka answers before all that it says elsewhere knows of it.
	waitUntil("the partitions of a new topic", func() any { return of.sortedPartitions(topic) }, wanted)
	return topic
}

// All records, and that there are no more.
func (of scenario) readAll(topic string, count int) []Record {
	records := of.Read(topic, count, 0)
	for i, record := range records {
		Expect("an offset", record.Offset, int64(i))
	}
	Expect("the ends of the log", of.Bounds(topic), [2]int64{0, int64(count)})
	return records
}

func (of scenario) roundTrip(name, codec string, idempotent bool) {
	topic := of.topic(name, 1, nil)
	sent := many(500, func(i int) Record {
		return Record{Key: fmt.Appendf(nil, "key %d", i%7), Value: fmt.Appendf(nil, "record %06d of a text that compresses well", i)}
	})
	of.Produce(topic, sent, codec, idempotent)
	for i, record := range of.readAll(topic, len(sent)) {
		Expect("a record", [][]byte{record.Key, record.Value}, [][]byte{sent[i].Key, sent[i].Value})
	}
}

func keys(of scenario) {
	topic, sent := of.topic("keys", 1, nil), [][]byte{nil, {}, {0xff, 0, 0xfe}}
	of.Produce(topic, many(3, func(i int) Record { return Record{Key: sent[i], Value: []byte("v")} }), "none", false)
	for i, record := range of.readAll(topic, 3) {
		Expect("a key", record.Key, sent[i])
	}
}

func headers(of scenario) {
	topic := of.topic("headers", 1, nil)
	sent := []Header{{"a", []byte("1")}, {"a", []byte("2")}, {"null", nil}, {"empty", []byte{}}}
	of.Produce(topic, []Record{{Value: []byte("v"), Headers: sent}}, "none", false)
	Expect("headers", of.readAll(topic, 1)[0].Headers, sent)
}

func tombstones(of scenario) {
	topic, sent := of.topic("tombstones", 1, nil), [][]byte{[]byte("v"), nil, {}}
	of.Produce(topic, many(3, func(i int) Record { return Record{Key: []byte("k"), Value: sent[i]} }), "none", false)
	for i, record := range of.readAll(topic, 3) {
		Expect("a value", record.Value, sent[i])
	}
}

func timestamps(of scenario) {
	topic, sent := of.topic("timestamps", 1, nil), []int64{moment, moment + 1, moment - 5000}
	of.Produce(topic, many(3, func(i int) Record { return Record{Value: []byte("v"), Timestamp: sent[i]} }), "none", false)
	for i, record := range of.readAll(topic, 3) {
		Expect("a time", record.Timestamp, sent[i])
	}
}

func seekByTime(of scenario) {
	topic := of.topic("seek-by-time", 1, nil)
	of.Produce(topic, many(10, func(i int) Record { return Record{Value: fmt.Append(nil, i), Timestamp: moment + int64(i)*1000} }), "none", false)
	found := of.OffsetAt(topic, moment+3500)
	Expect("the offset of the time", found, int64(4))
	Expect("the record there", values(of.Read(topic, 1, found)), []string{"4"})
	Expect("the offset of a time behind all", of.OffsetAt(topic, moment+99_000), int64(-1))
}

// How many partitions each has. Polls, as that is what moves a rebalance on.
func shares(members ...Member) any {
	counts := []int{}
	for _, member := range members {
		member.Poll(100)
		counts = append(counts, len(member.Assignment()))
	}
	return counts
}

func groupRebalance(of scenario) {
	topic := of.topic("group-rebalance", 4, nil)
	one, two := of.Member(topic, topic, ""), of.Member(topic, topic, "")
	waitUntil("two partitions each", func() any { return shares(one, two) }, []int{2, 2})
	both := append(one.Assignment(), two.Assignment()...)
	slices.Sort(both)
	Expect("the partitions of both", both, []int{0, 1, 2, 3})
	two.Close()
	waitUntil("all partitions for the one that stays", func() any { return shares(one) }, []int{4})
	one.Close()
}

func (of scenario) readTenAndCommit(name string) {
	topic := of.topic(name, 1, nil)
	of.Produce(topic, many(20, func(i int) Record { return Record{Value: fmt.Append(nil, i)} }), "none", false)
	member := of.Member(topic, topic, "")
	Expect("the first ten", values(Collect(10, member.Poll)), numbers(0, 10))
	member.Commit(topic, 10)
	member.Close()
}

func (of scenario) goOn(name string) {
	member := of.Member(of.name(name), of.name(name), "")
	Expect("the rest", values(Collect(10, member.Poll)), numbers(10, 20))
	member.Close()
}

func (of scenario) connected(mechanism string) scenario {
	return scenario{of.client, of.Connected(NewSecure(mechanism))}
}

func encrypted(of scenario) {
	of = of.connected("")
	of.roundTrip("tls", "none", false)
	of.readTenAndCommit("tls-group")
	of.goOn("tls-group")
}

// Whoever logs in by the one mechanism writes, and by the other one goes on reading; with another password nobody gets in.
func (of scenario) sasl(name, first, second string) {
	writes := of.connected(first)
	writes.roundTrip(name, "none", false)
	writes.readTenAndCommit(name + "-group")
	of.connected(second).goOn(name + "-group")
	for _, mechanism := range []string{first, second} {
		wrong := NewSecure(mechanism)
		wrong.Password = "not the password"
		Expect("the word on a wrong password by "+mechanism, of.Refused(wrong), true)
	}
}

func staticMember(of scenario) {
	topic := of.topic("static-member", 4, nil)
	stays, goes := of.Member(topic, topic, "stays"), of.Member(topic, topic, "goes")
	waitUntil("two partitions each", func() any { return shares(stays, goes) }, []int{2, 2})
	had, seen := goes.Assignment(), stays.Rebalances()
	goes.Abandon()
	back := of.Member(topic, topic, "goes")
	waitUntil("its partitions again", func() any { return shares(stays, back) }, []int{2, 2})
	Expect("the partitions after its return", back.Assignment(), had)
	Expect("the rebalances of the other", stays.Rebalances(), seen)
	stays.Close()
	back.Close()
}

func adminCreate(of scenario) {
	topic := of.topic("admin-create", 3, map[string]string{"retention.ms": "86400000"})
	refusal := of.Create(topic, 3, nil)
	if refusal == nil {
		Fail("a topic was created twice")
	}
	Expect(fmt.Sprintf("whether [%v] says that it exists", refusal), of.AlreadyExists(refusal), true)
}

func (of scenario) sortedPartitions(topic string) any {
	found := []int{}
	for id := range of.Partitions(topic) {
		found = append(found, id)
	}
	slices.Sort(found)
	return found
}

func adminDescribe(of scenario) {
	topic := of.topic("admin-describe", 3, map[string]string{"retention.ms": "86400000"})
	for id, leader := range of.Partitions(topic) {
		Expect(fmt.Sprintf("whether %d has a leader", id), leader >= 0, true)
	}
	configs := of.Configs(topic)
	Expect("retention.ms", configs["retention.ms"], "86400000")
	Expect("cleanup.policy", configs["cleanup.policy"], "delete")
}

func adminAlterConfig(of scenario) {
	topic := of.topic("admin-alter-config", 1, nil)
	of.SetConfig(topic, "retention.ms", "3600000")
	waitUntil("retention.ms", func() any { return of.Configs(topic)["retention.ms"] }, "3600000")
}

func adminGrow(of scenario) {
	topic := of.topic("admin-grow", 1, nil)
	of.Grow(topic, 3)
	waitUntil("the partitions", func() any { return of.sortedPartitions(topic) }, []int{0, 1, 2})
}

func (of scenario) topicOfTen(name string) string {
	topic := of.topic(name, 1, nil)
	of.Produce(topic, many(10, func(int) Record { return Record{Value: []byte("v")} }), "none", false)
	return topic
}

func adminListOffsets(of scenario) {
	Expect("the ends of the log", of.Bounds(of.topicOfTen("admin-list-offsets")), [2]int64{0, 10})
}

func adminResetOffsets(of scenario) {
	topic := of.name("admin-reset-offsets")
	of.readTenAndCommit("admin-reset-offsets")
	of.StoreOffset(topic, topic, 3)
	member := of.Member(topic, topic, "")
	Expect("the records from there", values(Collect(17, member.Poll)), numbers(3, 20))
	member.Close()
}

func adminDeleteRecords(of scenario) {
	topic := of.topicOfTen("admin-delete-records")
	of.DeleteRecords(topic, 5)
	Expect("the ends of the log", of.Bounds(topic), [2]int64{5, 10})
}

func adminDeleteTopic(of scenario) {
	topic := of.topic("admin-delete-topic", 1, nil)
	listed := func() any { return slices.Contains(of.Topics(), topic) }
	waitUntil("listed after its creation", listed, true)
	of.DeleteTopic(topic)
	waitUntil("listed after its deletion", listed, false)
}

func (of scenario) groupWithAnOffset(name string) string {
	topic := of.topic(name, 1, nil)
	of.StoreOffset(topic, topic, 0)
	waitUntil("whether the group is listed", func() any { return slices.Contains(of.Groups(), topic) }, true)
	return topic
}

func adminDescribeGroup(of scenario) {
	topic := of.topic("admin-describe-group", 2, nil)
	member := of.Member(topic, topic, "")
	waitUntil("its partitions", func() any { return shares(member) }, []int{2})
	state, clients := of.DescribeGroup(topic)
	Expect("its state", strings.ToLower(state), "stable")
	Expect("its members", clients, []string{of.client})
	member.Close()
}

func adminDeleteGroup(of scenario) {
	group := of.groupWithAnOffset("admin-delete-group")
	of.DeleteGroup(group)
	waitUntil("whether the group is listed after its deletion", func() any { return slices.Contains(of.Groups(), group) }, false)
}
