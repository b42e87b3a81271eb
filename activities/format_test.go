package activities_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

func (b *bundle) update(t *testing.T, change func(*webhook.Endpoint)) {
	t.Helper()
	_, err := b.store.Endpoints.UpdateEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, b.endpoint.ID, func(e *webhook.Endpoint) error {
		change(e)
		return nil
	})
	require.NoError(t, err)
}

// An envelope is the same in every attempt and run, whichever process sends it and wherever the payload comes from. The signature covers
// what is sent. Another format applies from the next attempt on, and does not change what is stored.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.update(t, func(e *webhook.Endpoint) { e.PayloadFormat = webhook.PayloadEnvelope })
	b.Script("/hook", receivertest.Step{Status: 503}, receivertest.Step{Status: 503}, receivertest.Step{Status: 400})
	p := b.guarded(t, admission.New(admission.Config{}), neverSlow)
	in := b.known(t, p)
	require.True(t, p.Eager.SendEagerly(in, &starts{}), "from memory")
	_, err := b.WaitFor(t.Context(), 1)
	require.NoError(t, err)
	got, err := p.attempt(in)
	require.NoError(t, err)
	require.Zero(t, p.record.count())
	for range 2 { // from the store
		in.Progress, in.DueAt = got.Progress, time.Time{}
		got, err = p.attempt(in)
		require.NoError(t, err)
	}
	require.Equal(t, webhook.StateDeadLettered, got.State)
	status, err := p.reopen(activities.Reopening{Ref: in.Ref, Run: 1, Reason: "fixed"})
	require.NoError(t, err)
	in.Progress = webhook.Progress{Run: 2, GiveUpAt: status.GiveUpAt}
	b.Script("/hook", receivertest.Step{Status: 503})
	got, err = p.attempt(in)
	require.NoError(t, err)

	e, _, err := b.store.Events.Event(t.Context(), tenant, in.EventID)
	require.NoError(t, err)
	want := `{"type":"order.paid","timestamp":"` + e.CreatedAt.Format("2006-01-02T15:04:05.000000Z") + `","data":` + payload + `}`
	all := b.Requests()
	require.Len(t, all, 4)
	for _, sent := range all {
		require.Equal(t, want, string(sent.Body))
		require.NoError(t, sent.Verify(secret))
		require.Equal(t, "application/json", sent.Header.Get("Content-Type"))
	}

	b.update(t, func(e *webhook.Endpoint) { e.PayloadFormat = webhook.PayloadRaw })
	in.Progress, in.DueAt = got.Progress, time.Time{}
	_, err = b.process(t, nil).attempt(in)
	require.NoError(t, err)
	require.Equal(t, payload, string(b.Requests()[4].Body))
	stored, err := b.store.Events.Payload(t.Context(), tenant, in.EventID)
	require.NoError(t, err)
	require.Equal(t, payload, string(stored))
}

// The older scheme signs the body as it is sent, too, and a test sends what a delivery would.
func TestEnvelopeOfATest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tests := activities.NewTests(b.process(t, nil).config.Sender)
	target := b.target(t)
	target.PayloadFormat, target.Signature = webhook.PayloadEnvelope, webhook.SignatureHex
	largest := bytes.Repeat([]byte("1"), webhook.DefaultMaxPayload)
	made, err := tests.Send(t.Context(), target, "order.test", largest)
	require.NoError(t, err)
	require.Equal(t, retry.Delivered, made.Outcome.Decision)
	sent := b.Requests()[0]
	require.Regexp(t, `^\{"type":"order\.test","timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z","data":1+\}$`, string(sent.Body))
	key, err := signature.ParseSecret(secret)
	require.NoError(t, err)
	require.NoError(t, signature.VerifyHex(sent.Header.Get("X-Webhook-Signature"), sent.Body, key))
}

// What is compared with the SHA-256 is what was stored, not what is made of it.
func TestCorruptPayloadIsNotPutInAnEnvelope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.update(t, func(e *webhook.Endpoint) { e.PayloadFormat = webhook.PayloadEnvelope })
	in := b.stored(t)
	b.execute(t, `update events set payload = payload || ' ' where id = $1`, in.EventID)
	got, err := b.process(t, nil).attempt(in)
	require.NoError(t, err)
	require.Equal(t, []any{webhook.StateDeadLettered, string(retry.ReasonPayloadCorrupt)}, []any{got.State, got.Reason})
	require.Zero(t, b.Count())
}
