package fleet

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// from is a connection from an address.
type from struct {
	net.Conn

	addr string
}

func (c from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.addr)) }

// Connections that are not authenticated are few, from each address and in all, and those that end make room.
func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	var s strangers
	var leaves []func()
	for n := range maxStrangers / maxStrangersPerAddress {
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 1000).String()
		for range maxStrangersPerAddress {
			leave, ok := s.admit(from{addr: address})
			require.True(t, ok)
			leaves = append(leaves, leave)
		}
		_, ok := s.admit(from{addr: address})
		require.False(t, ok, "one more from %s", address)
	}
	_, ok := s.admit(from{addr: "198.51.100.1:1000"})
	require.False(t, ok, "one more in all")
	leaves[0]()
	leaves[0]() // once is enough
	_, ok = s.admit(from{addr: "198.51.100.1:1000"})
	require.True(t, ok)
	_, ok = s.admit(from{addr: "198.51.100.2:1000"})
	require.False(t, ok)
	for _, leave := range leaves {
		leave()
	}
	require.Equal(t, 1, s.all)
	require.Len(t, s.by, 1)
}
