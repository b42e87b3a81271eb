package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/rpc"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	dialTimeout = time.Second
	// dialPause is how long after a failed connection the next is tried.
	dialPause = 200 * time.Millisecond
	// writeTimeout bounds how long a process that does not read is waited for.
	writeTimeout = 2 * time.Second
	// checkTimeout is how long a process may take to answer. Then the connection is closed, so that no call waits for it.
	checkTimeout = 2 * time.Second
	// sameAddressTime is how long a process at this process's address may be one that has just ended.
	sameAddressTime = 10 * time.Second
)

// errEnded says that a process has ended: nothing listens at its address any more, or another process does.
var errEnded = errors.New("the process has ended")

// peer is another process.
type peer struct {
	process webhook.Process
	fleet   *Fleet
	since   time.Time // when this process learned of it

	leaving  bool          // it takes no lanes; Fleet.mu guards it
	dialling chan struct{} // has a value while a connection is being made
	checking atomic.Bool

	mu       sync.Mutex
	client   *rpc.Client // nil while there is no connection
	answers  bool        // a call on it was answered
	failedAt time.Time
	failure  error
	closed   bool
	stops    bool // it starts nothing that is forwarded to it any more

	unreachedSince time.Time // zero while it is reached
	warnedAt       time.Time // when the log said so

	forwards     []waitingForward // wait to be forwarded
	forwardBytes int              // of their payloads
	forwarding   bool             // runForwards runs
	sentAt       time.Time        // of the message under way
}

// call calls a method. If ctx ends first, abandoned is called once the method has ended.
func (p *peer) call(ctx context.Context, method string, args, reply any, abandoned ...func()) error {
	client, err := p.connected(ctx)
	if err != nil {
		return err
	}
	done := make(chan *rpc.Call, 1)
	p.fleet.work.Go(func() { client.Go(method, args, reply, done) }) // which waits while another call is being written
	var call *rpc.Call
	select {
	case call = <-done:
	case <-ctx.Done():
		p.fleet.work.Go(func() {
			<-done
			for _, f := range abandoned {
				f()
			}
		})
		return ctx.Err()
	}
	if call.Error != nil {
		if !answered(call.Error) {
			p.drop(client)
		}
		for _, f := range abandoned {
			f()
		}
		return fmt.Errorf("ask %s: %w", p.process.Address, call.Error)
	}
	p.mu.Lock()
	p.answers = p.answers || p.client == client
	p.mu.Unlock()
	return nil
}

// answered reports whether an error is the answer of a process, as of one of another version that has no such method: the connection works.
func answered(err error) bool {
	_, is := errors.AsType[rpc.ServerError](err)
	return is
}

// hasAnswered reports whether the process has answered on the connection that there is.
func (p *peer) hasAnswered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers
}

// connected returns a connection, and makes one if there is none.
func (p *peer) connected(ctx context.Context) (*rpc.Client, error) {
	if client, err := p.connection(); client != nil || err != nil {
		return client, err
	}
	select {
	case p.dialling <- struct{}{}:
		defer func() { <-p.dialling }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if client, err := p.connection(); client != nil || err != nil {
		return client, err
	}
	conn, err := p.dial(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failedAt, p.failure = time.Now(), err
		return nil, err
	}
	if p.closed {
		_ = conn.Close()
		return nil, errEnded
	}
	p.client = p.newClient(conn)
	return p.client, nil
}

// newClient makes the client of a connection. It is dropped as soon as the connection breaks, so that nothing more is forwarded to a process
// that has ended. The caller holds the lock.
func (p *peer) newClient(conn net.Conn) (client *rpc.Client) {
	client = rpc.NewClient(watchedConn{timedConn{conn}, func() {
		p.mu.Lock()
		broken := client
		p.mu.Unlock()
		p.drop(broken)
	}})
	return client
}

// connection returns the connection that there is, or why there is none; neither if one is to be made.
func (p *peer) connection() (*rpc.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, errEnded
	case p.client == nil && time.Since(p.failedAt) < dialPause:
		return nil, p.failure
	}
	return p.client, nil
}

func (p *peer) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: clientTLS(p.fleet.identity, p.fleet.self, p.process)}
	conn, err := dialer.DialContext(ctx, "tcp", p.process.Address)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, errOtherProcess), errors.Is(err, errOwnAddress):
		return nil, fmt.Errorf("%w: %w", errEnded, err)
	case err != nil:
		return nil, fmt.Errorf("connect to %s: %w", p.process.Address, err)
	}
	return conn, nil
}

// drop closes a connection that has failed.
func (p *peer) drop(client *rpc.Client) {
	p.mu.Lock()
	if p.client == client {
		p.client, p.answers = nil, false
	}
	p.mu.Unlock()
	_ = client.Close()
}

// close ends the connection for good.
func (p *peer) close() {
	p.mu.Lock()
	client := p.client
	p.closed, p.client, p.answers = true, nil, false
	p.mu.Unlock()
	if client != nil {
		_ = client.Close()
	}
}

// timedConn is a connection on which no write takes long.
type timedConn struct{ net.Conn }

func (c timedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err //nolint:wrapcheck // as Write
	}
	return c.Conn.Write(b) //nolint:wrapcheck // it is only passed on
}

// watchedConn calls broken when it can no longer be read.
type watchedConn struct {
	timedConn

	broken func()
}

func (c watchedConn) Read(b []byte) (int, error) {
	n, err := c.timedConn.Read(b)
	if err != nil {
		c.broken()
	}
	return n, err //nolint:wrapcheck // it is only passed on
}

// checkPeers finds out which processes have ended.
func (f leases) checkPeers() {
	for _, p := range f.otherProcesses() {
		if p.checking.Swap(true) {
			continue
		}
		f.work.Go(func() {
			defer p.checking.Store(false)
			f.check(p)
		})
	}
}

// check finds out whether a process answers.
func (f leases) check(p *peer) {
	ctx, cancel := context.WithTimeout(f.life, checkTimeout)
	defer cancel()
	err := p.call(ctx, methodPing, struct{}{}, new(struct{}))
	if err == nil || answered(err) {
		p.noteReached(f.life, nil)
	} else if f.life.Err() == nil {
		p.noteReached(f.life, err)
	}
	switch {
	case err == nil, answered(err):
		f.collectAgain(p)
	case errors.Is(err, errEnded) && f.life.Err() == nil && f.ownsLanes():
		evicted, failed := f.evict(p)
		if !evicted && failed == nil && errors.Is(err, errOwnAddress) && time.Since(p.since) > sameAddressTime {
			f.log.ErrorContext(ctx, "two processes have the same EVERPOST_LANE_ADDRESS: give each one where the others reach it", "address", p.process.Address)
		}
	case ctx.Err() != nil:
		if client, _ := p.connection(); client != nil {
			p.drop(client)
		}
	}
}

// evict removes a process that has ended, unless it was seen lately; then it is tried again in a second. Its requests ended with it, and
// other processes take its lanes.
func (f leases) evict(p *peer) (evicted bool, err error) {
	ctx, cancel := context.WithTimeout(f.life, renewTimeout)
	defer cancel()
	if evicted, err = f.store.Evict(ctx, p.process.ID); err != nil || !evicted {
		return false, err
	}
	f.dropPeers([]*peer{p})
	f.log.InfoContext(ctx, "a process has ended; others admit the requests to its endpoints", "process", p.process.ID, "address", p.process.Address)
	f.renewSoon()
	return true, nil
}

var (
	errOwnAddress     = errors.New("this process answers at the address of another one") // of an earlier one, as a rule
	errOtherProcess   = errors.New("another process answers at this address")
	errUnknownProcess = errors.New("the certificate is that of no process in the database")
)

// newIdentity makes the certificate by which the other processes know this one, and its hash.
func newIdentity() (identity tls.Certificate, hash [32]byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity, hash, err //nolint:wrapcheck // the caller says what for
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)} // only the hash is compared
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return identity, hash, err //nolint:wrapcheck // see above
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, sha256.Sum256(raw), nil
}

// clientTLS connects to a process whose certificate the database names.
func clientTLS(own tls.Certificate, self, to webhook.Process) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{own},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the certificate with the one in the database
		VerifyConnection: func(s tls.ConnectionState) error {
			switch sha256.Sum256(s.PeerCertificates[0].Raw) {
			case to.Certificate:
				return nil
			case self.Certificate:
				return errOwnAddress
			}
			return errOtherProcess
		},
	}
}
