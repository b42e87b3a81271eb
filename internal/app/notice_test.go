package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/dispatch"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

// watched is a record with an endpoint of "acme", and one of "ops" that is told of
// everything.
type watched struct {
	address       string
	endpoint, ops webhook.Endpoint
	own           *postgres.Store
}

func setupWatch(t *testing.T) *watched {
	t.Helper()
	b := &watched{address: postgrestest.New(t)}
	b.own = b.store(t)
	for _, id := range []string{"acme", "ops"} {
		_, _, err := b.own.PutTenant(t.Context(), webhook.Actor{}, webhook.Tenant{ID: id, Contact: id + "@example.com"})
		require.NoError(t, err)
	}
	b.endpoint = b.make(t, "acme", "order.*")
	b.ops = b.make(t, "ops", "everpost.*")
	return b
}

func (b *watched) store(t *testing.T) *postgres.Store {
	t.Helper()
	key, err := vault.ParseKEK(kek)
	require.NoError(t, err)
	store, err := postgres.Open(t.Context(), postgres.Config{
		URL: b.address, MaxConns: 4, Sealer: sealer{vault.New(key)}, OperatorTenant: "ops",
	})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func (b *watched) make(t *testing.T, tenant string, filters ...string) webhook.Endpoint {
	t.Helper()
	e, err := b.own.CreateEndpoint(t.Context(), webhook.Actor{}, webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: tenant, URL: "https://example.com/hook?token=canary", EventTypes: filters, Timeout: webhook.DefaultTimeout,
		MaxInFlight: 10, RateLimit: 10_000, RetryPolicy: retry.Default(), Signature: webhook.SignatureV1,
		CircuitBreaker: webhook.DefaultCircuitBreaker(), AutoDisable: webhook.DefaultAutoDisable(),
	}, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	return e
}

func (b *watched) now(t *testing.T) webhook.Endpoint {
	t.Helper()
	e, err := b.own.Endpoint(t.Context(), "acme", b.endpoint.ID)
	require.NoError(t, err)
	return e
}

// process is the watch of one process; it is not started.
func (b *watched) process(t *testing.T) *watch {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: closedPort(t)})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	d := dispatch.New(dispatch.Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(d.Stop)
	w := newWatch(b.store(t), d, nil, telemetry.NewMetrics("test"), slog.New(slog.DiscardHandler))
	w.gate = admission.New(admission.Config{OnCircuitChange: w.circuitChanged})
	return w
}

// running is process, started, and stopped with the test.
func (b *watched) running(t *testing.T) *watch {
	t.Helper()
	w := b.process(t)
	w.start(t.Context())
	t.Cleanup(func() { w.stop(context.Background()) })
	return w
}

// told are the payloads of the operator's events of a type.
func (b *watched) told(t *testing.T, eventType string) []map[string]any {
	t.Helper()
	rows, err := b.own.Pool().Query(t.Context(), `select payload from events where tenant_id = 'ops' and type = $1 order by id`, eventType)
	require.NoError(t, err)
	defer rows.Close()
	var told []map[string]any
	for rows.Next() {
		var text []byte
		require.NoError(t, rows.Scan(&text))
		payload := map[string]any{}
		require.NoError(t, json.Unmarshal(text, &payload))
		require.NotContains(t, string(text), "canary")
		told = append(told, payload)
	}
	require.NoError(t, rows.Err())
	return told
}

func (b *watched) ref(eventType string) webhook.Ref {
	event := webhook.NewEventID()
	return webhook.Ref{
		DeliveryID: webhook.DeliveryIDOf(event, b.endpoint.ID), EventID: event, EndpointID: b.endpoint.ID, TenantID: "acme", EventType: eventType,
	}
}

// answer is an attempt that was answered with a status, and where it left its delivery.
func answerOf(status int) (*webhook.Attempt, webhook.Progress) {
	outcome := retry.Classify(retry.Answer{Status: status}, retry.Default())
	a := &webhook.Attempt{Number: 1, Run: 1, StartedAt: time.Now(), Latency: time.Millisecond, Outcome: outcome}
	p := webhook.Progress{Run: 1, Seq: 1, Attempts: 1, RunAttempts: 1, State: webhook.StateDelivered}
	if outcome.Decision != retry.Delivered {
		p.State, p.Reason = webhook.StateDeadLettered, string(outcome.Reason)
	}
	return a, p
}

// answers tells a process of n deliveries that ended with a status.
func (b *watched) answers(w *watch, n, status int) {
	for range n {
		a, p := answerOf(status)
		w.Attempted(b.ref("order.paid"), a, p)
	}
}

// metric is a line of the process's metrics.
func metric(t *testing.T, w *watch, line string) bool {
	t.Helper()
	return containsLine(t, w.Handler(), line)
}

// Two processes see one endpoint refuse everything.
func TestProcessesDisableTogether(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	one, other := b.running(t), b.running(t)
	var both sync.WaitGroup
	both.Go(func() { b.answers(one, 60, 400) })
	both.Go(func() { b.answers(other, 39, 400) })
	both.Wait()
	require.Eventually(t, func() bool {
		var streak int
		return b.own.Pool().QueryRow(t.Context(), `select permanent_streak from endpoint_trouble`).Scan(&streak) == nil && streak == 99
	}, soon, time.Millisecond)
	require.Equal(t, webhook.EndpointActive, b.now(t).State)
	b.answers(one, 1, 400)
	require.Eventually(t, func() bool { return b.now(t).State == webhook.EndpointDisabled }, soon, time.Millisecond)
	require.Equal(t, "100 requests in a row were refused for good, the last with 400", b.now(t).StateReason)
	require.Len(t, b.told(t, webhook.NoticeDisabled), 1)
	const counted = "everpost_endpoints_disabled_total 1"
	require.Eventually(t, func() bool { return metric(t, one, counted) != metric(t, other, counted) }, soon, time.Millisecond, "by one of both")
	require.Eventually(t, func() bool { return len(b.told(t, webhook.NoticeDeadLettered)) == 100 }, soon, time.Millisecond)
}

// A mass failure costs a few transactions, and none once the endpoint is disabled.
func TestMassFailureIsGathered(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	w := b.process(t)
	b.answers(w, 5000, 400)
	require.Len(t, w.tally.take(), 1, "one row to be written")
	b.answers(w, 5000, 400)
	w.flushTally(t.Context())
	require.Equal(t, webhook.EndpointDisabled, b.now(t).State)
	require.Equal(t, "5000 requests in a row were refused for good, the last with 400", b.now(t).StateReason)
	b.answers(w, 10, 400)
	require.Empty(t, w.ofActive(t.Context(), w.tally.take()))
	require.Zero(t, b.rows(t))
}

func (b *watched) rows(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.own.Pool().QueryRow(t.Context(), `select count(*) from endpoint_trouble`).Scan(&n))
	return n
}

// A success counts in whichever process it comes, also in one that has not read yet that
// there is trouble.
func TestASuccessElsewhere(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	one, other := b.process(t), b.process(t)
	b.answers(one, 99, 400)
	one.flushTally(t.Context())
	require.Equal(t, 1, b.rows(t))
	b.answers(other, 1, 200)
	require.Empty(t, other.tally.take(), "it knows of no trouble")
	other.refreshTrouble(t.Context())
	other.flushTally(t.Context())
	require.Zero(t, b.rows(t))

	b.answers(one, 99, 400)
	one.flushTally(t.Context())
	other.refreshTrouble(t.Context())
	require.Empty(t, other.tally.take(), "its success was before that")
	b.answers(other, 1, 200)
	require.Len(t, other.tally.take(), 1, "it knows at once")
	b.answers(one, 1, 400)
	one.flushTally(t.Context())
	require.Equal(t, webhook.EndpointDisabled, b.now(t).State)
}

// A success that comes while failures from before it are being written counts, also when
// others fail after it.
func TestASuccessWhileFailuresAreWritten(t *testing.T) {
	t.Parallel()
	for after := range 2 {
		b := setupWatch(t)
		w := b.process(t)
		b.answers(w, 99, 400)
		seen := w.tally.take()
		b.answers(w, 1, 200)
		b.answers(w, after, 400)
		left, err := w.store.CountTrouble(t.Context(), seen)
		require.NoError(t, err)
		w.tally.wrote(seen, left)
		w.flushTally(t.Context())
		require.Equal(t, after, b.rows(t))
		b.answers(w, 99-after, 400)
		w.flushTally(t.Context())
		require.Equal(t, webhook.EndpointActive, b.now(t).State)
		b.answers(w, 1, 400)
		w.flushTally(t.Context())
		require.Equal(t, webhook.EndpointDisabled, b.now(t).State)
	}
}

// While all is well nothing is written.
func TestSuccessesCostNothing(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	w := b.process(t)
	b.answers(w, 1000, 200)
	require.Empty(t, w.tally.take())
	require.Empty(t, w.queue.first())
}

// What could not be written is written later, in its order.
func TestTallyIsKeptWhileTheRecordIsAway(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	w := b.process(t)
	b.answers(w, 99, 400)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w.flushTally(gone)
	require.Zero(t, b.rows(t))
	b.answers(w, 1, 200)
	b.answers(w, 2, 400)
	w.flushTally(gone)
	w.flushTally(t.Context())
	require.Equal(t, webhook.EndpointActive, b.now(t).State)
	b.answers(w, 98, 400)
	w.flushTally(t.Context())
	require.Equal(t, webhook.EndpointDisabled, b.now(t).State)
}

// What each end of a delivery counts for.
func TestWhatCountsAsTrouble(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status                     int
		state                      webhook.State
		reason                     retry.Reason
		permanent, exhausted, gone bool
	}{
		"delivered":                 {200, webhook.StateDelivered, "", false, false, false},
		"refused":                   {400, webhook.StateDeadLettered, "http_400", true, false, false},
		"redirected":                {302, webhook.StateDeadLettered, "http_302", true, false, false},
		"gone":                      {410, webhook.StateDeadLettered, "http_410", true, false, true},
		"to be tried again":         {503, webhook.StateRetrying, "", false, false, false},
		"too many attempts":         {503, webhook.StateDeadLettered, retry.ReasonMaxAttempts, false, true, false},
		"too late":                  {503, webhook.StateDeadLettered, retry.ReasonGiveUpTime, false, true, false},
		"ambiguous too often":       {404, webhook.StateDeadLettered, retry.ReasonAmbiguousLimit, true, false, false},
		"to be tried again, never":  {503, webhook.StateDeadLettered, retry.ReasonRetryAfterPastGiveUp, false, false, false},
		"ended by us meanwhile":     {503, webhook.StateDeadLettered, retry.ReasonInternal, false, false, false},
		"cancelled meanwhile":       {503, webhook.StateCancelled, "cancelled", false, false, false},
		"refused, after a delivery": {400, webhook.StateDelivered, "", false, false, false},
	} {
		a, p := answerOf(c.status)
		p.State, p.Reason = c.state, string(c.reason)
		got := troubleOf(webhook.Ref{}, a, p)
		require.Equal(t, []bool{c.permanent, c.exhausted, c.gone}, []bool{got.Permanent == 1, got.Exhausted == 1, !got.Gone.IsZero()}, name)
		p.Attempts++
		got = troubleOf(webhook.Ref{}, a, p)
		require.Zero(t, got.Permanent+got.Exhausted, "%s: another attempt ended it", name)
	}
	// A policy that tries 410 again does not disable.
	policy := retry.Default()
	policy.RetryStatuses = []int{http.StatusGone}
	a, p := answerOf(410)
	a.Outcome = retry.Classify(retry.Answer{Status: 410}, policy)
	p.Reason = string(retry.ReasonMaxAttempts)
	got := troubleOf(webhook.Ref{}, a, p)
	require.True(t, got.Gone.IsZero())
	require.Equal(t, 1, got.Exhausted)
}

func TestEndsWithoutAttemptsThatCount(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	w := b.process(t)
	for _, c := range []struct {
		state     webhook.State
		reason    string
		attempts  int
		trouble   int
		operation int
	}{
		{webhook.StateDeadLettered, string(retry.ReasonGiveUpTime), 3, 1, 1},
		{webhook.StateDeadLettered, string(retry.ReasonGiveUpTime), 0, 0, 1},
		{webhook.StateDeadLettered, webhook.ReasonTerminated, 3, 0, 1},
		{webhook.StateDeadLettered, webhook.ReasonHeldExpired, 3, 0, 1},
		{webhook.StateCancelled, webhook.ReasonEndpointDeleted, 3, 0, 0},
	} {
		p := webhook.Progress{Run: 1, State: c.state, Reason: c.reason, Attempts: c.attempts, RunAttempts: c.attempts}
		w.ended(b.ref("order.paid"), p)
		require.Len(t, w.tally.take(), c.trouble, c.reason)
		require.Len(t, w.queue.first(), c.operation, c.reason)
		w.queue.drop(c.operation)
		w.ended(b.ref(webhook.NoticePaused), p)
		require.Len(t, w.tally.take(), c.trouble, "operational events count for their endpoint")
		require.Empty(t, w.queue.first(), "and are told of to nobody")
	}
}

func TestDeadLettersAreTold(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	w := b.running(t)
	ref := b.ref("order.paid")
	a, p := answerOf(400)
	for range 3 { // the same end
		w.Attempted(ref, a, p)
	}
	a, p = answerOf(400)
	w.Attempted(b.ref(webhook.NoticeDisabled), a, p)
	a, p = answerOf(503)
	p.State = webhook.StateRetrying
	w.Attempted(b.ref("order.paid"), a, p)
	last := b.ref("order.last")
	a, p = answerOf(400)
	p.Attempts, a.Number = 7, 7
	w.Attempted(last, a, p)
	require.Eventually(t, func() bool { return len(b.told(t, webhook.NoticeDeadLettered)) == 2 }, soon, time.Millisecond)
	told := b.told(t, webhook.NoticeDeadLettered)
	require.Equal(t, map[string]any{
		"id": ref.DeliveryID.String(), "event_id": ref.EventID.String(), "event_type": "order.paid", "endpoint_id": ref.EndpointID.String(),
		"reason": "http_400", "attempts": 1.0,
	}, told[0]["delivery"])
	require.Equal(t, "acme", told[0]["tenant_id"])
	require.Equal(t, "acme@example.com", told[0]["tenant_contact"])
	require.Equal(t, "the delivery was given up after 7 attempts (http_400); it can be replayed", told[1]["summary"])
	require.Positive(t, w.dispatcher.Waiting(), "the dispatcher starts them")
	require.Eventually(t, func() bool {
		return metric(t, w, fmt.Sprintf(`everpost_notices_total{type=%q} 2`, webhook.NoticeDeadLettered))
	}, soon, time.Millisecond)
}

// The queue is bounded: what finds no place is counted, and nobody waits.
func TestNoticesAreBounded(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	w := b.process(t)
	b.answers(w, maxNotices+7, 400)
	require.Equal(t, maxNotices, w.queue.drop(0))
	require.True(t, metric(t, w, "everpost_notices_dropped_total 7"))
}

// Of several errors, one that passes is enough to try again; what an error came from
// says nothing.
func TestErrorsThatPass(t *testing.T) {
	t.Parallel()
	of := func(code webhook.Code) error { return &webhook.Error{Code: code, Message: "no"} }
	for code := webhook.CodeInternal; code <= webhook.CodeUnavailable; code++ {
		want := code == webhook.CodeUnavailable || code == webhook.CodeConflict || code == webhook.CodeRateLimited
		require.Equal(t, want, passes(of(code)), code)
		require.Equal(t, want, passes(fmt.Errorf("store: %w", errors.Join(of(webhook.CodeInvalid), of(code)))), code)
		require.Equal(t, want, passes(errors.Join(of(code), of(webhook.CodeInvalid))), code)
	}
	require.False(t, passes(errors.Join(errors.New("a"), errors.New("b"))))
	require.True(t, passes(&webhook.Error{Code: webhook.CodeUnavailable, Err: fmt.Errorf("%w: %w", errors.New("a"), of(webhook.CodeInvalid))}))
}

// A tenant's full quota keeps nobody from being told.
func TestAFullQuotaIsTold(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	b.make(t, "acme", "everpost.*")
	for range 2 {
		b.make(t, "ops", "everpost.*")
	}
	for _, id := range []string{"acme", "ops"} {
		_, _, err := b.own.PutTenant(t.Context(), webhook.Actor{}, webhook.Tenant{ID: id, Limits: webhook.Limits{PendingDeliveries: 1, EndpointsPerEvent: 1}})
		require.NoError(t, err)
	}
	w := b.process(t)
	b.answers(w, 5, 400)
	require.Zero(t, w.notifyAll(t.Context()))
	require.Len(t, b.told(t, webhook.NoticeDeadLettered), 5)
	require.True(t, metric(t, w, "everpost_notices_dropped_total 0"))
}

// A process that ends writes what it has noted.
func TestStopWritesWhatIsNoted(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	w := b.process(t)
	w.start(t.Context())
	b.answers(w, 99, 400)
	w.stop(t.Context())
	require.Len(t, b.told(t, webhook.NoticeDeadLettered), 99)
	require.Equal(t, 1, b.rows(t))
	next := b.running(t)
	b.answers(next, 1, 400)
	require.Eventually(t, func() bool { return b.now(t).State == webhook.EndpointDisabled }, soon, time.Millisecond, "the next goes on counting")
}

// While the record is away notices wait; one that it refuses harms no other.
func TestNoticesAreKeptWhileTheRecordIsAway(t *testing.T) {
	t.Parallel()
	b := setupWatch(t)
	w := b.process(t)
	b.answers(w, 3, 400)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 3, w.notifyAll(gone))
	w.note(job{notice: webhook.Notice{Type: webhook.NoticeDeadLettered, TenantID: "acme", Key: "no\x00text", At: time.Now()}})
	b.answers(w, 1, 400)
	require.Zero(t, w.notifyAll(t.Context()))
	require.Len(t, b.told(t, webhook.NoticeDeadLettered), 4)
	require.True(t, metric(t, w, "everpost_notices_dropped_total 1"))
}
