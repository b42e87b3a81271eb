package egress

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/retry"

	"github.com/everpost/everpost/internal/programtest"
)

// inNamespace is set in the environment of the test that runs in the network namespace.
const inNamespace = "EVERPOST_TEST_NAMESPACE"

// runInNamespace runs the test again, by itself, in a network and mount namespace of its own,
// and returns false. It returns true in the namespace. It requires ip(8) and a Linux that
// permits this user to create a namespace; root always may.
func runInNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	programtest.Find(t, "ip", "iproute2")
	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	self.Env = append(os.Environ(), inNamespace+"=1")
	self.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	var said strings.Builder
	self.Stdout, self.Stderr = &said, &said
	if err := self.Start(); err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	require.NoError(t, self.Wait(), said.String())
	if strings.Contains(said.String(), "--- SKIP") {
		t.Skip(said.String())
	}
	require.Contains(t, said.String(), "--- PASS: "+t.Name())
	return false
}

// TestCorpusAtTheSocket tests the guard in a network namespace whose loopback device owns
// all addresses, on ports 443 and 80, with the default guard. Every denied address is tried
// as a literal and by name, then every allowed one; the listener reports which of them were
// connected to.
func TestCorpusAtTheSocket(t *testing.T) {
	t.Parallel()
	if runInNamespace(t) {
		corpusAtTheSocket(t)
	}
}

func corpusAtTheSocket(t *testing.T) {
	t.Helper()
	ip(t, "link set lo up", "-4 route add local 0.0.0.0/0 dev lo", "-6 route add local ::/0 dev lo")
	secure, plain := listenAll(t, 443, nil), listenAll(t, 80, nil)
	denied, allowed := deniedAddresses(), allowedAddresses()
	all := append(append([]netip.Addr{}, denied...), allowed...)
	sendAll := func(guard *Guard, addrs []netip.Addr, from int) []Response {
		c := setup(t, Config{Guard: guard, Resolver: naming(t, all)})
		var responses []Response
		for i, addr := range addrs {
			for _, host := range []string{literal(addr), nameOf(from + i)} {
				for _, scheme := range []string{"https://", "http://"} {
					responses = append(responses, c.Send(t.Context(), Request{URL: scheme + host + "/", Timeout: patience}))
				}
			}
		}
		return responses
	}
	strict := NewGuard(GuardConfig{AllowHTTP: true})
	for i, r := range sendAll(strict, denied, 0) {
		if i%4 < 2 {
			requireFailure(t, r, retry.FailureDenied, 0)
		} else {
			require.Equal(t, "dns_not_found: no such host", r.Err, denied[i/4])
		}
	}
	requireNoConnections(t, secure, plain)

	for i, r := range sendAll(strict, allowed, len(denied)) {
		require.NotEqual(t, retry.FailureDenied, r.Answer.Failure, "%s: %s", allowed[i/4], r.Err)
	}
	for e, want := range map[*probe]int{secure: 4, plain: 2} { // a handshake that is cut off is made twice
		e.sync(t)
		connections := e.at()
		require.Len(t, connections, len(allowed))
		for _, addr := range allowed {
			require.Equal(t, want, connections[addr], "%s: as a literal and by name", addr)
			e.forget(addr)
		}
	}
	mixedAnswersAtTheSocket(t, strict, secure, plain)

	// The probes were active all the time: without the guard they get a connection for
	// every address that the kernel can connect to.
	anywhere := everywhere()
	sendAll(NewGuard(GuardConfig{AllowHTTP: true, AllowedCIDRs: anywhere}), denied, 0)
	secure.sync(t)
	connections := secure.at()
	for _, addr := range denied {
		if connectable(addr) {
			require.Positive(t, connections[addr], addr)
		}
	}
	withoutIPv6(t, strict)
}

// ip configures the network of the namespace.
func ip(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %v: %s", command, err, out)
		}
	}
}

// withoutIPv6: a receiver that has only IPv6 counts as unreachable on a machine without
// IPv6. It is not an own failure, which would be retried without a limit.
func withoutIPv6(t *testing.T, guard *Guard) {
	t.Helper()
	ip(t, "-6 route del local ::/0 dev lo", "-6 addr flush dev lo", "-6 route add default dev lo")
	addr := netip.MustParseAddr("2606:4700:4700::1111")
	_, err := net.DialTCP("tcp6", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 443)))
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	c := setup(t, Config{Guard: guard, Resolver: naming(t, []netip.Addr{addr})})
	for _, host := range []string{literal(addr), nameOf(0)} {
		r := c.Send(t.Context(), Request{URL: "https://" + host + "/", Timeout: patience})
		require.False(t, r.InternalFault, r.Err)
		require.Equal(t, "connect_refused: cannot assign requested address", r.Err)
		require.Equal(t, retry.FailureConnectRefused, r.Answer.Failure)
	}
}

// connectable reports whether the kernel connects to the address, and under that address.
func connectable(addr netip.Addr) bool {
	switch {
	case addr.IsMulticast(), addr.IsUnspecified(), addr.Is4In6():
		return false
	case addr == netip.MustParseAddr("255.255.255.255"), addr == netip.MustParseAddr("127.255.255.255"): // broadcast
		return false
	default:
		return addr.Is4() || !addr.IsLinkLocalUnicast() // link-local addresses need a zone
	}
}

// mixedAnswersAtTheSocket tests names with public and private addresses, and names that
// change their addresses, with the default guard.
func mixedAnswersAtTheSocket(t *testing.T, guard *Guard, secure, plain *probe) {
	t.Helper()
	good := []netip.Addr{netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("2606:4700:4700::1111")}
	bad := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254"), netip.IPv6Loopback()}
	for _, answers := range [][][]netip.Addr{
		{append(append([]netip.Addr{}, bad...), good...)},
		{append(append([]netip.Addr{}, good...), bad...)},
		{good[:1], bad},
		{bad, good},
	} {
		var turn atomic.Int32
		c := setup(t, Config{Guard: guard, Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) {
			return answers[min(int(turn.Load()), len(answers)-1)], dnsmessage.RCodeSuccess
		})})
		for range answers {
			c.Send(t.Context(), Request{EndpointID: "ep_1", URL: "https://receiver.example./", Timeout: patience})
			turn.Add(1)
		}
	}
	secure.sync(t)
	require.NotEmpty(t, secure.at())
	for _, addr := range good {
		secure.forget(addr)
	}
	requireNoConnections(t, secure, plain)
}

func requireNoConnections(t *testing.T, all ...*probe) {
	t.Helper()
	for _, e := range all {
		e.sync(t)
		require.Empty(t, e.at())
	}
}

// The probes work: the same requests arrive when the operator allows them.
func TestProbesGetConnections(t *testing.T) {
	t.Parallel()
	e := listenAll(t, 0, nil)
	anywhere := everywhere()
	c := setup(t, Config{Guard: NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true, AllowedCIDRs: anywhere})})
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "[::1]", "localhost", "127.9.9.9"} {
		c.Send(t.Context(), Request{URL: "http://" + host + ":" + e.port + "/", Timeout: patience})
	}
	e.sync(t)
	require.Contains(t, e.at(), netip.MustParseAddr("127.9.9.9"))
	require.GreaterOrEqual(t, e.at()[netip.MustParseAddr("127.0.0.1")], 2, "0.0.0.0 is this machine, too")
	require.Contains(t, e.at(), netip.IPv6Loopback())
}
