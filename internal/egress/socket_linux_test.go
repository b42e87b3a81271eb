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
)

// inNamespace tells the test that it runs where every address is this machine's own.
const inNamespace = "EVERPOST_TEST_NAMESPACE"

// TestCorpusAtTheSocket proves the guard where no address is out of reach: in a network
// namespace whose loopback device owns all of them, on ports 443 and 80, with a guard as
// it is by default. Every denied address is tried as a literal and by name, then every
// allowed one; the listener tells which of them were connected to.
//
// It starts itself once more in the namespace, which takes a Linux that lets this user
// have one, and ip(8).
func TestCorpusAtTheSocket(t *testing.T) {
	t.Parallel()
	if os.Getenv(inNamespace) != "" {
		corpusAtTheSocket(t)
		return
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip(8)")
	}
	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCorpusAtTheSocket$", "-test.v", "-test.timeout=2m")
	self.Env = append(os.Environ(), inNamespace+"=1")
	self.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
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
	require.Contains(t, said.String(), "--- PASS: TestCorpusAtTheSocket")
}

func corpusAtTheSocket(t *testing.T) {
	t.Helper()
	for _, command := range []string{"link set lo up", "-4 route add local 0.0.0.0/0 dev lo", "-6 route add local ::/0 dev lo"} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %v: %s", command, err, out)
		}
	}
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
			requireFault(t, r, retry.FaultDenied, 0)
		} else {
			require.Equal(t, "dns_not_found: no such host", r.Err, denied[i/4])
		}
	}
	requireUnheard(t, secure, plain)

	for i, r := range sendAll(strict, allowed, len(denied)) {
		require.NotEqual(t, retry.FaultDenied, r.Answer.Fault, "%s: %s", allowed[i/4], r.Err)
	}
	for _, e := range []*ears{secure, plain} {
		e.ring(t)
		heard := e.at()
		require.Len(t, heard, len(allowed))
		for _, addr := range allowed {
			require.Equal(t, 2, heard[addr], "%s: as a literal and by name", addr)
			e.forget(addr)
		}
	}
	mixedAnswersAtTheSocket(t, strict, secure, plain)

	// The ears were there all the time: without the guard they hear all but what the
	// kernel itself connects to nowhere.
	anywhere := everywhere()
	sendAll(NewGuard(GuardConfig{AllowHTTP: true, AllowedCIDRs: anywhere}), denied, 0)
	secure.ring(t)
	heard := secure.at()
	for _, addr := range denied {
		if connectable(addr) {
			require.Positive(t, heard[addr], addr)
		}
	}
	withoutIPv6(t, strict)
}

// withoutIPv6: on a machine that has no address to reach them from, receivers that have
// IPv6 only, by their own choice, are not there. It is not our own fault, which would be
// tried for ever and be held against nobody.
func withoutIPv6(t *testing.T, guard *Guard) {
	t.Helper()
	for _, command := range []string{"-6 route del local ::/0 dev lo", "-6 addr flush dev lo", "-6 route add default dev lo"} {
		out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
	}
	addr := netip.MustParseAddr("2606:4700:4700::1111")
	_, err := net.DialTCP("tcp6", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 443)))
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	c := setup(t, Config{Guard: guard, Resolver: naming(t, []netip.Addr{addr})})
	for _, host := range []string{literal(addr), nameOf(0)} {
		r := c.Send(t.Context(), Request{URL: "https://" + host + "/", Timeout: patience})
		require.False(t, r.OwnFault, r.Err)
		require.Equal(t, "connect_refused: cannot assign requested address", r.Err)
		require.Equal(t, retry.FaultConnectRefused, r.Answer.Fault)
	}
}

// connectable leaves out what the kernel connects to nowhere, or as another address.
func connectable(addr netip.Addr) bool {
	switch {
	case addr.IsMulticast(), addr.IsUnspecified(), addr.Is4In6():
		return false
	case addr == netip.MustParseAddr("255.255.255.255"), addr == netip.MustParseAddr("127.255.255.255"): // broadcast
		return false
	default:
		return addr.Is4() || !addr.IsLinkLocalUnicast() // which wants a zone
	}
}

// mixedAnswersAtTheSocket: a name with public and private addresses, and one that changes
// its mind, under the default guard.
func mixedAnswersAtTheSocket(t *testing.T, guard *Guard, secure, plain *ears) {
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
	secure.ring(t)
	require.NotEmpty(t, secure.at())
	for _, addr := range good {
		secure.forget(addr)
	}
	requireUnheard(t, secure, plain)
}

func requireUnheard(t *testing.T, all ...*ears) {
	t.Helper()
	for _, e := range all {
		e.ring(t)
		require.Empty(t, e.at())
	}
}

// The ears hear: the same requests get through when the operator says so.
func TestEarsHear(t *testing.T) {
	t.Parallel()
	e := listenAll(t, 0, nil)
	anywhere := everywhere()
	c := setup(t, Config{Guard: NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true, AllowedCIDRs: anywhere})})
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "[::1]", "localhost", "127.9.9.9"} {
		c.Send(t.Context(), Request{URL: "http://" + host + ":" + e.port + "/", Timeout: patience})
	}
	e.ring(t)
	require.Contains(t, e.at(), netip.MustParseAddr("127.9.9.9"))
	require.GreaterOrEqual(t, e.at()[netip.MustParseAddr("127.0.0.1")], 2, "0.0.0.0 is this machine, too")
	require.Contains(t, e.at(), netip.IPv6Loopback())
}
