package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// story is a run of two deliveries in good order: one to steady that was delivered at once, one to flaky that was delivered by its second attempt.
type story struct {
	l *ledger
	r *record
	w window
}

var begun = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }

func goodStory() *story {
	l := newLedger()
	for i := range endpoints {
		l.ids[i] = string(rune('a' + i))
		l.endpointOf[l.ids[i]] = i
	}
	for n, to := range []int{steady, flaky} {
		e := client.AcceptedEvent{Event: client.Event{ID: eventType(to)}, Deliveries: []client.DeliveryStub{{ID: eventType(to) + "-d", EndpointID: l.ids[to]}}}
		l.acknowledge(n, eventType(to), "{}", e)
	}
	arrived := func(to, number, ms, status int) {
		l.arrivals = append(l.arrivals, arrival{
			endpoint: to, at: at(ms), event: eventType(to), delivery: eventType(to) + "-d", number: number, kind: eventType(to), body: "{}", status: status,
		})
	}
	arrived(steady, 1, 100, 200)
	arrived(flaky, 1, 100, 500)
	arrived(flaky, 2, 300, 200)
	made := func(number, ms, status int) attempt {
		return attempt{run: 1, number: number, started: at(ms), ended: at(ms + 5), status: status, delivered: status == 200, permanent: status == 400}
	}
	first, second := eventType(steady)+"-d", eventType(flaky)+"-d"
	return &story{l, &record{
		deliveries: map[string]delivery{
			first:  {event: eventType(steady), endpoint: l.ids[steady], state: webhook.StateDelivered, run: 1, attempts: 1, inRun: 1},
			second: {event: eventType(flaky), endpoint: l.ids[flaky], state: webhook.StateDelivered, run: 1, attempts: 2, inRun: 2},
		},
		attempts: map[string][]attempt{first: {made(1, 100, 200)}, second: {made(1, 100, 500), made(2, 300, 200)}},
	}, window{start: at(0), end: at(50)}}
}

func (s *story) first() string  { return eventType(steady) + "-d" }
func (s *story) second() string { return eventType(flaky) + "-d" }

func (s *story) change(id string, f func(*delivery)) {
	d := s.r.deliveries[id]
	f(&d)
	s.r.deliveries[id] = d
}

func (s *story) command(id string, a action, ms int) {
	p := s.l.promised[id]
	p.commands = append(p.commands, command{action: a, asked: at(ms), acked: at(ms)})
}

func TestCheckAcceptsAGoodRun(t *testing.T) {
	t.Parallel()
	s := goodStory()
	v := check(s.l, s.r, s.w, maxInFlight)
	require.Empty(t, v.lost)
	require.Empty(t, v.unexpected)
	require.Empty(t, v.duplicates)
	require.Equal(t, 2, v.acknowledged)
	require.Equal(t, 2, v.delivered)
}

// An attempt that met the end of a kept connection does not count, and the next one follows at once.
func TestCheckKnowsReusedConnections(t *testing.T) {
	t.Parallel()
	s := goodStory()
	attempts := s.r.attempts[s.second()]
	attempts[0].reused, attempts[1].started = true, at(110)
	require.Empty(t, check(s.l, s.r, s.w, maxInFlight).unexpected)
	attempts[0].reused = false
	require.NotEmpty(t, check(s.l, s.r, s.w, maxInFlight).unexpected)
}

// A process that stood still may learn of a success after another one has failed in its place, and begun the next attempt.
func TestCheckKnowsLateSuccesses(t *testing.T) {
	t.Parallel()
	for frozen, unexpected := range map[bool]int{true: 0, false: 2} {
		s := goodStory()
		attempts := s.r.attempts[s.second()]
		attempts[0].delivered, attempts[0].ended, s.w.frozen = true, at(310), frozen
		require.Len(t, check(s.l, s.r, s.w, maxInFlight).unexpected, unexpected)
	}
}

// Every kind of damage is found, and only as what it is.
func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		damage func(*story)
		want   string
	}{
		"no row": {func(s *story) {
			delete(s.r.deliveries, s.first())
			delete(s.r.attempts, s.first())
			s.l.arrivals = s.l.arrivals[1:]
		}, "lost: delivery one.e0-d to endpoint 0 was acknowledged and is not in the database"},
		"open": {func(s *story) {
			s.change(s.second(), func(d *delivery) { d.state, d.attempts = webhook.StateRetrying, 1 })
			s.r.attempts[s.second()] = s.r.attempts[s.second()][:1]
			s.l.arrivals = s.l.arrivals[:2]
		}, "lost: delivery one.e1-d to endpoint 1 is still retrying"},
		"never arrived": {func(s *story) { s.l.arrivals = s.l.arrivals[1:] }, "no receiver accepted that"},
		"cancelled unasked": {func(s *story) {
			s.change(s.first(), func(d *delivery) { d.state = webhook.StateCancelled })
		}, "nobody asked for"},
		"discarded unasked": {func(s *story) {
			s.change(s.first(), func(d *delivery) { d.state = webhook.StateDiscarded })
		}, "nobody asked for"},
		"dead too early": {func(s *story) {
			s.change(s.second(), func(d *delivery) { d.state = webhook.StateDeadLettered })
		}, "is a dead letter after 2 attempts"},
		"not matched": {func(s *story) {
			s.l.types[eventType(steady)] = eventType(everyone)
			s.l.arrivals[0].kind = eventType(everyone)
		}, "but it wants it: true"},
		"two events for one": {func(s *story) {
			s.r.deliveries["other"] = delivery{state: webhook.StateDelivered, run: 1}
		}, "was never acknowledged"},
		"unknown request":  {func(s *story) { s.l.arrivals[0].delivery = "other" }, "which was never acknowledged"},
		"another endpoint": {func(s *story) { s.l.arrivals[0].endpoint = slow }, "arrived as event one.e0 at endpoint 2"},
		"another payload":  {func(s *story) { s.l.arrivals[0].body = "{ }" }, `payload "{ }"`},
		"another type":     {func(s *story) { s.l.arrivals[0].kind = "all" }, "arrived with type all"},
		"signature":        {func(s *story) { s.l.arrivals[0].signature = errors.New("no matching signature") }, "no matching signature"},
		"another status":   {func(s *story) { s.l.arrivals[1].status = 503 }, "status 500, which no receiver gave"},
		"twice, no cause":  {func(s *story) { s.l.arrivals = append(s.l.arrivals, s.l.arrivals[0]) }, "attempt 1 arrived 2 times"},
		"attempt unknown": {func(s *story) {
			s.l.arrivals = append(s.l.arrivals, s.l.arrivals[0])
			s.l.arrivals[3].number = 2
		}, "attempt 2 arrived and is not in the database"},
		"attempt missing": {func(s *story) { s.r.attempts[s.second()] = s.r.attempts[s.second()][1:] }, "attempt 1 is missing or out of order"},
		"after its success": {func(s *story) {
			s.r.attempts[s.second()][0].delivered = true
		}, "attempted again in the same run"},
		"too early": {func(s *story) {
			s.r.attempts[s.second()][1].started = at(110)
		}, "attempt 2 was made 5ms after attempt 1, not 100ms"},
		"Retry-After ignored": {func(s *story) {
			s.r.attempts[s.second()][0].status, s.l.arrivals[1].status = 503, 503
		}, "not 1s"},
		"before it is due": {func(s *story) {
			s.change(s.first(), func(d *delivery) { d.due = at(1000) })
		}, "its first attempt was made 900ms before it was due"},
		"pause ignored": {func(s *story) {
			s.l.promised[s.first()].endpoint, s.l.endpointOf[s.l.ids[steady]], s.l.arrivals[0].endpoint = paused, paused, paused
			s.l.paused, s.l.resumed = at(10), at(500)
		}, "attempt 1 was made 90ms after the pause of its endpoint was acknowledged"},
		"replay lost": {func(s *story) { s.command(s.first(), replay, 500) }, "had 1 runs; 1 replays were acknowledged"},
		"run without replay": {func(s *story) {
			s.change(s.first(), func(d *delivery) { d.run = 2 })
		}, "had 2 runs; 0 replays"},
		"cancel ignored": {func(s *story) {
			s.r.attempts[s.second()][1].started, s.r.attempts[s.second()][1].ended = at(1400), at(1405)
			s.command(s.second(), cancel, 200)
		}, "attempt 2 was made 1.2s after the cancel was acknowledged"},
		"left behind":        {func(s *story) { s.r.left = []string{"1 claims"} }, "left behind: 1 claims"},
		"a caller's answer":  {func(s *story) { s.l.problemf("answered %d", 500) }, "answered 500"},
		"too many at a time": {func(s *story) { s.l.most = maxInFlight + 1 }, "3 requests at a time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := goodStory()
			test.damage(s)
			v := check(s.l, s.r, s.w, maxInFlight)
			all := append(prefixed("lost: ", v.lost), prefixed("unexpected: ", v.unexpected)...)
			require.Contains(t, strings.Join(all, "\n"), test.want)
		})
	}
}

// A second request has a cause only if the class allows it, near the fault, and if its outcome was not recorded.
func TestDuplicatesNeedACause(t *testing.T) {
	t.Parallel()
	key := attemptKey{"d", 1}
	known := map[attemptKey]bool{key: true}
	for name, test := range map[string]struct {
		duplicates cause
		recorded   map[attemptKey]bool
		first      time.Time
		want       cause
	}{
		"not allowed":        {never, nil, at(0), never},
		"under way":          {underWay, nil, at(0), underWay},
		"long before":        {underWay, nil, at(0).Add(-lateAnswer), never},
		"long after":         {underWay, nil, at(100).Add(inTheSocket), never},
		"not recorded":       {unrecorded, map[attemptKey]bool{}, at(0), unrecorded},
		"recorded":           {unrecorded, known, at(0), never},
		"after the kill":     {unrecorded, map[attemptKey]bool{}, at(0).Add(inTheSocket), never},
		"no snapshot at all": {unrecorded, nil, at(0), underWay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := window{start: at(0), end: at(100), duplicates: test.duplicates, recorded: test.recorded}
			require.Equal(t, test.want, w.excuses(key, test.first))
		})
	}
	w := window{start: at(0), end: at(100), duplicates: underWay, until: at(50)}
	require.Equal(t, underWay, w.excuses(key, at(40)))
	require.Equal(t, never, w.excuses(key, at(60)), "its claim outlasts the fault")

	s := goodStory()
	s.w.duplicates = underWay
	s.l.arrivals = append(s.l.arrivals, s.l.arrivals[0])
	v := check(s.l, s.r, s.w, maxInFlight)
	require.Empty(t, v.unexpected)
	require.Equal(t, map[string]int{"under_way": 1}, v.duplicates)
}
