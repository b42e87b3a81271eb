package e2e_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy passes TCP connections on to a target until it is cut.
type proxy struct {
	target, address string

	mu       sync.Mutex
	listener net.Listener // nil while it is cut
	conns    map[net.Conn]bool
	all      sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{target: target, address: "127.0.0.1:0", conns: map[net.Conn]bool{}}
	p.restore(t)
	t.Cleanup(p.cut)
	return p
}

// restore listens, always on the same address.
func (p *proxy) restore(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", p.address)
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener, p.address = listener, listener.Addr().String()
	p.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.pass(conn) })
		}
	})
}

// cut closes the port and every connection, and returns when they are gone.
func (p *proxy) cut() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
}

// keep remembers a connection so that cut can close it; false: it has been cut already.
func (p *proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = true
	return true
}

func (p *proxy) drop(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	_ = conn.Close()
}

func (p *proxy) pass(near net.Conn) {
	if !p.keep(near) {
		return
	}
	defer p.drop(near)
	far, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(far) {
		return
	}
	defer p.drop(far)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far) // either end closes both
		_ = near.Close()
	})
	_, _ = io.Copy(far, near)
	_ = far.Close()
	back.Wait()
}
