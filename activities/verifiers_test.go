package activities_test

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"

	"github.com/everpost/everpost/internal/programtest"
)

// Of the packages that the test in JavaScript gets, if it can.
const (
	npmStandardWebhooks = "standardwebhooks@1.1.1"
	npmSvix             = "svix@1.99.1"
)

// sent is a delivery as it arrived, and which of the secrets verify it: all of some,
// none of some, at least one of some. Indexes are those of the secrets.
type sent struct {
	Scheme  string            `json:"scheme"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
	All     []int             `json:"all"`
	None    []int             `json:"none"`
	One     []int             `json:"one"`
	Hex     int               `json:"hex"` // the secret of the hex scheme
}

// rotation is an endpoint whose secrets are rotated under load.
type rotation struct {
	*testing.T

	bundle    *bundle
	process   *process
	receiver  *receivertest.Receiver
	endpoint  webhook.Endpoint
	secrets   []string
	publicKey string
	sent      []sent
}

// TestForeignVerifiers: 10,000 deliveries across two rotations, through everything that
// signs and sends, are accepted by verifiers with a secret that is in use, and by no others.
func TestForeignVerifiers(t *testing.T) {
	t.Parallel()
	r := startRotation(t)
	r.deliver(3000, sent{All: []int{0}, None: []int{1, 2}}, nil)
	r.deliver(1000, sent{All: []int{0}, None: []int{2}}, func() { r.rotate(1, webhook.DefaultGrace) })
	r.deliver(3000, sent{All: []int{0, 1}, None: []int{2}}, nil)
	r.deliver(1000, sent{One: []int{1, 2}}, func() { r.rotate(2, 0) })
	r.deliver(2000, sent{All: []int{2}, None: []int{0, 1}}, nil)
	require.Len(t, r.sent, 10_000)
	r.scheme(webhook.SignatureV1a)
	r.deliver(100, sent{Scheme: webhook.SignatureV1a, All: []int{2}}, nil) // the old one, for its grace
	r.scheme(webhook.SignatureHex)
	r.deliver(100, sent{Scheme: webhook.SignatureHex, Hex: 3}, nil)

	t.Run("Go library", func(t *testing.T) {
		t.Parallel()
		r.verifyInGo(t)
	})
	t.Run("npm packages", func(t *testing.T) {
		t.Parallel()
		r.verifyInNode(t)
	})
}

func startRotation(t *testing.T) *rotation {
	t.Helper()
	b := setup(t)
	receiver := receivertest.NewWith(t, receivertest.Options{Keep: 20_000})
	r := &rotation{T: t, bundle: b, process: b.process(t, nil), receiver: receiver, endpoint: b.endpoint, secrets: []string{secret}}
	for i := range 3 {
		key := sha256.Sum256([]byte{byte(i)})
		r.secrets = append(r.secrets, "whsec_"+base64.StdEncoding.EncodeToString(key[:]))
	}
	r.change(func(e *webhook.Endpoint) { e.URL = receiver.URL() + "/hook" })
	return r
}

func (r *rotation) change(change func(*webhook.Endpoint)) {
	r.Helper()
	e, err := r.process.record.Endpoints.UpdateEndpoint(r.Context(), webhook.Actor{Name: "test"}, tenant, r.endpoint.ID, func(e *webhook.Endpoint) error {
		change(e)
		return nil
	})
	require.NoError(r, err)
	r.endpoint = e
}

// rotate makes another of the secrets the newest.
func (r *rotation) rotate(to int, grace time.Duration) {
	_, err := r.process.record.Endpoints.RotateSecret(r.Context(), webhook.Actor{Name: "test"}, tenant, r.endpoint.ID,
		webhook.Rotation{Grace: grace, NewSecret: webhook.NewSecret{Secret: r.secrets[to]}})
	if err != nil {
		r.Error(err)
	}
}

// scheme changes the scheme, and takes over the secret that comes with it.
func (r *rotation) scheme(scheme string) {
	r.Helper()
	r.change(func(e *webhook.Endpoint) { e.Signature = scheme })
	r.publicKey = max(r.publicKey, r.endpoint.PublicKey)
	if scheme == webhook.SignatureHex {
		newest, err := r.process.record.Endpoints.EndpointSecret(r.Context(), webhook.Actor{Name: "test"}, tenant, r.endpoint.ID)
		require.NoError(r, err)
		r.secrets[3] = newest
	}
}

// deliver makes that many deliveries, as many at a time as the endpoint takes, and something in the middle of them.
func (r *rotation) deliver(n int, want sent, meanwhile func()) {
	r.Helper()
	before, next := len(r.receiver.Requests()), atomic.Int64{}
	var all sync.WaitGroup
	for range r.endpoint.MaxInFlight {
		all.Go(func() {
			for {
				turn := next.Add(1)
				if turn > int64(n) {
					return
				}
				if turn == int64(n)/2 && meanwhile != nil {
					meanwhile()
				}
				if err := r.one(r.Context()); err != nil {
					r.Error(err)
				}
			}
		})
	}
	all.Wait()
	arrived := r.receiver.Requests()[before:]
	require.Len(r, arrived, n)
	for _, request := range arrived {
		one := want
		one.Headers, one.Body = map[string]string{}, request.Body
		for name := range request.Header {
			one.Headers[strings.ToLower(name)] = request.Header.Get(name)
		}
		r.sent = append(r.sent, one)
	}
}

// one posts an event and makes its first attempt.
func (r *rotation) one(ctx context.Context) error {
	accepted, err := r.process.record.Events.Accept(ctx, webhook.NewEvent{TenantID: tenant, Type: "order.paid", Payload: somePayload()})
	if err != nil {
		return err
	}
	start := accepted.Deliveries[0]
	r.process.intake.Accepted(accepted)
	result, err := r.process.Attempts.Attempt(ctx, activities.AttemptInput{
		FirstTask: true, Ref: start.Ref, Progress: webhook.Progress{Run: start.Run, GiveUpAt: start.GiveUpAt}, NotBefore: start.NotBefore,
	})
	if err == nil && result.State != webhook.StateDelivered {
		err = fmt.Errorf("%s: %s", start.DeliveryID, result.LastOutcome.String())
	}
	return err
}

// somePayload is JSON that a library may get wrong: its bytes are signed as they are.
func somePayload() []byte {
	n := rand.IntN(1 << 30)
	texts := []string{
		`{"order": %d}`, ` [%d ,1.0, 1e3 ]` + "\n", `"%d é ü 🙂 \u00e9 \ud83d\ude42"`, "{\t\"a\":%d,\r\n \"b\":{}}", `%d`, `{"":"%d","\u0000":null}`,
		`{"a":1,"b":[%d,{"deep":[[[]]]}],"n":123456789012345678901234567890.000}`, `"%d ` + strings.Repeat("x", 5000) + `"`,
	}
	return fmt.Appendf(nil, texts[n%len(texts)], n)
}

// verifyInGo verifies with the library of Standard Webhooks, and with the standard
// library what that does not know.
func (r *rotation) verifyInGo(t *testing.T) {
	t.Helper()
	var receivers []*standardwebhooks.Webhook
	for _, text := range r.secrets {
		receiver, err := standardwebhooks.NewWebhook(text)
		require.NoError(t, err)
		receivers = append(receivers, receiver)
	}
	counts := map[string]int{}
	for _, s := range r.sent {
		header := http.Header{}
		for name, value := range s.Headers {
			header.Set(name, value)
		}
		accepts := func(i int) bool { return receivers[i].Verify(s.Body, header) == nil }
		for _, i := range s.All {
			require.True(t, accepts(i), "%d: %v", i, s.Headers)
		}
		for _, i := range s.None {
			require.False(t, accepts(i), "%d: %v", i, s.Headers)
		}
		require.True(t, len(s.One) == 0 || slices.ContainsFunc(s.One, accepts), s.Headers)
		counts[s.Scheme]++
		switch s.Scheme {
		case webhook.SignatureV1a:
			require.True(t, r.ed25519(s), s.Headers)
		case webhook.SignatureHex:
			key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.secrets[s.Hex], "whsec_"))
			require.NoError(t, err)
			mac := hmac.New(sha256.New, key)
			mac.Write(s.Body)
			require.Equal(t, "sha256="+hex.EncodeToString(mac.Sum(nil)), s.Headers["x-webhook-signature"])
			require.NotEmpty(t, s.Headers["x-idempotency-key"])
			for name := range s.Headers {
				require.False(t, strings.HasPrefix(name, "webhook-"), name)
			}
		}
	}
	require.Equal(t, map[string]int{"": 10_000, webhook.SignatureV1a: 100, webhook.SignatureHex: 100}, counts)
}

// ed25519 verifies the first signature, which is the newest secret's.
func (r *rotation) ed25519(s sent) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.publicKey, "whpk_"))
	first, _, _ := strings.Cut(s.Headers["webhook-signature"], " ")
	text, ok := strings.CutPrefix(first, "v1a,")
	signature, decodeErr := base64.StdEncoding.DecodeString(text)
	message := s.Headers["webhook-id"] + "." + s.Headers["webhook-timestamp"] + "." + string(s.Body)
	return err == nil && decodeErr == nil && ok && ed25519.Verify(key, []byte(message), signature)
}

// verifyInNode verifies with the packages that receivers in JavaScript use, where they
// can be had.
func (r *rotation) verifyInNode(t *testing.T) {
	t.Helper()
	node, npm := programtest.Find(t, "node", "nodejs"), programtest.Find(t, "npm", "npm")
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts",
		"--fetch-retries=0", "--fetch-timeout=15000", npmStandardWebhooks, npmSvix)
	install.Dir, install.WaitDelay = dir, time.Second
	if out, err := install.CombinedOutput(); err != nil {
		programtest.Missing(t, fmt.Errorf("npm cannot fetch %s and %s here (%w): the deliveries were verified in Go only\n%s",
			npmStandardWebhooks, npmSvix, err, out))
	}
	text, err := json.Marshal(map[string]any{"secrets": r.secrets, "publicKey": r.publicKey, "deliveries": r.sent})
	require.NoError(t, err)
	file := filepath.Join(dir, "deliveries.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	script, err := os.ReadFile("testdata/verify.cjs")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "verify.cjs"), script, 0o600)) // beside its packages
	run := exec.CommandContext(ctx, node, "verify.cjs", file)
	run.Dir, run.WaitDelay = dir, time.Second
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	require.JSONEq(t, `{"standardwebhooks":10000,"svix":10000,"v1a":100,"hex":100}`, string(out))
}
