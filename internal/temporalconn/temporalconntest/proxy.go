package temporalconntest

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy adds TLS to a server of gRPC, and requires certificates of its clients.
type Proxy struct {
	listener net.Listener
	backend  string
	config   atomic.Pointer[tls.Config]
	admitted atomic.Int64
	running  sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool // nil when it is stopped
}

// StartProxy listens on this machine until the test ends.
func StartProxy(t testing.TB, backend string, server tls.Certificate, clients *x509.CertPool) *Proxy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: l, backend: backend, open: map[net.Conn]bool{}}
	p.Use(server, clients)
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut(true)
		p.running.Wait()
	})
	return p
}

// Address is where it listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Admitted is how many connections had an accepted certificate.
func (p *Proxy) Admitted() int64 { return p.admitted.Load() }

// Use sets the server's certificate, and the authorities of the clients', for connections from now on.
func (p *Proxy) Use(server tls.Certificate, clients *x509.CertPool) {
	p.config.Store(&tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{server},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, SessionTicketsDisabled: true,
	})
}

// Cut closes all connections.
func (p *Proxy) Cut() { p.cut(false) }

func (p *Proxy) cut(last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.Close()
	}
	if last {
		p.open = nil
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(conn) })
	}
}

// track closes the connection with the proxy, or at once if that has stopped.
func (p *Proxy) track(conn net.Conn) (untrack func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		_ = conn.Close()
	} else {
		p.open[conn] = true
	}
	return func() {
		_ = conn.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, conn)
	}
}

func (p *Proxy) serve(conn net.Conn) {
	defer p.track(conn)()
	secured := tls.Server(conn, p.config.Load())
	if err := secured.Handshake(); err != nil { //nolint:noctx // ended by closing conn
		return
	}
	p.admitted.Add(1)
	backend, err := net.Dial("tcp", p.backend) //nolint:noctx // on this machine
	if err != nil {
		return
	}
	defer p.track(backend)()
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(backend, secured)
		_ = backend.Close()
	})
	_, _ = io.Copy(secured, backend)
	_ = conn.Close()
	copying.Wait()
}
