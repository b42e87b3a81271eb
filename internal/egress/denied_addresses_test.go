package egress

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/everpost/everpost/internal/retry"
)

// deniedAddresses are the first, last and a middle address of every denied range, the IPv6
// addresses that embed a denied IPv4 address, and the addresses that attackers try first.
func deniedAddresses() []netip.Addr {
	var all []netip.Addr
	for _, text := range deniedRanges {
		prefix := netip.MustParsePrefix(text)
		all = append(all, first(prefix), middle(prefix), last(prefix))
		if !prefix.Addr().Is4() {
			continue
		}
		for _, v4 := range []netip.Addr{first(prefix), middle(prefix), last(prefix)} {
			all = append(all, embedded(v4)...)
		}
	}
	for _, text := range []string{
		"169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", // cloud metadata
		"127.0.0.1", "127.0.0.53", "10.0.0.1", "10.96.0.1", "172.17.0.1", "192.168.0.1", "192.168.1.254", "0.0.0.0", "255.255.255.255",
		"::", "::1", "fe80::1", "fc00::1", "fd12:3456:789a::1", "ff02::1", "2001:db8::1",
	} {
		all = append(all, netip.MustParseAddr(text))
	}
	return unique(all)
}

// embedded returns the IPv6 addresses that a router or the kernel may translate to the IPv4
// address: mapped, compatible, NAT64 (RFC 6052, 8215), 6to4, Teredo.
func embedded(v4 netip.Addr) []netip.Addr {
	b := v4.As4()
	hex := fmt.Sprintf("%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])
	teredo := fmt.Sprintf("%02x%02x:%02x%02x", ^b[0], ^b[1], ^b[2], ^b[3]) // RFC 4380 inverts it
	var all []netip.Addr
	for _, text := range []string{
		"::ffff:" + hex, "::" + hex, "64:ff9b::" + hex, "64:ff9b:1::" + hex, "2002:" + hex + "::1", "2001:0:" + hex + "::1", "2001::" + teredo,
	} {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// allowedAddresses are the neighbours of the denied ranges and a few well-known addresses.
func allowedAddresses() []netip.Addr {
	var all []netip.Addr
	for _, text := range deniedRanges {
		prefix := netip.MustParsePrefix(text)
		for _, addr := range []netip.Addr{first(prefix).Prev(), last(prefix).Next()} {
			if addr.IsValid() && !listed(addr) {
				all = append(all, addr)
			}
		}
	}
	for _, text := range []string{"1.1.1.1", "8.8.8.8", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450:4001::200e"} {
		all = append(all, netip.MustParseAddr(text))
	}
	return unique(all)
}

// everywhere returns ranges that allow every address that is not this machine's.
func everywhere() []netip.Prefix {
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for _, addr := range reservedAddrs() {
		all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return all
}

func unique(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// literal returns the address as the host of a URL.
func literal(addr netip.Addr) string {
	if addr.Is4() {
		return addr.String()
	}
	return "[" + addr.String() + "]"
}

// probe listens on every address of this machine, over IPv4 and IPv6, and records the local
// address of each connection.
type probe struct {
	port string

	mu          sync.Mutex
	connections map[netip.Addr]int
}

// listenAll starts a probe on a port, or on a free one for 0. serve gets each connection,
// which is closed afterwards; nil sends nothing.
func listenAll(t *testing.T, port int, serve func(net.Conn)) *probe {
	t.Helper()
	listener, err := net.Listen("tcp", "[::]:"+strconv.Itoa(port)) // Linux listens for IPv4 there, too
	require.NoError(t, err)
	e := &probe{connections: make(map[netip.Addr]int)}
	_, e.port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if local, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil {
				e.mu.Lock()
				e.connections[local.Addr().Unmap()]++
				e.mu.Unlock()
			}
			serving.Go(func() {
				defer conn.Close()
				if serve != nil {
					serve(conn)
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return e
}

// at returns how many connections were made to each address.
func (e *probe) at() map[netip.Addr]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.connections)
}

// sync returns when every connection made so far was counted: connections are accepted in
// the order in which they were made.
func (e *probe) sync(t *testing.T) {
	t.Helper()
	before := e.at()[netip.IPv6Loopback()]
	conn, err := net.Dial("tcp", "[::1]:"+e.port)
	require.NoError(t, err)
	defer conn.Close()
	require.Eventually(t, func() bool { return e.at()[netip.IPv6Loopback()] > before }, 10*time.Second, time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.connections[netip.IPv6Loopback()] -= 1; e.connections[netip.IPv6Loopback()] == 0 {
		delete(e.connections, netip.IPv6Loopback())
	}
}

func (e *probe) forget(addr netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.connections, addr)
}

func TestCorpusIsLarge(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(deniedAddresses()), 400)
	require.Greater(t, len(allowedAddresses()), 40)
	require.Greater(t, len(spellings()), 150)
	for _, addr := range allowedAddresses() {
		require.False(t, listed(addr), addr)
		require.NoError(t, NewGuard(GuardConfig{}).CheckAddr(netip.AddrPortFrom(addr, 443)), addr)
	}
}

// Every denied address, as a literal and as the address of a name, is refused, and the
// probe gets no connection. The probe covers this machine's addresses only;
// TestCorpusAtTheSocket covers all.
func TestCorpus(t *testing.T) {
	t.Parallel()
	e := listenAll(t, 0, nil)
	guard := NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true})
	denied := deniedAddresses()
	c := setup(t, Config{Guard: guard, Resolver: naming(t, denied)})
	for i, addr := range denied {
		requireRefused(t, guard, addr, "the corpus")
		_, err := guard.CheckURL("https://" + literal(addr) + "/")
		require.Equal(t, guard.CheckAddr(netip.AddrPortFrom(addr, 443)).Error(), err.Error(), addr)
		for host, want := range map[string]string{literal(addr): "denied_address: " + err.Error(), nameOf(i): "dns_not_found: no such host"} {
			r := c.Send(t.Context(), Request{URL: "http://" + host + ":" + e.port + "/", Timeout: patience})
			require.Equal(t, want, r.Err, "%s as %s", addr, host)
		}
	}
	e.sync(t)
	require.Empty(t, e.at())
}

// nameOf and naming give each address a name.
func nameOf(i int) string { return "n" + strconv.Itoa(i) + ".receiver.example." }

func naming(t *testing.T, addrs []netip.Addr) *net.Resolver {
	t.Helper()
	return resolver(t, func(name string, _ int) ([]netip.Addr, dnsmessage.RCode) {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "n"), ".")
		i, err := strconv.Atoi(number)
		if err != nil || i >= len(addrs) {
			return nil, dnsmessage.RCodeNameError
		}
		return addrs[i : i+1 : i+1], dnsmessage.RCodeSuccess
	})
}

// spellings are hosts that some parser takes for an address of this machine, the metadata
// service or a private network.
func spellings() []string {
	var all []string
	for _, v4 := range []string{"127.0.0.1", "0.0.0.0", "169.254.169.254", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "168.63.129.16"} {
		b := netip.MustParseAddr(v4).As4()
		n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		low := n & 0xffffff
		all = append(all,
			v4, v4+".", strconv.FormatUint(uint64(n), 10), strconv.FormatUint(uint64(n)+1<<32, 10),
			fmt.Sprintf("0x%08x", n), fmt.Sprintf("0X%X", n), fmt.Sprintf("0%o", n),
			fmt.Sprintf("0x%x.0x%x.0x%x.0x%x", b[0], b[1], b[2], b[3]), fmt.Sprintf("0%o.0%o.0%o.0%o", b[0], b[1], b[2], b[3]),
			fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3]), fmt.Sprintf("%d.%d", b[0], low), fmt.Sprintf("%d.%d.%d", b[0], b[1], n&0xffff),
			fmt.Sprintf("0x%x.%d", b[0], low), fmt.Sprintf("%d.0%o", b[0], low), fmt.Sprintf("0x%08x.", n), strconv.FormatUint(uint64(n), 10)+".",
			"["+v4+"]", "[::ffff:"+v4+"]", "[::FFFF:"+v4+"]", "[0:0:0:0:0:ffff:"+v4+"]", "[::"+v4+"]", "[64:ff9b::"+v4+"]", "[::ffff:"+v4+"%25lo]",
			wide(v4), strings.ReplaceAll(v4, ".", "\u3002"), strings.ReplaceAll(v4, ".", "\uff0e"), strings.ReplaceAll(v4, ".", "\uff61"),
			wide(strconv.FormatUint(uint64(n), 10)), "%"+strconv.FormatUint(uint64(v4[0]), 16)+v4[1:], v4+"%2e", v4+".nip.io",
		)
		for _, addr := range embedded(netip.MustParseAddr(v4)) {
			all = append(all, literal(addr), "["+addr.StringExpanded()+"]", "["+strings.ToUpper(addr.String())+"]")
		}
	}
	return append(all,
		"localhost", "LOCALHOST", "localhost.", "localhost.localdomain", "ip6-localhost", "metadata", "metadata.google.internal", "internal.example",
		"[::]", "[::1]", "[0::1]", "[0000:0000:0000:0000:0000:0000:0000:0001]", "[::1%25lo]", "[::1%251]", "[fe80::1%25lo]", "[fe80::1]", "[fec0::1]",
		"[ff02::1%25lo]", "::1", "[::1].", "[::1", "::1]", "[[::1]]", "[v1.127.0.0.1]", "[]", "[localhost]",
		"\u2460\u2461\u2466.\u24ea.\u24ea.\u2460", "loc\u00e4lhost", "loc\u212calhost",
		"\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3", "loc\u00adalhost", "loc\u200balhost", "xn--localhost-", "xn--loclhost-1za",
		"127.0.0.1\u0000.example.com", "127.0.0.1%00.example.com", "127.0.0.1\t", "127.0.0.1 ", "1.1.1.1 &@127.0.0.1",
		"user@127.0.0.1", "user:password@127.0.0.1", "93.184.215.14@127.0.0.1",
		"93.184.215.14:80@127.0.0.1", "example.com%40127.0.0.1", "example.com\\@127.0.0.1",
		"127.0.0.1\\@example.com", "127.0.0.1\\.example.com", "127.0.0.1#@93.184.215.14", "127.0.0.1?@93.184.215.14",
		"127.0.0.1;93.184.215.14", "127.0.0.1,93.184.215.14",
	)
}

// wide writes digits and full stops in their full-width forms.
func wide(text string) string {
	return strings.Map(func(r rune) rune { return r - '!' + '\uff01' }, text)
}

// No spelling leads to a connection, although the name server resolves every name to this
// machine. What the check of the URL allows is refused at the dial.
func TestSpellings(t *testing.T) {
	t.Parallel()
	e := listenAll(t, 0, nil)
	c := setup(t, Config{
		Guard: NewGuard(GuardConfig{AllowHTTP: true, AnyPort: true}),
		Resolver: resolver(t, func(string, int) ([]netip.Addr, dnsmessage.RCode) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, dnsmessage.RCodeSuccess
		}),
	})
	refused := 0
	for _, host := range spellings() {
		for _, url := range []string{"http://" + host + ":" + e.port + "/", "http://" + host + "/", "https://" + host + ":" + e.port + "/"} {
			r := c.Send(t.Context(), Request{URL: url, Timeout: patience})
			// Go's resolver does not look up a name without letters.
			require.Contains(t, []retry.Failure{retry.FailureDenied, retry.FailureDNSNotFound}, r.Answer.Failure, "%q: %s", url, r.Err)
			require.False(t, r.InternalFault, "%q: %s", url, r.Err)
			if r.Answer.Failure == retry.FailureDenied {
				refused++
			}
		}
	}
	require.Greater(t, refused, 100)
	e.sync(t)
	require.Empty(t, e.at())
}
