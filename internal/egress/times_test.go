package egress

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// slowNames answers every question for IPv4 after a time.
func slowNames(t *testing.T, after time.Duration, addrs ...string) *net.Resolver {
	t.Helper()
	var all []netip.Addr
	for _, addr := range addrs {
		all = append(all, netip.MustParseAddr(addr))
	}
	return newNameServer(t, "127.0.0.1:0", func(question dnsmessage.Question) nameAnswer {
		if question.Type == dnsmessage.TypeA {
			<-time.After(after)
		}
		return nameAnswer{addrs: all}
	}).resolver()
}

// The parts of a request's time, over a new connection and over the same one again.
func TestTimes(t *testing.T) {
	t.Parallel()
	const slow = 120 * time.Millisecond
	ca := newAuthority(t)
	receiver := receivertest.NewWith(t, receivertest.Options{TLS: ca.config(t, "receiver.example", time.Now().Add(time.Hour))})
	receiver.Default(receivertest.Step{Delay: slow, Status: 200})
	c := setup(t, Config{RootCAs: ca.pool, Resolver: slowNames(t, slow, "127.0.0.1")})
	_, port, err := net.SplitHostPort(receiver.Addr().String())
	require.NoError(t, err)
	request := Request{EndpointID: "ep_1", URL: "https://receiver.example:" + port + "/", Body: []byte("{}"), Timeout: patience}

	first := c.Send(t.Context(), request)
	requireFailure(t, first, retry.FailureNone, 200)
	require.GreaterOrEqual(t, first.Times.Names, slow)
	require.Positive(t, first.Times.Connecting)
	require.Positive(t, first.Times.TLS)
	require.GreaterOrEqual(t, first.Times.Waiting, slow)
	require.LessOrEqual(t, first.Times.Sum(), first.Latency)
	require.Less(t, first.Latency-first.Times.Sum(), slow, "nothing else takes time")

	again := c.Send(t.Context(), request)
	requireFailure(t, again, retry.FailureNone, 200)
	require.GreaterOrEqual(t, again.Times.Waiting, slow)
	require.Equal(t, webhook.Times{Waiting: again.Times.Waiting}, again.Times, "the connection was kept")
}

// Failures have the times of what was done until then.
func TestTimesOfFailures(t *testing.T) {
	t.Parallel()
	silent := rawServer(t, func(conn *net.TCPConn, _ int) { hold(conn) })
	_, port, err := net.SplitHostPort(silent)
	require.NoError(t, err)
	names := slowNames(t, short/3, "127.0.0.1")

	headers := setup(t, Config{Resolver: names}).Send(t.Context(), Request{URL: "http://receiver.example:" + port + "/", Timeout: short})
	require.Equal(t, retry.FailureTimeoutHeaders, headers.Answer.Failure)
	require.GreaterOrEqual(t, headers.Times.Names, short/3)
	require.Positive(t, headers.Times.Waiting)

	handshake := setup(t, Config{}).Send(t.Context(), Request{URL: "https://" + silent + "/", Timeout: short})
	require.Equal(t, retry.FailureTimeoutTLS, handshake.Answer.Failure)
	require.Greater(t, handshake.Times.TLS, short/2)
	require.Zero(t, handshake.Times.Names)
	require.Zero(t, handshake.Times.Waiting)

	hanging := proxyTo(t, "", always("hang"))
	dial := setup(t, Config{Guard: strictly(), Proxy: hanging.url}).Send(t.Context(), Request{URL: "http://93.184.215.14/", Timeout: short})
	require.Equal(t, retry.FailureTimeoutDial, dial.Answer.Failure)
	require.Greater(t, dial.Times.Connecting, short/2)
	require.Equal(t, webhook.Times{Connecting: dial.Times.Connecting}, dial.Times)

	denied := setup(t, Config{Guard: strictly()}).Send(t.Context(), Request{URL: "http://127.0.0.1/", Timeout: short})
	require.Zero(t, denied.Times, "nothing was done")
}

// The times do not tell a name that leads to a refused address from one that does not exist.
func TestTimesTellNoDeniedName(t *testing.T) {
	t.Parallel()
	for _, addrs := range [][]string{nil, {"10.0.0.1"}} {
		c := setup(t, Config{Guard: strictly(), Resolver: slowNames(t, 0, addrs...)})
		c.minNotFoundTime = minNotFoundTime
		r := c.Send(t.Context(), Request{URL: "http://receiver.example/", Timeout: patience})
		require.Equal(t, retry.FailureDNSNotFound, r.Answer.Failure)
		require.GreaterOrEqual(t, r.Times.Names, minNotFoundTime)
		require.Equal(t, webhook.Times{Names: r.Times.Names}, r.Times)
	}
}
