package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// A payload that changes in the store between two attempts is never sent: the delivery becomes a dead letter, the error is logged without
// a byte of the payload, and the observer gets the dead letter. Once the payload is restored, a replay sends it.
func TestPayloadIntegrity(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]string{
		"one bit":           `update events set payload = set_bit(payload, 9, 1 - get_bit(payload, 9)) where id = $1`,
		"a byte less":       `update events set payload = substring(payload from 1 for length(payload) - 1) where id = $1`,
		"a byte more":       `update events set payload = payload || ' ' where id = $1`,
		"nothing":           `update events set payload = '' where id = $1`,
		"another event's":   `update events set payload = 'canary-other' where id = $1`,
		"another checksum":  `update events set payload_sha256 = set_bit(payload_sha256, 255, 1 - get_bit(payload_sha256, 255)) where id = $1`,
		"no bytes, no sum":  `update events set payload = '', payload_sha256 = '' where id = $1`,
		"a shorter sum":     `update events set payload_sha256 = substring(payload_sha256 from 1 for 31) where id = $1`,
		"sum of the sum":    `update events set payload_sha256 = sha256(payload_sha256) where id = $1`,
		"bytes for the sum": `update events set payload_sha256 = payload where id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, seen := b.counting(t, nil)
			in := b.stored(t)
			b.Script("/hook", receivertest.Step{Status: 503})
			first, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, webhook.StateRetrying, first.State)
			b.execute(t, `create table kept as select id, payload, payload_sha256 from events where id = $1`, in.EventID)
			b.execute(t, spoil, in.EventID)

			in.Progress = first.Progress
			in.DueAt = time.Time{}
			second, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, webhook.StateDeadLettered, second.State)
			require.Equal(t, string(retry.ReasonPayloadCorrupt), second.Reason)
			require.Equal(t, 1, second.Attempts, "the attempt before counts, this was none")
			require.Equal(t, 1, b.Count(), "nothing was sent")
			require.Len(t, b.attempts(t, in), 1)
			require.Contains(t, p.log.String(), "does not match its SHA-256")
			require.Contains(t, p.log.String(), in.DeliveryID.String())
			require.NotContains(t, p.log.String(), "canary")
			require.Equal(t, []string{"attempt 1", "no attempt, dead_lettered"}, seen.counted)
			require.Equal(t, []string{string(retry.ReasonPayloadCorrupt)}, seen.ended)

			status, err := p.reopen(activities.Reopening{Ref: in.Ref, Run: 1, Reason: "fixed"})
			require.NoError(t, err)
			in.Progress = webhook.Progress{Run: status.Run, GiveUpAt: status.GiveUpAt}
			again, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, webhook.StateDeadLettered, again.State, "a replay does not send it either")
			require.Equal(t, 1, b.Count())

			b.execute(t, `update events e set payload = k.payload, payload_sha256 = k.payload_sha256 from kept k where k.id = e.id and e.id = $1`, in.EventID)
			status, err = p.reopen(activities.Reopening{Ref: in.Ref, Run: 2, Reason: "fixed"})
			require.NoError(t, err)
			in.Progress = webhook.Progress{Run: status.Run, GiveUpAt: status.GiveUpAt}
			fixed, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, webhook.StateDelivered, fixed.State)
			require.Equal(t, payload, string(b.Requests()[1].Body))
		})
	}
}

// A payload that changes in memory between its arrival and its first attempt is not sent: it is read from the store and checked again.
func TestPayloadIntegrityOfAToken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil string
		state webhook.State
	}{
		"the store is whole": {"", webhook.StateDelivered},
		"the store is not":   {`update events set payload = set_bit(payload, 9, 1 - get_bit(payload, 9)) where id = $1`, webhook.StateDeadLettered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.process(t, nil)
			accepted, in := b.event(t)
			p.intake.Accepted(accepted)
			accepted.Payload[1] ^= 1 // the token's are the same bytes
			if c.spoil != "" {
				b.execute(t, c.spoil, in.EventID)
			}
			got, err := p.attempt(in)
			require.NoError(t, err)
			require.Equal(t, c.state, got.State)
			require.Equal(t, 1, p.record.count())
			require.Contains(t, p.log.String(), "changed in memory")
			require.Contains(t, p.log.String(), in.DeliveryID.String())
			if c.state == webhook.StateDelivered {
				require.Equal(t, payload, string(b.Requests()[0].Body))
				return
			}
			require.Equal(t, string(retry.ReasonPayloadCorrupt), got.Reason)
			require.Zero(t, b.Count())
		})
	}
}
