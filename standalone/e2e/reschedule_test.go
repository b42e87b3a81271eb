package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

func at(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// A delayed event waits for its time, which can be moved, and the give-up time with it.
func TestDelayedEventIsRescheduled(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"retry_policy": fieldsOf{"preset": "fast"}}) // gives up after an hour
	tomorrow := time.Now().Add(24 * time.Hour).Truncate(time.Microsecond)
	e, d := b.postOne("order.paid", `{}`, "deliver_at", `"`+at(tomorrow)+`"`)
	d = b.waitState(d.ID, "pending")
	require.Equal(t, tomorrow.UTC(), d.NextAttemptAt.UTC())
	require.Equal(t, tomorrow.Add(time.Hour).UTC(), d.GiveUpAt.UTC())

	later := tomorrow.Add(24 * time.Hour)
	b.command(http.StatusAccepted, d.ID, "reschedule", fieldsOf{"at": at(later)})
	eventually(contextFor(t, patience), t, func() string {
		d = b.delivery(d.ID)
		if d.NextAttemptAt.IsZero() || !d.NextAttemptAt.Equal(later) {
			return "the next attempt has not moved"
		}
		return ""
	})
	require.Equal(t, later.Add(time.Hour).UTC(), d.GiveUpAt.UTC(), "the hour counts from the new time")
	require.Empty(t, r.of(e.ID))

	b.command(http.StatusAccepted, d.ID, "reschedule", fieldsOf{"at": at(time.Now())})
	require.Equal(t, 1, b.waitState(d.ID, "delivered").Attempts)
	got := b.command(http.StatusConflict, d.ID, "reschedule", fieldsOf{"at": at(later)})
	require.Contains(t, string(got.body), `"state":"delivered"`)
}

// A retry is moved to another time, but not past the give-up time.
func TestRetryIsRescheduled(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	r.Script("/hook", receivertest.Step{Status: http.StatusServiceUnavailable})
	b.endpoint(r, "/hook", fieldsOf{"retry_policy": patiently()})
	_, d := b.postOne("order.paid", `{}`)
	d = b.waitState(d.ID, "retrying")
	got := b.command(http.StatusBadRequest, d.ID, "reschedule", fieldsOf{"at": at(d.GiveUpAt.Add(time.Second))})
	require.Contains(t, string(got.body), "at: must not be after the time at which the delivery is given up")

	soon := time.Now().Add(time.Second)
	b.command(http.StatusAccepted, d.ID, "reschedule", fieldsOf{"at": at(soon)})
	d = b.waitState(d.ID, "delivered")
	require.Equal(t, 2, d.Attempts)
	attempts := b.attempts(d.ID)
	require.WithinRange(t, attempts[1].StartedAt.Time, soon.Add(-50*time.Millisecond), soon.Add(patience))
}

func TestDelayedEventIsCancelled(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	e, d := b.postOne("order.paid", `{}`, "deliver_at", `"`+at(time.Now().Add(time.Hour))+`"`)
	b.command(http.StatusAccepted, d.ID, "cancel", fieldsOf{"reason": "not any more"})
	d = b.waitState(d.ID, "cancelled")
	require.Equal(t, "not any more", text(d.Reason))
	require.Zero(t, d.Attempts)
	require.Empty(t, r.of(e.ID))
}
