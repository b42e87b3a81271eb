package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/receivertest"
)

// ledger is what the load knows of a run from outside: what was acknowledged, what was asked for, and what arrived.
type ledger struct {
	mu         sync.Mutex
	promised   map[string]*promise          // by the delivery's id
	events     map[int]client.AcceptedEvent // acknowledged, by their number
	posted     map[int]posted               // when, by their number
	arrivals   []arrival
	problems   []string          // answers that a caller must never see
	replayed   [endpoints]int    // bulk replays that were asked for
	removal    bool              // of the endpoint deleted was asked for
	paused     time.Time         // when the pause of the endpoint paused was acknowledged; zero: it was not
	resumed    time.Time         // when its resume was first asked for
	payloads   map[string]string // by the event's id
	types      map[string]string
	endpointOf map[string]int // by the endpoint's id
	secrets    [endpoints]string
	ids        [endpoints]string
	most       int  // requests at a time at the capped endpoint
	numbers    bool // some endpoints number what they get
}

// promise is one acknowledged (event, endpoint).
type promise struct {
	delivery, event string
	endpoint        int
	delayed         bool // its first attempt was not due at once
	commands        []command
}

// command is one that was asked for.
type command struct {
	action action
	asked  time.Time
	acked  time.Time // zero: no answer, or a refusal
}

// arrival is one request at a receiver.
type arrival struct {
	endpoint        int
	at              time.Time
	event, delivery string
	number          int
	kind, body      string
	status          int // that it answers; 0: none
	signature       error
	line, sequence  string // the headers everpost-line and everpost-sequence
}

// posted is when an event was posted first, and when it was acknowledged, and in which batch.
type posted struct {
	begun, acked time.Time
	batch        int // the number of its first event
}

func newLedger() *ledger {
	return &ledger{
		posted:   map[int]posted{},
		promised: map[string]*promise{}, events: map[int]client.AcceptedEvent{}, payloads: map[string]string{}, types: map[string]string{},
		endpointOf: map[string]int{},
	}
}

// acknowledge adds an event and its deliveries. It is delayed if its time had not come when it was acknowledged: a caller may have to repeat a post
// for long.
func (l *ledger) acknowledge(number int, kind, payload string, e client.AcceptedEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if earlier, known := l.events[number]; known && earlier.ID != e.ID {
		l.problems = append(l.problems, fmt.Sprintf("event %d was acknowledged as %s and as %s", number, earlier.ID, e.ID))
	}
	l.events[number] = e
	l.payloads[e.ID], l.types[e.ID] = payload, kind
	for _, d := range e.Deliveries {
		if l.promised[d.ID] == nil {
			l.promised[d.ID] = &promise{delivery: d.ID, event: e.ID, endpoint: l.endpointOf[d.EndpointID], delayed: !e.DeliverAt.IsZero()}
		}
	}
}

// noted adds when an event was posted.
func (l *ledger) noted(number int, p posted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posted[number] = p
}

// problemf adds an answer that a caller must never see.
func (l *ledger) problemf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// of is the promise for an event and an endpoint, nil if there is none yet.
func (l *ledger) of(number, endpoint int) *promise {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[number]
	for _, d := range e.Deliveries {
		if d.EndpointID == l.ids[endpoint] || len(e.Deliveries) == 1 {
			return l.promised[d.ID]
		}
	}
	return nil
}

// eventID is the id of an acknowledged event, "" if it is not.
func (l *ledger) eventID(number int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[number].ID
}

// asked adds a command before it is sent and returns what to call with its answer.
func (l *ledger) asked(p *promise, a action) (answered func(accepted bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(p.commands)
	p.commands = append(p.commands, command{action: a, asked: time.Now()})
	return func(accepted bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if accepted {
			p.commands[i].acked = time.Now()
		}
	}
}

// arrive adds a request that an endpoint's receiver got.
func (l *ledger) arrive(endpoint int, r receivertest.Request, s receivertest.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	number, _ := strconv.Atoi(r.Header.Get("Everpost-Attempt"))
	l.arrivals = append(l.arrivals, arrival{
		endpoint: endpoint, at: r.ReceivedAt, event: r.Header.Get(standardwebhooks.HeaderWebhookID), delivery: r.Header.Get("Everpost-Delivery-Id"),
		number: number, kind: r.Header.Get("Everpost-Event-Type"), body: string(r.Body), status: statusOf(s), signature: r.Verify(l.secrets[endpoint]),
		line: r.Header.Get("Everpost-Line"), sequence: r.Header.Get("Everpost-Sequence"),
	})
}

// statusOf is the status that a receiver's step answers, 0 if none.
func statusOf(s receivertest.Step) int {
	switch {
	case s.Drop || s.Hang:
		return 0
	case s.Status == 0:
		return 200
	}
	return s.Status
}

// sorted are the promises in a fixed order.
func (l *ledger) sorted() []*promise {
	all := make([]*promise, 0, len(l.promised))
	for _, id := range slices.Sorted(maps.Keys(l.promised)) {
		all = append(all, l.promised[id])
	}
	return all
}
