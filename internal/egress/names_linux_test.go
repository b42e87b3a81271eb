package egress

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
)

// TestNamesAndAddresses sends requests in a network namespace with the system's own
// resolver: resolv.conf has two name servers, of which the first never answers a question for
// IPv6 and the second nothing at all, and a search domain with a wildcard that leads to
// another machine. The receiver has three addresses, of which the first two are dead.
func TestNamesAndAddresses(t *testing.T) {
	t.Parallel()
	if runInNamespace(t) {
		namesAndAddresses(t)
	}
}

func namesAndAddresses(t *testing.T) {
	t.Helper()
	ip(t, "link set lo up")
	mountOver(t, "/etc/resolv.conf", "nameserver 127.0.0.8\nnameserver 127.0.0.9\nsearch corp.test\noptions ndots:5\n")
	mountOver(t, "/etc/hosts", "127.0.0.1 localhost\n127.0.0.1 plain\n127.0.0.1 listed.example.test\n"+
		"127.0.0.5 twice.example.test\n127.0.0.1 twice.example.test\n")
	server := newNameServer(t, "127.0.0.8:53", func(q dnsmessage.Question) nameAnswer {
		known := map[string][]netip.Addr{
			"hook.example.test.":   addrsOf("127.0.0.5", "127.0.0.6", "127.0.0.1"),
			"single.example.test.": addrsOf("127.0.0.1"), "intranet.": addrsOf("127.0.0.1"),
		}
		name := q.Name.String()
		if strings.HasSuffix(name, ".corp.test.") {
			return nameAnswer{addrs: addrsOf("127.0.0.3")}
		}
		if known[name] == nil {
			return nameAnswer{code: dnsmessage.RCodeNameError}
		}
		return nameAnswer{addrs: known[name], silent: q.Type == dnsmessage.TypeAAAA}
	})
	newNameServer(t, "127.0.0.9:53", func(dnsmessage.Question) nameAnswer { return nameAnswer{silent: true} })
	receiver := receivertest.New(t)
	port := int(receiver.Addr().Port())
	elsewhere := receivertest.NewWith(t, receivertest.Options{Addr: "127.0.0.3:" + strconv.Itoa(port)})
	for _, dead := range []string{"127.0.0.5", "127.0.0.6"} {
		listenDeaf(t, dead, port)
	}
	c := New(Config{Guard: local()})
	t.Cleanup(c.Close)
	send := func(host string) Response {
		return c.Send(t.Context(), Request{TenantID: "acme", URL: "http://" + host + ":" + strconv.Itoa(port), Timeout: time.Second})
	}

	first := send("hook.example.test")
	requireFailure(t, first, retry.FailureNone, 200)
	require.GreaterOrEqual(t, first.Latency, 2*raceDelay, "two addresses are dead")
	again := send("hook.example.test")
	requireFailure(t, again, retry.FailureNone, 200)
	require.Less(t, again.Latency, raceDelay, "the dead addresses are known and tried last")
	hosts := []string{"single.example.test", "HOOK.example.test.", "intranet", "plain", "plain.", "localhost", "listed.example.test", "twice.example.test"}
	for _, host := range hosts {
		requireFailure(t, send(host), retry.FailureNone, 200)
	}
	require.Equal(t, "dns_not_found: no such host", send("missing").Err, "no search domain completes it")
	require.Equal(t, 2+len(hosts), receiver.Count())
	require.Zero(t, elsewhere.Count())
	require.Equal(t, []string{
		"A hook.example.test.", "A intranet.", "A missing.", "A single.example.test.",
		"AAAA hook.example.test.", "AAAA intranet.", "AAAA missing.", "AAAA single.example.test.",
	}, server.questions())
}

// listenDeaf listens on an address and accepts nothing: with a full queue the kernel drops
// what asks for a connection, as a machine that is gone does.
func listenDeaf(t *testing.T, addr string, port int) {
	t.Helper()
	at := &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(addr).As4()}
	open := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	listening := open()
	require.NoError(t, unix.Bind(listening, at))
	require.NoError(t, unix.Listen(listening, 0))
	for range 4 {
		require.ErrorIs(t, unix.Connect(open(), at), unix.EINPROGRESS)
	}
}

// mountOver replaces a file of the system for this process.
func mountOver(t *testing.T, path, text string) {
	t.Helper()
	own := filepath.Join(t.TempDir(), filepath.Base(path))
	require.NoError(t, os.WriteFile(own, []byte(text), 0o644))
	require.NoError(t, syscall.Mount(own, path, "", syscall.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(path, 0)) })
}
