package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/receivertest"
)

// The endpoints of a run, by their place in the plan.
const (
	steady    = iota // answers 200 at once
	flaky            // fails in many ways
	slow             // answers late, or never
	refusing         // refuses permanently, so that dead letters arise
	capped           // takes two requests at a time
	paused           // is paused and resumed
	changing         // gets new secrets, paths and headers
	deleted          // is deleted
	endpoints        // how many there are
)

const (
	loadTime   = time.Second            // from the first step to the last
	faultAfter = 200 * time.Millisecond // a fault begins between this and faultUntil
	faultUntil = 600 * time.Millisecond

	shortest = 300 * time.Millisecond // a fault that has a duration lasts between this and longest
	longest  = 2 * time.Second        // shorter than a claim lives

	maxInFlight    = 2                // of the capped endpoint
	requestTimeout = time.Second      // of every endpoint
	maxAttempts    = 4                // of a run of a delivery
	answers        = 400              // of a receiver's script; then it answers 200
	giveUpAfter    = 10 * time.Minute // far beyond a run
	retryAfter     = time.Second      // that receivers ask for
)

// schedule is the retry policy's: short, without jitter.
func schedule() []time.Duration {
	return []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}
}

// action is what a step does.
type action uint8

const (
	post action = iota // of one event or, with more than one, a batch
	cancel
	retryNow
	reschedule
	replay
	discard
	pauseEndpoint
	resumeEndpoint
	rotate
	change
	remove
	replayAll // of the endpoint's dead letters
)

func (a action) String() string {
	return [...]string{"post", "cancel", "retry", "reschedule", "replay", "discard", "pause", "resume", "rotate", "change", "remove", "replay-all"}[a]
}

// step is one thing that the load does.
type step struct {
	at       time.Duration // after the beginning
	action   action
	event    int           // number of the first event of a post, or of the commanded delivery's
	events   int           // of a post
	endpoint int           // that the events name, or that the step is about; everyone for a fan-out
	delay    time.Duration // of a delayed event, or of a reschedule
	size     int           // that is added to each payload
}

// everyone is the endpoint of a fan-out.
const everyone = -1

// plan is the load of a run.
type plan struct {
	seed     uint64
	faultAt  time.Duration                  // when a fault begins
	faultFor time.Duration                  // how long it lasts, if it has a duration
	steps    []step                         // in order of time
	events   int                            // how many are posted
	scripts  [endpoints][]receivertest.Step // answers of the receivers
}

// newPlan derives a plan from a seed. It is pure.
func newPlan(seed uint64) *plan {
	random := rand.New(rand.NewPCG(seed, 24))
	p := &plan{seed: seed, faultAt: between(random, faultAfter, faultUntil), faultFor: between(random, shortest, longest)}
	for range 30 {
		p.post(random, 1, random.IntN(endpoints), 0)
	}
	for range 3 {
		p.post(random, 1, everyone, 0)
	}
	for range 2 {
		p.post(random, 3+random.IntN(6), []int{steady, flaky, capped, everyone}[random.IntN(4)], 0)
	}
	for range 4 {
		p.post(random, 1, []int{steady, flaky}[random.IntN(2)], between(random, 100*time.Millisecond, time.Second))
	}
	for range 30 {
		p.steps = append(p.steps, step{
			at: between(random, 100*time.Millisecond, loadTime), action: []action{cancel, retryNow, reschedule, replay, discard}[random.IntN(5)],
			event: random.IntN(p.events), endpoint: random.IntN(endpoints), delay: between(random, 0, time.Second),
		})
	}
	for n := range 2 { // of the delayed events, which come last
		p.steps = append(p.steps, step{at: between(random, loadTime/3, loadTime), action: cancel, event: p.events - 1 - n, endpoint: steady})
	}
	p.add(random, pauseEndpoint, paused, 0, loadTime/3)
	p.add(random, resumeEndpoint, paused, loadTime/3, loadTime)
	p.add(random, rotate, changing, 0, loadTime)
	p.add(random, change, changing, 0, loadTime)
	p.add(random, remove, deleted, loadTime/5, loadTime)
	if seed%2 == 0 {
		p.add(random, replayAll, refusing, loadTime/2, loadTime)
	}
	slices.SortStableFunc(p.steps, func(a, b step) int { return int(a.at - b.at) })
	for i := range p.scripts {
		p.scripts[i] = script(random, i)
	}
	return p
}

func (p *plan) post(random *rand.Rand, events, endpoint int, delay time.Duration) {
	p.steps = append(p.steps, step{at: between(random, 0, loadTime), action: post, event: p.events, events: events, endpoint: endpoint, delay: delay})
	p.events += events
}

func (p *plan) add(random *rand.Rand, a action, endpoint int, from, to time.Duration) {
	p.steps = append(p.steps, step{at: between(random, from, to), action: a, endpoint: endpoint})
}

func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)/int64(time.Millisecond)))*time.Millisecond
}

// script is what a receiver answers.
func script(random *rand.Rand, endpoint int) []receivertest.Step {
	of := func(n int, s receivertest.Step) []receivertest.Step { return slices.Repeat([]receivertest.Step{s}, n) }
	ok, later := receivertest.Step{}, map[string]string{"Retry-After": strconv.Itoa(int(retryAfter.Seconds()))}
	var likely []receivertest.Step
	switch endpoint {
	case flaky:
		likely = slices.Concat(of(12, ok), of(3, receivertest.Step{Status: http.StatusInternalServerError}),
			of(1, receivertest.Step{Status: http.StatusServiceUnavailable, Header: later}),
			of(1, receivertest.Step{Status: http.StatusTooManyRequests, Header: later}),
			of(1, receivertest.Step{Drop: true}), of(1, receivertest.Step{Raw: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"}))
	case slow:
		likely = slices.Concat(of(24, receivertest.Step{Delay: 50 * time.Millisecond}), of(8, receivertest.Step{Delay: 700 * time.Millisecond}),
			of(1, receivertest.Step{Hang: true}))
	case refusing:
		likely = slices.Concat(of(2, receivertest.Step{Status: http.StatusBadRequest}), of(1, ok))
	case capped:
		likely = of(1, receivertest.Step{Delay: 60 * time.Millisecond})
	default:
		return nil
	}
	all := make([]receivertest.Step, answers)
	for i := range all {
		all[i] = likely[random.IntN(len(likely))]
	}
	return all
}

// eventType is that of events for one endpoint, or for everyone.
func eventType(endpoint int) string {
	if endpoint == everyone {
		return "all"
	}
	return fmt.Sprintf("one.e%d", endpoint)
}

// String is the plan as text, a step in a line.
func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d events, the fault begins at %s and lasts %s if it has a duration\n", p.seed, p.events, p.faultAt, p.faultFor)
	for _, s := range p.steps {
		fmt.Fprintf(&b, "%8s %-10s", s.at, s.action)
		if s.action == post {
			fmt.Fprintf(&b, " event %d and %d more, type %s, delay %s\n", s.event, s.events-1, eventType(s.endpoint), s.delay)
		} else {
			fmt.Fprintf(&b, " event %d, endpoint %d, delay %s\n", s.event, s.endpoint, s.delay)
		}
	}
	return b.String()
}
