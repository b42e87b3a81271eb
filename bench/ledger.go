package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// work is one load: how many events, how they are posted, and how the receiver responds.
type work struct {
	name        string
	events      int
	endpoints   int            // each event goes to all of them
	connections int            // maximum of concurrent requests
	batch       int            // events of a request; 1: POST …/events
	rate        float64        // events/s, independent of responses; 0: each connection posts after its last response
	fails       int32          // that many attempts of each delivery get 503, later ones 200
	settings    map[string]any // of the endpoints, in addition to their URL and event type
	patience    time.Duration  // timeout for the last arrivals; 0: the default
	about       string         // description
}

// always is work.fails for an endpoint that never responds with 200.
const always = math.MaxInt32

// deliveries is how many deliveries the work makes.
func (w work) deliveries() int { return w.events * w.endpoints }

// describe describes the work for the table. Two runs can be compared if their descriptions
// are equal.
func (w work) describe() string {
	parts := []string{"one endpoint"}
	if w.endpoints > 1 {
		parts[0] = fmt.Sprintf("%d endpoints", w.endpoints)
	}
	if w.rate > 0 {
		parts = append(parts, fmt.Sprintf("%g/s for %g s", w.rate, float64(w.events)/w.rate))
	} else {
		if w.connections > 0 {
			parts = append(parts, fmt.Sprintf("%d connections", w.connections))
		}
		parts = append(parts, fmt.Sprintf("%d events", w.events))
	}
	parts = append(parts, "1 KiB each")
	if w.batch > 1 {
		parts = append(parts, fmt.Sprintf("%d in a request", w.batch))
	}
	if w.about != "" {
		parts = append(parts, w.about)
	}
	return strings.Join(parts, ", ")
}

// payloadSize is the size of an event's payload in bytes.
const payloadSize = 1024

// ledger records one load: what was posted and what arrived, matched by the number at the
// start of each payload. Times are relative to its beginning.
type ledger struct {
	work  work
	id    string // the event type's second part, and the receiver's path
	began time.Time

	endpointIDs []string

	// Indexed by event; the connection that posts an event writes its entry. Read when all
	// are posted.
	due      []time.Duration
	accepted []time.Duration // 0: not accepted

	refusals atomic.Int64 // responses 429 and 503 of the API

	slots []slot       // by event × endpoints + endpoint
	done  atomic.Int64 // slots that have ended
	last  atomic.Int64 // when the last of them ended, a time.Duration
}

// slot is one delivery. It has ended after a 2xx response; if the work has none, after its
// first attempt.
type slot struct {
	tries   atomic.Int32 // arrivals
	ended   atomic.Int32 // arrivals from the end on: more than one are duplicates
	arrived atomic.Int64 // when it ended, a time.Duration
}

func newLedger(id string, w work) *ledger {
	return &ledger{
		work: w, id: id, began: time.Now(),
		due: make([]time.Duration, w.events), accepted: make([]time.Duration, w.events), slots: make([]slot, w.deliveries()),
	}
}

// since is the time on the ledger's clock.
func (l *ledger) since() time.Duration { return time.Since(l.began) }

// arrive records an attempt of a delivery and returns the status to respond with; ok is
// false for a delivery that was never posted.
func (l *ledger) arrive(event, endpoint int) (status int, ok bool) {
	if event < 0 || event >= l.work.events || endpoint < 0 || endpoint >= l.work.endpoints {
		return 0, false
	}
	at := int64(l.since())
	s := &l.slots[event*l.work.endpoints+endpoint]
	status = http.StatusOK
	if s.tries.Add(1) <= l.work.fails {
		status = http.StatusServiceUnavailable
		if l.work.fails != always {
			return status, true
		}
	}
	if s.ended.Add(1) == 1 {
		s.arrived.Store(at)
		for last := l.last.Load(); at > last; last = l.last.Load() {
			if l.last.CompareAndSwap(last, at) {
				break
			}
		}
		l.done.Add(1)
	}
	return status, true
}

// pollInterval is how often conditions without a notification are checked.
const pollInterval = 10 * time.Millisecond

// wait returns when all deliveries have ended, when none has ended for the duration stall,
// or after patience. Its error is ctx's.
func (l *ledger) wait(ctx context.Context, stall, patience time.Duration) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	begun := time.Now()
	moved, before := begun, -1
	for {
		got := int(l.done.Load())
		if got >= l.work.deliveries() {
			return nil
		}
		if got != before {
			moved, before = time.Now(), got
		}
		if time.Since(moved) > stall || time.Since(begun) > patience {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// figures evaluates what was posted and what arrived.
func (l *ledger) figures() figures {
	f := figures{}
	var accepts, ends []time.Duration
	var lastAccept time.Duration
	more := 0
	for event, at := range l.accepted {
		if at == 0 {
			continue
		}
		accepts = append(accepts, at-l.due[event])
		lastAccept = max(lastAccept, at)
		for i := range l.work.endpoints {
			s := &l.slots[event*l.work.endpoints+i]
			ended := int(s.ended.Load())
			if ended == 0 {
				continue
			}
			more += ended - 1
			ends = append(ends, time.Duration(s.arrived.Load())-l.due[event])
		}
	}
	last := time.Duration(l.last.Load())
	f.set(acceptedPerSecond, per(len(accepts), lastAccept))
	f.set(deliveriesPerSecond, per(len(ends), last))
	f.set(lost, float64(len(accepts)*l.work.endpoints-len(ends)))
	f.set(duplicates, float64(more))
	f.set(refused, float64(l.refusals.Load()))
	f.set(drain, max(last-lastAccept, 0).Seconds())
	f.setQuantiles(accepts, acceptP50, acceptP95, acceptP99)
	f.setQuantiles(ends, endToEndP50, endToEndP95, endToEndP99)
	return f
}

// A payload is {"k":"000000017","pad":"…"}: the number has a fixed position, so the
// receiver need not parse JSON.
const (
	payloadHead = `{"k":"`
	payloadMid  = `","pad":"`
	payloadTail = `"}`
	numberWidth = 9
	paddingSize = payloadSize - len(payloadHead) - numberWidth - len(payloadMid) - len(payloadTail)
)

// appendPayload appends the payload of an event. The padding is a piece of a random text,
// so that it cannot be compressed.
func appendPayload(to []byte, event int, padding string) []byte {
	to = append(to, payloadHead...)
	to = fmt.Appendf(to, "%0*d", numberWidth, event)
	to = append(to, payloadMid...)
	offset := (event * 7) % (len(padding) - paddingSize)
	to = append(to, padding[offset:offset+paddingSize]...)
	return append(to, payloadTail...)
}

// eventNumber parses the number in a payload, -1 if the payload is not the benchmark's.
func eventNumber(payload []byte) int {
	const end = len(payloadHead) + numberWidth
	if len(payload) != payloadSize || string(payload[:len(payloadHead)]) != payloadHead {
		return -1
	}
	n, err := strconv.Atoi(string(payload[len(payloadHead):end]))
	if err != nil || string(payload[end:end+len(payloadMid)]) != payloadMid {
		return -1
	}
	return n
}
