package egress

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/retry"
)

const typeA, typeAAAA = dnsmessage.TypeA, dnsmessage.TypeAAAA

func addrsOf(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// What each family's answer leads to, and how long a look-up takes.
func TestLookup(t *testing.T) {
	t.Parallel()
	var (
		four, six = nameAnswer{addrs: addrsOf("192.0.2.1", "192.0.2.2")}, nameAnswer{addrs: addrsOf("2001:db8::1")}
		silent    = nameAnswer{silent: true}
		missing   = nameAnswer{code: dnsmessage.RCodeNameError}
		broken    = nameAnswer{code: dnsmessage.RCodeServerFailure}
		nothing   = nameAnswer{}
	)
	const notFound, temporary = "no such host", "server misbehaving"
	for name, c := range map[string]struct {
		a, aaaa nameAnswer
		want    []netip.Addr
		err     string
	}{
		"both":                    {four, six, addrsOf("2001:db8::1", "192.0.2.1", "192.0.2.2"), ""},
		"AAAA is never answered":  {four, silent, four.addrs, ""},
		"A is never answered":     {silent, six, six.addrs, ""},
		"AAAA fails":              {four, broken, four.addrs, ""},
		"AAAA does not exist":     {four, missing, four.addrs, ""},
		"no AAAA":                 {four, nothing, four.addrs, ""},
		"no A":                    {nothing, six, six.addrs, ""},
		"neither":                 {nothing, nothing, nil, notFound},
		"does not exist":          {missing, missing, nil, notFound},
		"no A, AAAA fails":        {missing, broken, nil, temporary},
		"A fails, no AAAA":        {broken, nothing, nil, temporary},
		"both fail":               {broken, broken, nil, temporary},
		"no A, AAAA not answered": {nothing, silent, nil, "i/o timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newNameServer(t, "127.0.0.1:0", func(q dnsmessage.Question) nameAnswer {
				return map[dnsmessage.Type]nameAnswer{typeA: c.a, typeAAAA: c.aaaa}[q.Type]
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			got, err := newNames(server.resolver()).lookup(ctx, "acme", "Hook.Example.com")
			if c.err == "" {
				require.NoError(t, err)
				require.Less(t, time.Since(start), time.Second/2)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			require.Equal(t, c.want, got)
			for _, question := range server.questions() {
				require.Contains(t, []string{"A hook.example.com.", "AAAA hook.example.com."}, question, "absolute, once more when it failed")
			}
		})
	}
}

// Literals are not looked up, and no name is completed. The hosts file of every machine
// has localhost.
func TestNamesWithoutDots(t *testing.T) {
	t.Parallel()
	server := newNameServer(t, "127.0.0.1:0", func(dnsmessage.Question) nameAnswer { return nameAnswer{addrs: addrsOf("192.0.2.7")} })
	n := newNames(server.resolver())
	for _, host := range []string{"localhost", "LOCALHOST", "localhost."} {
		got, err := n.lookup(t.Context(), "acme", host)
		require.NoError(t, err)
		require.Contains(t, got, netip.MustParseAddr("127.0.0.1"))
	}
	require.Empty(t, server.questions(), "one family in the hosts file is enough")
	got, err := n.lookup(t.Context(), "acme", "everpost-test-intranet")
	require.NoError(t, err)
	require.Equal(t, addrsOf("192.0.2.7"), got)
	require.Equal(t, []string{"A everpost-test-intranet.", "AAAA everpost-test-intranet."}, server.questions())
}

// A resolver that never answers the question for IPv6 costs a request 50 ms instead of all
// its time.
func TestARequestDoesNotWaitForIPv6(t *testing.T) {
	t.Parallel()
	e := listenAll(t, 0, ok)
	server := newNameServer(t, "127.0.0.1:0", func(q dnsmessage.Question) nameAnswer {
		return nameAnswer{addrs: addrsOf("127.0.0.1"), silent: q.Type == typeAAAA}
	})
	r := setup(t, Config{Resolver: server.resolver()}).Send(t.Context(), Request{URL: "http://receiver.example:" + e.port, Timeout: time.Second})
	requireFailure(t, r, retry.FailureNone, 200)
}

// A refused address has the text and the time of a name that does not exist, also when the
// question for IPv6 is not answered.
func TestRefusedNameWithoutAnswerForIPv6(t *testing.T) {
	t.Parallel()
	server := newNameServer(t, "127.0.0.1:0", func(q dnsmessage.Question) nameAnswer {
		return nameAnswer{addrs: addrsOf("10.0.0.1"), silent: q.Type == typeAAAA}
	})
	c := New(Config{Guard: strictly(), Resolver: server.resolver()})
	t.Cleanup(c.Close)
	for range 2 { // the second one is known
		r := c.Send(t.Context(), Request{URL: "http://receiver.example/", Timeout: patience})
		require.Equal(t, "dns_not_found: no such host", r.Err)
		require.GreaterOrEqual(t, r.Latency, minNotFoundTime)
		require.Less(t, r.Latency, 2*time.Second)
	}
	require.Len(t, server.questions(), 2)
}

// Answers are kept for 10 s and failures for 1 s, apart for each tenant.
func TestLookupsAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNames(nil)
		good, bad := foundName{addrs: addrsOf("192.0.2.1")}, foundName{err: errors.New("not today")}
		n.keep("acme", "good.example", good, time.Now())
		n.keep("acme", "bad.example", bad, time.Now())
		known := func(tenant, name string) bool {
			_, ok := n.known(tenant, name, time.Now())
			return ok
		}
		require.False(t, known("other", "good.example"))
		<-time.After(keepFailures - 1)
		got, err := n.lookup(t.Context(), "acme", "GOOD.example.")
		require.NoError(t, err)
		require.Equal(t, good.addrs, got)
		_, err = n.lookup(t.Context(), "acme", "bad.example")
		require.EqualError(t, err, "not today")
		<-time.After(time.Nanosecond)
		require.False(t, known("acme", "bad.example"))
		<-time.After(keepAnswers - keepFailures - 1)
		require.True(t, known("acme", "good.example"))
		<-time.After(time.Nanosecond)
		require.False(t, known("acme", "good.example"))
	})
}

// What a request's own end cut short is not kept.
func TestAbandonedLookupIsNotKept(t *testing.T) {
	t.Parallel()
	server := newNameServer(t, "127.0.0.1:0", func(dnsmessage.Question) nameAnswer { return nameAnswer{silent: true} })
	n := newNames(server.resolver())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := n.lookup(ctx, "acme", "slow.example")
	require.ErrorContains(t, err, "i/o timeout")
	_, ok := n.known("acme", "slow.example", time.Now())
	require.False(t, ok)
}

// A tenant whose events have a new name each costs others nothing but what all names share.
func TestKeptNamesAreBounded(t *testing.T) {
	t.Parallel()
	n := newNames(nil)
	now := time.Now()
	fill := func(tenant string, count int) {
		for i := range count {
			now = now.Add(time.Microsecond)
			n.keep(tenant, strconv.Itoa(i)+".example", foundName{}, now)
		}
	}
	fill("victim", 1)
	fill("hostile", 3*maxNamesPerTenant)
	own, _ := n.byTenant.Peek("hostile")
	require.Equal(t, maxNamesPerTenant, own.Len())
	_, ok := n.known("victim", "0.example", now)
	require.True(t, ok)
	for i := range 12 {
		fill(strconv.Itoa(i), maxNamesPerTenant)
		require.LessOrEqual(t, n.byTenant.Weight(), maxNames)
	}
}
