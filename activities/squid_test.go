package activities_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/programtest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// startSquid starts Squid, which takes anyone's requests to the ports at open, and wants a password at closed. It refuses
// tunnels to the port of refused.
func startSquid(t *testing.T, refused string) (open, closed *url.URL) {
	t.Helper()
	path := programtest.Find(t, "squid", "squid")
	dir, err := os.MkdirTemp("", "squid") //nolint:usetesting // the directories above t.TempDir are not open to another user
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777)) // as root, Squid becomes another user
	_, port, err := net.SplitHostPort(refused)
	require.NoError(t, err)
	atOpen, atClosed := freeAddress(t), freeAddress(t)
	_, closedPort, err := net.SplitHostPort(atClosed)
	require.NoError(t, err)
	file := filepath.Join(dir, "squid.conf")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
http_port %s
http_port %s
visible_hostname squid.test
pid_filename %[3]s/pid
cache_log %[3]s/log
access_log none
coredump_dir %[3]s
shutdown_lifetime 0 seconds
connect_timeout 2 seconds
cache deny all
auth_param basic program /bin/cat
acl secured localport %[4]s
acl known proxy_auth REQUIRED
acl refused port %[5]s
http_access deny secured !known
http_access deny refused
http_access allow all
`, atOpen, atClosed, dir, closedPort, port), 0o644)) // Squid reads it as another user
	var log buffer
	command := exec.CommandContext(t.Context(), path, "-N", "-d", "1", "-f", file)
	command.Stdout, command.Stderr = &log, &log
	command.WaitDelay = 10 * time.Second
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for _, address := range []string{atOpen, atClosed} {
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
			}
			return err == nil
		}, 30*time.Second, 10*time.Millisecond, log.String)
	}
	return &url.URL{Scheme: "http", Host: atOpen}, &url.URL{Scheme: "http", Host: atClosed}
}

// through returns a process that sends through a proxy.
func (b *bundle) through(t *testing.T, proxy *url.URL) (*process, *admission.Controller) {
	t.Helper()
	client := egress.New(egress.Config{Proxy: proxy, Guard: egress.NewGuard(egress.GuardConfig{
		AllowHTTP: true, AnyPort: true, AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})})
	t.Cleanup(client.Close)
	admits := admission.New(admission.Config{})
	return b.guarded(t, admits, func(c *activities.Config) { c.Sender = client }), admits
}

// checkProxied makes attempts through proxies of each kind: one that opens tunnels, one that refuses the receiver, one that wants a password,
// one that cannot be reached, and one that cannot reach the receiver.
func checkProxied(t *testing.T, b *bundle, opens, refuses, wantsPassword, away *url.URL, dead string) {
	t.Helper()
	receiver := "http://" + b.Addr().String() + "/hook"
	for name, c := range map[string]struct {
		proxy *url.URL
		to    string
		old   bool // the delivery was accepted more than a day ago
		state webhook.State
		cause string
	}{
		"opens":               {opens, receiver, false, webhook.StateDelivered, "delivered"},
		"refuses":             {refuses, receiver, false, webhook.StateHeld, "proxy_refused: the egress proxy answered 403"},
		"refuses for a day":   {refuses, receiver, true, webhook.StateRetrying, "proxy_refused"},
		"wants a password":    {wantsPassword, receiver, false, webhook.StateHeld, "proxy_refused: the egress proxy answered 407"},
		"the same for a day":  {wantsPassword, receiver, true, webhook.StateHeld, "proxy_refused: the egress proxy answered 407"},
		"away":                {away, receiver, false, webhook.StateHeld, "proxy_refused: the egress proxy cannot be reached"},
		"the receiver is off": {opens, "http://" + dead + "/hook", false, webhook.StateRetrying, "proxy_connect_failed"},
	} {
		b.update(t, func(ep *webhook.Endpoint) { ep.URL = c.to })
		p, admits := b.through(t, c.proxy)
		in := b.stored(t)
		if c.old {
			in.GiveUpAt = in.GiveUpAt.Add(-25 * time.Hour)
		}
		result, err := p.attempt(in)
		require.NoError(t, err, name)
		require.Equal(t, c.state, result.State, "%s: %s", name, result.LastOutcome)
		d, observed := b.delivery(t, in), admits.Health(b.endpoint.ID)
		if c.state == webhook.StateHeld {
			require.Equal(t, webhook.ReasonInternal, d.Reason, name)
			require.Equal(t, c.cause, d.LastError, name)
			require.Zero(t, d.Attempts, "%s: no attempt is counted", name)
			require.Zero(t, observed.Failed, "%s: nothing is recorded against the endpoint", name)
			continue
		}
		require.Equal(t, c.cause, d.LastOutcome.Reason, name)
		require.Equal(t, 1, d.Attempts, name)
		if c.state == webhook.StateRetrying {
			require.NotZero(t, observed.Failed, name)
			made := b.attempts(t, in)[0]
			require.Equal(t, retry.Reason(c.cause), made.Outcome.Reason)
			require.True(t, strings.HasPrefix(made.Error, c.cause+": the egress proxy answered "), made.Error)
		}
	}
	require.Equal(t, 1, b.Count(), "only one request reached the receiver")
}

func TestRefusalsOfSquid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	opens, wantsPassword := startSquid(t, "127.0.0.1:1")
	refuses, _ := startSquid(t, b.Addr().String())
	checkProxied(t, b, opens, refuses, wantsPassword, &url.URL{Scheme: "http", Host: freeAddress(t)}, freeAddress(t))
}

// The same with a proxy of the test, which needs no Squid.
func TestRefusalsOfAProxy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := func(answer func(to string) int) *url.URL {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status := answer(r.Host); status != http.StatusOK {
				w.WriteHeader(status)
				return
			}
			far, err := net.Dial("tcp", r.Host)
			if err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			defer far.Close()
			near, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer near.Close()
			_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
			go func() {
				_, _ = io.Copy(far, near)
				_ = far.Close()
			}()
			_, _ = io.Copy(near, far)
		}))
		t.Cleanup(server.Close)
		u, err := url.Parse(server.URL)
		require.NoError(t, err)
		return u
	}
	status := func(status int) func(string) int { return func(string) int { return status } }
	checkProxied(t, b, proxy(status(200)), proxy(status(403)), proxy(status(407)), &url.URL{Scheme: "http", Host: freeAddress(t)}, freeAddress(t))
}
