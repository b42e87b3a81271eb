package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	otherSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	privateKey  = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	publicKey   = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
)

// What each scheme sends, with each kind of secret, and what of it is kept.
func TestSchemes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	tests := activities.NewTests(p.config.Sender)
	sentWith := func(scheme string, secrets ...string) (receivertest.Request, map[string]string) {
		t.Helper()
		target := b.target(t)
		target.Signature, target.Secrets = scheme, secrets
		// Set by its owner before it was ours.
		target.Headers["x-webhook-SIGNATURE"], target.Headers["X-Idempotency-Key"] = "canary-mine", "canary-mine"
		made, err := tests.Send(t.Context(), target, "order.paid", []byte(payload))
		require.NoError(t, err)
		all := b.Requests()
		for name, value := range made.RequestHeaders {
			require.NotContains(t, value, "canary", name)
		}
		return all[len(all)-1], made.RequestHeaders
	}
	keys := map[string]signature.Key{}
	for _, text := range []string{secret, otherSecret} {
		key, err := signature.ParseSecret(text)
		require.NoError(t, err)
		keys[text] = key
	}
	public, err := signature.ParsePublicKey(publicKey)
	require.NoError(t, err)
	keys[privateKey] = public
	for _, c := range []struct {
		scheme  string
		secrets []string
		pattern string
	}{
		{webhook.SignatureV1, []string{secret}, `^v1,\S{44}$`},
		{webhook.SignatureV1, []string{otherSecret, secret}, `^v1,\S{44} v1,\S{44}$`},
		{webhook.SignatureV1a, []string{privateKey}, `^v1a,\S{88}$`},
		{webhook.SignatureV1a, []string{privateKey, secret}, `^v1a,\S{88} v1,\S{44}$`},
		{webhook.SignatureV1, []string{secret, privateKey}, `^v1,\S{44} v1a,\S{88}$`},
	} {
		got, kept := sentWith(c.scheme, c.secrets...)
		h := got.Header
		require.Regexp(t, c.pattern, h.Get("webhook-signature"), c.scheme)
		message := signature.Message{ID: h.Get("webhook-id"), Timestamp: h.Get("webhook-timestamp"), Signature: h.Get("webhook-signature"), Body: got.Body}
		for _, text := range c.secrets {
			require.NoError(t, signature.Verify(message, time.Now(), 0, keys[text]), c.scheme)
		}
		require.Equal(t, h.Get("webhook-signature"), kept["webhook-signature"])
		require.Equal(t, "canary-mine", h.Get("X-Idempotency-Key"), "its own, here")
	}

	for _, secrets := range [][]string{{secret}, {secret, otherSecret}, {privateKey, secret}} {
		got, kept := sentWith(webhook.SignatureHex, secrets...)
		newest, err := signature.ParseSecret(secret)
		require.NoError(t, err)
		require.NoError(t, signature.VerifyHex(got.Header.Get("X-Webhook-Signature"), got.Body, newest))
		require.Len(t, got.Header.Values("X-Webhook-Signature"), 1)
		require.Len(t, got.Header.Values("X-Idempotency-Key"), 1)
		_, err = webhook.ParseEventID(got.Header.Get("X-Idempotency-Key"))
		require.NoError(t, err)
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			require.Empty(t, got.Header.Get(name))
			require.NotContains(t, kept, name)
		}
		require.NotEmpty(t, got.Header.Get("everpost-delivery-id"))
		require.Equal(t, "[redacted]", kept["X-Api-Key"])
		require.Equal(t, got.Header.Get("X-Webhook-Signature"), kept["X-Webhook-Signature"])
	}

	target := b.target(t)
	for own, want := range map[string]string{"": "application/json", "content-type": "application/cloudevents+json", "CONTENT-Type": "text/plain"} {
		if target.Headers = nil; own != "" {
			target.Headers = map[string]string{own: want}
		}
		_, err := tests.Send(t.Context(), target, "order.paid", []byte(payload))
		require.NoError(t, err)
		all := b.Requests()
		require.Equal(t, []string{want}, all[len(all)-1].Header.Values("Content-Type"), "the endpoint's own, or ours")
	}

	target.Signature, target.Secrets = webhook.SignatureHex, []string{privateKey}
	before := len(b.Requests())
	_, err = tests.Send(t.Context(), target, "order.paid", []byte(payload))
	require.ErrorIs(t, err, signature.ErrNoHMACSecret)
	require.Len(t, b.Requests(), before, "what cannot be signed is not sent")
}
