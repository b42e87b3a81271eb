package fleet

import (
	"net"
	"net/netip"
	"sync"
)

const (
	// maxStrangers bounds the connections whose other side has not shown yet that it is a process of the installation,
	// maxStrangersPerAddress those from one address. Each has handshakeTimeout to do so.
	maxStrangers           = 64
	maxStrangersPerAddress = 8
)

// strangers counts the connections that are not authenticated. Anybody who reaches the port can make one.
type strangers struct {
	mu  sync.Mutex
	all int
	by  map[netip.Addr]int
}

// admit reports whether there is room for one more, and then takes it until leave is called.
func (s *strangers) admit(conn net.Conn) (leave func(), ok bool) {
	at, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // the zero address counts as one
	from := at.Addr().Unmap()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStrangers || s.by[from] >= maxStrangersPerAddress {
		return nil, false
	}
	if s.by == nil {
		s.by = map[netip.Addr]int{}
	}
	s.all++
	s.by[from]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		s.by[from]--
		if s.by[from] == 0 {
			delete(s.by, from)
		}
	}), true
}
