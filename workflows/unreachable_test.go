package workflows_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// In this file a receiver cannot be reached for days, because its name or its certificate
// is wrong, and time is skipped.

const host = "receiver.example"

// unreachable is a bundle whose endpoint has the name above and answers over TLS. fixed
// says from when on its record and its certificate are right.
type unreachable struct {
	*bundle

	record, certificate atomic.Bool // they are right
}

func setupUnreachable(t *testing.T, policy retry.Policy) *unreachable {
	t.Helper()
	u := &unreachable{bundle: setupPolicy(t, policy)}
	roots := x509.NewCertPool()
	expired, valid := certificate(t, roots, -time.Hour), certificate(t, roots, time.Hour)
	receiver := receivertest.NewWith(t, receivertest.Options{TLS: &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if u.certificate.Load() {
				return &valid, nil
			}
			return &expired, nil
		},
	}})
	u.receiver = receiver
	client := egress.New(egress.Config{
		Guard: egress.NewGuard(egress.GuardConfig{
			AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AnyPort: true,
		}),
		RootCAs: roots, Resolver: u.resolver(t),
	})
	t.Cleanup(client.Close)
	u.sender = client
	_, port, err := net.SplitHostPort(strings.TrimPrefix(receiver.URL(), "https://"))
	require.NoError(t, err)
	u.endpoint, err = u.store.Endpoints.UpdateEndpoint(t.Context(), webhook.Actor{Name: "test"}, tenant, u.endpoint.ID, func(e *webhook.Endpoint) error {
		e.URL = "https://" + host + ":" + port + "/hook"
		return nil
	})
	require.NoError(t, err)
	return u
}

// resolver uses a server of the test, which knows no name until the DNS record is right.
func (u *unreachable) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		query := make([]byte, 1500)
		for {
			n, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(u.answer(query[:n]), from)
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, socket.Close())
		<-served
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp4", socket.LocalAddr().String())
	}}
}

func (u *unreachable) answer(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}
	m.Additionals = nil
	question := m.Questions[0]
	if !u.record.Load() {
		m.RCode = dnsmessage.RCodeNameError
	} else if question.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
		}}
	}
	packed, _ := m.Pack() // of what was just unpacked
	return packed
}

// certificate is one for the host, of a root of its own that is added to the roots.
func certificate(t *testing.T, roots *x509.CertPool, life time.Duration) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(life),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// outages are the two, and the reason that their attempts have.
func outages() map[string]struct {
	record bool
	reason retry.Reason
} {
	return map[string]struct {
		record bool
		reason retry.Reason
	}{
		"no such host":        {false, retry.ReasonDNSNotFound},
		"expired certificate": {true, retry.ReasonTLSInvalid},
	}
}

// Each preset, for as long as it lasts: up to 84 hours, with every attempt that a receiver
// which only fails is given, and for the same reasons in the end.
func TestEveryPresetWhileTheReceiverCannotBeReached(t *testing.T) {
	t.Parallel()
	for name, outage := range outages() {
		for _, preset := range retry.Presets() {
			t.Run(name+" "+preset.Name, func(t *testing.T) {
				t.Parallel()
				u := setupUnreachable(t, preset.Policy)
				u.record.Store(outage.record)
				r := u.givenUp(t, preset.Policy)
				r.requireNumber(t, latestPlain)
				r.requireTimes(t, latestPlain, 0)
				r.requireEndedAtOnce(t)
				reason := retry.ReasonGiveUpTime
				if len(r.attempts) == preset.Policy.MaxAttempts {
					reason = retry.ReasonMaxAttempts
				}
				require.Equal(t, string(reason), r.delivery.Reason)
				for _, a := range r.attempts {
					require.Equal(t, outage.reason, a.Outcome.Reason)
					require.Equal(t, retry.Retry, a.Outcome.Decision)
				}
				require.Zero(t, u.receiver.Count())
			})
		}
	}
}

// What the README promises: up to 72 hours. A record or a certificate that is fixed on the
// third day is in time.
func TestReachableAgainOnTheThirdDay(t *testing.T) {
	t.Parallel()
	for name, outage := range outages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := setupUnreachable(t, retry.Default())
			u.record.Store(outage.record)
			l := u.deliver(t)
			const fixed = 58 * time.Hour
			tried := 0
			l.run(after(fixed, func(*testsuite.TestWorkflowEnvironment) {
				u.record.Store(true)
				u.certificate.Store(true)
				require.Eventually(t, func() bool { // a failed look-up is kept for a second, which here is many attempts
					r := u.sender.Send(t.Context(), egress.Request{TenantID: tenant, URL: u.endpoint.URL})
					return r.Answer.Failure == retry.FailureNone
				}, 10*time.Second, 10*time.Millisecond)
				tried = u.receiver.Count()
			}))
			l.ends(webhook.StateDelivered, "")
			attempts := u.attempts(t, l.start.DeliveryID)
			last := attempts[len(attempts)-1]
			require.Equal(t, retry.Delivered, last.Outcome.Decision)
			require.Greater(t, last.StartedAt.Sub(attempts[0].StartedAt), fixed-slack)
			require.Greater(t, len(attempts), 10)
			for _, a := range attempts[:len(attempts)-1] {
				require.Equal(t, outage.reason, a.Outcome.Reason)
			}
			require.Equal(t, 1, u.receiver.Count()-tried)
		})
	}
}

// An endpoint without a policy of its own follows its tenant's as it is at each attempt;
// what was fixed when the event was accepted is the give-up time alone.
func TestWaitingDeliveriesFollowTheTenantsPolicy(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, retry.Policy{})
	put := func(policy string) {
		p, err := retry.ParsePolicy([]byte(policy))
		require.NoError(t, err)
		_, _, err = b.store.Tenants.PutTenant(context.Background(), webhook.Actor{Name: "test"}, webhook.Tenant{ID: tenant, RetryPolicy: p})
		require.NoError(t, err)
	}
	put(`{"strategy":"fixed","base":"1h","jitter":"none","give_up_after":"10h"}`)
	b.receiver.Default(receivertest.Step{Status: 503})
	l := b.deliver(t)
	l.run(after(90*time.Minute, func(*testsuite.TestWorkflowEnvironment) {
		put(`{"strategy":"fixed","base":"2h","jitter":"none","give_up_after":"72h","max_attempts":4}`)
	}))
	l.deadLettered(string(retry.ReasonMaxAttempts))
	r := ran{life: l, attempts: b.attempts(t, l.start.DeliveryID)}
	require.Len(t, r.attempts, 4)
	for i, at := range []time.Duration{0, time.Hour, 2 * time.Hour, 4 * time.Hour} {
		require.InDelta(t, at, r.at(i), float64(slack), "attempt %d: the first retry and the second were due by the first policy", i+1)
	}
	require.WithinDuration(t, r.attempts[0].StartedAt.Add(10*time.Hour), b.delivery(t, l.start.DeliveryID).GiveUpAt, slack)
}
