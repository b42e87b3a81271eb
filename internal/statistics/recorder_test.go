package statistics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sum stores flushes as the database does: it adds up, and knows the last number of each writer. It fails as told, before
// it has added a flush or after it, as when the answer to a commit is lost.
type sum struct {
	mu     sync.Mutex
	added  map[webhook.StatisticsRow]webhook.Counts // by row without counts
	last   map[[16]byte]int64
	calls  int
	fail   func() (before, after bool)
	blocks bool // until the context ends
}

func newSum() *sum {
	return &sum{
		added: map[webhook.StatisticsRow]webhook.Counts{}, last: map[[16]byte]int64{},
		fail: func() (bool, bool) { return false, false },
	}
}

// flushes is how often the recorder has written.
func (s *sum) flushes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *sum) AddStatistics(ctx context.Context, f webhook.StatisticsFlush) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.blocks {
		<-ctx.Done()
		return ctx.Err()
	}
	before, after := s.fail()
	if before {
		return errors.New("no connection")
	}
	if f.Seq > s.last[f.Writer] {
		s.last[f.Writer] = f.Seq
		for _, row := range f.Rows {
			counts := row.Counts
			row.Counts = webhook.Counts{}
			before := s.added[row]
			before.Add(&counts)
			s.added[row] = before
		}
	}
	if after {
		return errors.New("the answer is lost")
	}
	return nil
}

func newRecorder(store Store, log *bytes.Buffer) *Recorder {
	return New(Config{Store: store, Logger: slog.New(slog.NewTextHandler(log, nil)), Now: time.Now})
}

func attemptOf(number int, decision retry.Decision, at time.Time) *webhook.Attempt {
	return &webhook.Attempt{
		Number: number, StartedAt: at.Add(-time.Second), Latency: time.Second, Outcome: retry.Outcome{Decision: decision, Status: 500},
	}
}

func refOf(tenant string, endpoint byte) webhook.Ref {
	return webhook.Ref{TenantID: tenant, EndpointID: webhook.EndpointID{endpoint}}
}

// Messages to people's chats are no deliveries of the tenant's, nor of the installation's.
func TestChatsAreNotCounted(t *testing.T) {
	t.Parallel()
	store := newSum()
	r := newRecorder(store, &bytes.Buffer{})
	ref := refOf("acme", 1)
	ref.EventType = webhook.NotificationType
	r.Counted(ref, attemptOf(1, retry.Retry, time.Now()), webhook.StateDeadLettered, true)
	require.True(t, r.flush(t.Context()))
	require.Empty(t, store.added)
	ref.EventType = "everpost.endpoint.disabled"
	r.Counted(ref, attemptOf(1, retry.Retry, time.Now()), webhook.StateDeadLettered, true)
	require.True(t, r.flush(t.Context()))
	require.Len(t, store.added, 3, "operational events are the tenant's deliveries")
}

// Whatever fails, what is stored is what was counted, for each endpoint, tenant and minute.
func TestWhatIsStoredIsWhatWasCounted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		store := newSum()
		store.fail = func() (bool, bool) { return rapid.Bool().Draw(t, "before"), rapid.Bool().Draw(t, "after") }
		recorders := []*Recorder{newRecorder(store, &bytes.Buffer{}), newRecorder(store, &bytes.Buffer{})}
		now := time.Now().Truncate(time.Minute)
		want := map[webhook.StatisticsRow]webhook.Counts{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r := recorders[rapid.IntRange(0, len(recorders)-1).Draw(t, "process")]
			if rapid.IntRange(0, 4).Draw(t, "what") == 0 {
				r.flush(context.Background())
				continue
			}
			ref := refOf(fmt.Sprintf("tenant-%d", rapid.IntRange(0, 1).Draw(t, "tenant")), 0)
			ref.EndpointID = webhook.EndpointID{1, ref.TenantID[len(ref.TenantID)-1], byte(rapid.IntRange(0, 2).Draw(t, "endpoint"))}
			minute := now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "minutes ago")) * time.Minute)
			decision := rapid.SampledFrom([]retry.Decision{retry.Delivered, retry.Retry}).Draw(t, "decision")
			a := attemptOf(rapid.IntRange(1, 2).Draw(t, "number"), decision, minute)
			state := rapid.SampledFrom(webhook.EndStates()).Draw(t, "state")
			ended := rapid.Bool().Draw(t, "ended")
			r.Counted(ref, a, state, ended)
			for _, key := range []webhook.StatisticsRow{
				{TenantID: ref.TenantID, EndpointID: ref.EndpointID, Minute: minute.UTC()},
				{TenantID: ref.TenantID, Minute: minute.UTC()},
				{Minute: minute.UTC()},
			} {
				counts := want[key]
				counts.AddAttempt(a)
				if ended {
					counts.AddEnd(state)
				}
				want[key] = counts
			}
		}
		store.fail = func() (bool, bool) { return false, false }
		for _, r := range recorders {
			if !r.flush(context.Background()) {
				t.Fatal("the last flush fails")
			}
			if r.counts.held != 0 {
				t.Fatalf("%d rows are held after the last flush", r.counts.held)
			}
		}
		require.Equal(t, want, store.added)
	})
}

// Verdicts of filters count now, for their endpoints and the totals; what does not fit is counted as dropped.
func TestVerdictsOfFilters(t *testing.T) {
	t.Parallel()
	store := newSum()
	r := newRecorder(store, &bytes.Buffer{})
	r.verdicts.max = 2
	now := time.Date(2026, 1, 31, 9, 30, 59, 999, time.UTC)
	r.now = func() time.Time { return now }
	r.Judged("acme", nil)
	r.Judged("acme", []webhook.FilterVerdict{{EndpointID: webhook.EndpointID{1}, Matched: true}, {EndpointID: webhook.EndpointID{2}}})
	r.Judged("acme", []webhook.FilterVerdict{{EndpointID: webhook.EndpointID{3}}, {EndpointID: webhook.EndpointID{2}}})
	require.EqualValues(t, 1, r.Dropped())
	require.True(t, r.flush(t.Context()))
	minute := now.Truncate(time.Minute)
	require.Equal(t, map[webhook.StatisticsRow]webhook.Counts{
		{TenantID: "acme", EndpointID: webhook.EndpointID{1}, Minute: minute}: {FilterMatched: 1},
		{TenantID: "acme", EndpointID: webhook.EndpointID{2}, Minute: minute}: {Filtered: 2},
		{TenantID: "acme", Minute: minute}:                                    {FilterMatched: 1, Filtered: 2},
		{Minute: minute}:                                                      {FilterMatched: 1, Filtered: 2},
	}, store.added)
}

// Verdicts and attempts of an endpoint are one row. Those that have waited for too long are dropped, each as one.
func TestVerdictsAreOneRowWithAttempts(t *testing.T) {
	t.Parallel()
	store := newSum()
	r := newRecorder(store, &bytes.Buffer{})
	now := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	r.now = func() time.Time { return now }
	both := []webhook.FilterVerdict{{EndpointID: webhook.EndpointID{1}, Matched: true}, {EndpointID: webhook.EndpointID{1}}}
	r.Judged("acme", both)
	r.Counted(refOf("acme", 1), nil, webhook.StateDelivered, true)
	require.True(t, r.flush(t.Context()))
	got := store.added[webhook.StatisticsRow{TenantID: "acme", EndpointID: webhook.EndpointID{1}, Minute: now}]
	require.Equal(t, []int64{1, 1, 1}, []int64{got.FilterMatched, got.Filtered, got.Ended[0]})
	require.Len(t, store.added, 3, "with the totals")

	r.Judged("acme", both)
	now = now.Add(staleAfter + time.Minute)
	require.True(t, r.flush(t.Context()))
	require.EqualValues(t, 2, r.Dropped())
	require.Len(t, store.added, 3)
}

// While verdicts are counted, attempts are: they have a lock of their own.
func TestAttemptsDoNotWaitForVerdicts(t *testing.T) {
	t.Parallel()
	r := newRecorder(newSum(), &bytes.Buffer{})
	r.verdicts.mu.Lock()
	counted := make(chan struct{})
	go func() {
		r.Counted(refOf("acme", 1), nil, webhook.StateDelivered, true)
		close(counted)
	}()
	waited := false
	select {
	case <-counted:
	case <-time.After(10 * time.Second):
		waited = true
	}
	r.verdicts.mu.Unlock()
	<-counted
	require.False(t, waited)
	require.Len(t, r.counts.take(), 1)
}

// While PostgreSQL is away, verdicts that wait to be written take no room from attempts, and have a bound of their own.
func TestVerdictsTakeNoRoomFromAttempts(t *testing.T) {
	t.Parallel()
	store := newSum()
	store.fail = func() (bool, bool) { return true, false }
	r := newRecorder(store, &bytes.Buffer{})
	now := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	r.now = func() time.Time { return now }
	r.counts.max, r.verdicts.max = 4, 6
	judge := func(n byte) {
		for i := range n {
			r.Judged("acme", []webhook.FilterVerdict{{EndpointID: webhook.EndpointID{1, i}, Matched: true}})
		}
	}
	judge(4)
	require.False(t, r.flush(t.Context()))
	judge(1)
	require.EqualValues(t, 1, r.Dropped(), "four rows of verdicts are held, and two totals")
	for i := range byte(4) {
		r.Counted(refOf("acme", i+2), nil, webhook.StateDelivered, true)
	}
	require.EqualValues(t, 1, r.Dropped())
	r.Counted(refOf("acme", 9), nil, webhook.StateDelivered, true)
	require.EqualValues(t, 2, r.Dropped())
	store.fail = func() (bool, bool) { return false, false }
	require.True(t, r.flush(t.Context()))
	require.Len(t, store.added, 4+4+2)
	require.Equal(t, []int{0, 0}, []int{r.counts.held, r.verdicts.held})

	judge(4)
	store.fail = func() (bool, bool) { return true, false }
	require.False(t, r.flush(t.Context()))
	now = now.Add(staleAfter + time.Minute)
	require.False(t, r.flush(t.Context()))
	require.Equal(t, []int{0, 0}, []int{r.counts.held, r.verdicts.held}, "those that are given up are not held")
}

// An end without an attempt counts now.
func TestAnEndWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	store := newSum()
	r := newRecorder(store, &bytes.Buffer{})
	now := time.Date(2026, 1, 31, 9, 30, 59, 999, time.UTC)
	r.now = func() time.Time { return now }
	r.Counted(refOf("acme", 1), nil, webhook.StateCancelled, true)
	require.True(t, r.flush(t.Context()))
	require.Equal(t, webhook.Counts{Ended: [4]int64{0, 0, 1, 0}},
		store.added[webhook.StatisticsRow{TenantID: "acme", EndpointID: webhook.EndpointID{1}, Minute: now.Truncate(time.Minute)}])
	require.Len(t, store.added, 3)
}

// What waits to be written is bounded, in number and in time, and what is lost is counted.
func TestWhatWaitsIsBounded(t *testing.T) {
	t.Parallel()
	store := newSum()
	store.fail = func() (bool, bool) { return true, false }
	var log bytes.Buffer
	r := newRecorder(store, &log)
	r.counts.max = 10
	now := time.Now()
	r.now = func() time.Time { return now }
	count := func(endpoint byte) {
		r.Counted(refOf("acme", endpoint), attemptOf(1, retry.Retry, now), 0, false)
	}
	for i := range byte(4) {
		count(i + 1)
	}
	require.False(t, r.flush(t.Context()))
	require.False(t, r.flush(t.Context()))
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("statistics cannot be written")), "said once")
	for i := range byte(5) { // six rows wait: those of four endpoints and two totals
		count(i + 1)
	}
	require.EqualValues(t, 1, r.Dropped())
	count(1)
	require.EqualValues(t, 1, r.Dropped(), "what is in memory is counted on")

	now = now.Add(staleAfter + 2*time.Minute)
	store.fail = func() (bool, bool) { return false, false }
	require.True(t, r.flush(t.Context()))
	require.EqualValues(t, 1+4+5, r.Dropped())
	require.Empty(t, store.added)
	count(1)
	require.True(t, r.flush(t.Context()))
	require.Len(t, store.added, 3)
}

// Many rows are written in several parts.
func TestLargeFlushes(t *testing.T) {
	t.Parallel()
	store := newSum()
	r := newRecorder(store, &bytes.Buffer{})
	now := time.Now()
	const endpoints = flushRows + 10
	for i := range endpoints {
		ref := webhook.Ref{TenantID: "acme", EndpointID: webhook.EndpointID{1, byte(i >> 8), byte(i)}}
		r.Counted(ref, attemptOf(1, retry.Delivered, now), webhook.StateDelivered, true)
	}
	require.True(t, r.flush(t.Context()))
	require.Equal(t, 2, store.calls)
	require.Len(t, store.added, endpoints+2)
	total := store.added[webhook.StatisticsRow{Minute: now.UTC().Truncate(time.Minute)}]
	require.EqualValues(t, endpoints, total.Total())
}

// It writes every ten seconds, and what is left at the end.
func TestStartAndStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newSum()
		r := newRecorder(store, &bytes.Buffer{})
		count := func() {
			r.Counted(refOf("acme", 1), attemptOf(1, retry.Delivered, time.Now()), 0, false)
		}
		r.Start(t.Context())
		count()
		<-time.After(9 * time.Second)
		synctest.Wait()
		require.Zero(t, store.flushes())
		<-time.After(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, store.flushes())
		<-time.After(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, store.flushes(), "there is nothing to write")
		count()
		r.Stop(t.Context())
		require.Equal(t, 2, store.flushes())
	})
}

// Stop ends a write that hangs, tries once more, and gives up after two seconds.
func TestStopWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newSum()
		store.blocks = true
		var log bytes.Buffer
		r := newRecorder(store, &log)
		r.Start(t.Context())
		r.Counted(refOf("acme", 1), attemptOf(1, retry.Delivered, time.Now()), 0, false)
		<-time.After(11 * time.Second) // the write of the tenth second hangs
		begun := time.Now()
		r.Stop(t.Context())
		require.Equal(t, stopPatience, time.Since(begun))
		require.Equal(t, 2, store.calls)
		require.Contains(t, log.String(), "the statistics of the last seconds are lost")
	})
}

// What counting an attempt and the end of its delivery costs. A delivery costs about 500 µs of CPU, 2 % of which are 10 µs.
func BenchmarkCounted(b *testing.B) {
	r := newRecorder(newSum(), &bytes.Buffer{})
	a := attemptOf(1, retry.Delivered, time.Now())
	refs := make([]webhook.Ref, 5000)
	for i := range refs {
		refs[i] = webhook.Ref{TenantID: "acme", EndpointID: webhook.EndpointID{byte(i >> 8), byte(i), 1}}
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			r.Counted(refs[i%len(refs)], a, webhook.StateDelivered, true)
		}
	})
}
