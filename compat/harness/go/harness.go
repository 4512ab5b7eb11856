package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"sync"
	"time"
)

// Longer than any session or time-out that a case sets, on a loaded machine.
const caseTime = 90 * time.Second

// How long is waited for what others bring about, such as the end of a rebalance.
const patience = 60 * time.Second

type failure string

// Fail ends the case.
func Fail(format string, parts ...any) { panic(failure(fmt.Sprintf(format, parts...))) }

// Check ends the case when there is an error.
func Check(err error) {
	if err != nil {
		Fail("%v", err)
	}
}

// Must is Check for a call with a result.
func Must[T any](value T, err error) T {
	Check(err)
	return value
}

// Expect ends the case when what was seen is not what was wanted.
func Expect(what string, seen, wanted any) {
	if !reflect.DeepEqual(seen, wanted) {
		Fail("%s: %s instead of %s", what, short(seen), short(wanted))
	}
}

func short(value any) string {
	text := fmt.Sprintf("%q", value)
	if len(text) > 300 {
		text = text[:300] + "..."
	}
	return text
}

func waitUntil(what string, seen func() any, wanted any) {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		now := seen()
		if reflect.DeepEqual(now, wanted) {
			return
		}
		if time.Now().After(end) {
			Expect(fmt.Sprintf("%s, after %s", what, patience), now, wanted)
		}
	}
}

// Collect takes records until there are enough.
func Collect(count int, more func(most int) []Record) []Record {
	var records []Record
	for end := time.Now().Add(patience); len(records) < count && time.Now().Before(end); {
		records = append(records, more(count-len(records))...)
	}
	Expect("the number of records", len(records), count)
	return records
}

// Inbox takes the records of clients that push them, and what they say of their partitions.
type Inbox struct {
	mutex    sync.Mutex
	records  []Record
	assigned []int
	joined   int
}

func (inbox *Inbox) Push(record Record) {
	inbox.mutex.Lock()
	defer inbox.mutex.Unlock()
	inbox.records = append(inbox.records, record)
}

func (inbox *Inbox) Poll(most int) []Record {
	time.Sleep(20 * time.Millisecond)
	inbox.mutex.Lock()
	defer inbox.mutex.Unlock()
	most = min(most, len(inbox.records))
	taken := inbox.records[:most]
	inbox.records = inbox.records[most:]
	return taken
}

// Assign notes the partitions after a rebalance.
func (inbox *Inbox) Assign(partitions []int) {
	inbox.mutex.Lock()
	defer inbox.mutex.Unlock()
	inbox.assigned, inbox.joined = partitions, inbox.joined+1
}

func (inbox *Inbox) Assignment() []int {
	inbox.mutex.Lock()
	defer inbox.mutex.Unlock()
	return append([]int{}, inbox.assigned...)
}

func (inbox *Inbox) Rebalances() int {
	inbox.mutex.Lock()
	defer inbox.mutex.Unlock()
	return inbox.joined
}

// Version of a module that this program was built with.
func Version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "?"
}

// Main asks the driver that `connect` makes for the cases that the command line names. What is not over in time has failed, and the next one begins.
func Main(client, version string, connect func(bootstrap string) Driver) {
	answers := json.NewEncoder(os.Stdout)
	// What the client prints itself must not stand between the answers.
	os.Stdout = os.Stderr
	answers.Encode(map[string]string{"client": client, "version": version})
	driver := connect(os.Args[1])
	for _, name := range os.Args[2:] {
		ok, detail := run(name, scenario{client, driver})
		answers.Encode(map[string]any{"case": name, "ok": ok, "detail": detail})
	}
	os.Exit(0)
}

// Whether all went well, and what went wrong; an error may have no text.
func run(name string, of scenario) (bool, string) {
	body := scenarios[name]
	if body == nil {
		return false, "there is no such case"
	}
	done, wrong := make(chan struct{}, 1), make(chan string, 1)
	go func() {
		defer func() {
			switch cause := recover().(type) {
			case nil:
			case failure:
				wrong <- string(cause)
			default:
				wrong <- fmt.Sprintf("panic: %v", cause)
				fmt.Fprintf(os.Stderr, "%s: %v\n%s\n", name, cause, debug.Stack())
			}
		}()
		body(of)
		done <- struct{}{}
	}()
	select {
	case <-done:
		return true, ""
	case detail := <-wrong:
		return false, detail[:min(len(detail), 500)]
	case <-time.After(caseTime):
		return false, fmt.Sprintf("not done after %s", caseTime)
	}
}
