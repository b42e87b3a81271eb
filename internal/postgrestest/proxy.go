package postgrestest

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// Proxy is a TCP proxy in front of the database that can be cut, or made to swallow
// everything as a broken network does.
type Proxy struct {
	listener net.Listener

	mu              sync.Mutex
	network, target string
	conns           map[net.Conn]struct{}
	down            bool
	silent          bool
	wg              sync.WaitGroup
}

// NewProxy returns a proxy, which ends with the test, and the database's address through it.
func NewProxy(t testing.TB, address string) (p *Proxy, through string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p = &Proxy{listener: listener, conns: map[net.Conn]struct{}{}}
	p.Lead(t, address)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
		p.wg.Wait()
	})

	u, err := url.Parse(address)
	require.NoError(t, err)
	q := u.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = listener.Addr().String(), q.Encode()
	return p, u.String()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		network, target := p.network, p.target
		p.mu.Unlock()
		server, err := net.Dial(network, target)
		if err != nil || !p.add(client, server) {
			_ = client.Close()
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		p.wg.Go(func() { p.pump(server, client) })
		p.wg.Go(func() { p.pump(client, server) })
	}
}

func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *Proxy) pump(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		silent := p.silent
		p.mu.Unlock()
		if n > 0 && !silent {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Lead makes new connections lead to the server of an address.
func (p *Proxy) Lead(t testing.TB, address string) {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.target = pgconn.NetworkAddress(config.Host, config.Port)
}

// Cut closes every connection and lets no new one through.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// Restore lets connections and what they carry through again.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down, p.silent = false, false
}

// Swallow keeps the connections open and passes nothing on any more.
func (p *Proxy) Swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}
