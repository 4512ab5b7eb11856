// Package harness runs the cases of a client of Go and prints one JSON line for each.
package harness

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// Record is what is sent and read. Keys, values and values of headers may be nil, which is not the same as empty. Timestamp is in milliseconds, and 0
// leaves it to the client.
type Record struct {
	Key, Value        []byte
	Headers           []Header
	Timestamp, Offset int64
}

// Header is a name, which may stand in a record several times, with its value.
type Header struct {
	Name  string
	Value []byte
}

// Secure is a listener with TLS, and how one logs in there where it wants that. Mechanism is one of SASL, or empty.
type Secure struct {
	Bootstrap, Mechanism, User, Password string
	TLS                                  *tls.Config
}

// NewSecure is the listener that the mechanism is for.
func NewSecure(mechanism string) *Secure {
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(Must(os.ReadFile(os.Getenv("COMPAT_CA"))))
	secure := &Secure{os.Getenv("COMPAT_SASL"), mechanism, os.Getenv("COMPAT_USER"), os.Getenv("COMPAT_PASSWORD"), &tls.Config{RootCAs: authorities}}
	if mechanism == "" {
		secure.Bootstrap = os.Getenv("COMPAT_TLS")
	}
	return secure
}

// Driver is what the cases ask of a client. What fails calls Check, but for Create.
type Driver interface {
	// Connected is the same client at a listener that is secured.
	Connected(secure *Secure) Driver
	// Refused tells whether a client with a wrong password is told so.
	Refused(secure *Secure) bool
	Create(topic string, partitions int, config map[string]string) error
	// AlreadyExists tells whether an error of Create says so.
	AlreadyExists(err error) bool
	// Produce writes to partition 0 and waits until all records are acknowledged.
	Produce(topic string, records []Record, codec string, idempotent bool)
	Read(topic string, count int, offset int64) []Record
	// OffsetAt is the first offset at or behind a time, or -1.
	OffsetAt(topic string, milliseconds int64) int64
	Bounds(topic string) [2]int64
	Member(group, topic, instance string) Member
	// Partitions are their leaders by number.
	Partitions(topic string) map[int]int
	Configs(topic string) map[string]string
	SetConfig(topic, key, value string)
	Grow(topic string, count int)
	DeleteRecords(topic string, before int64)
	DeleteTopic(topic string)
	Topics() []string
	StoreOffset(group, topic string, offset int64)
	Groups() []string
	DescribeGroup(group string) (state string, clients []string)
	DeleteGroup(group string)
}

// Member is a member of a group, which reads from the beginning where nothing was committed.
type Member interface {
	// Poll waits a little for the next records.
	Poll(most int) []Record
	// Assignment is sorted.
	Assignment() []int
	Rebalances() int
	Commit(topic string, offset int64)
	Close()
	// Abandon goes without leaving the group.
	Abandon()
}
