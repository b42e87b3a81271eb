package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// conn is a connection to one endpoint's receiver.
type conn struct {
	net.Conn              // plain or TLS; requests are written to it
	tcp      *net.TCPConn // the underlying socket
	id       identity
	created  time.Time
	session  *session // of TLS; nil for none
	used     bool     // it has carried a request before

	idleSince time.Time
	until     time.Time // an idle connection is not used after this
}

// discard closes the socket without a TLS close_notify: writing it could block on a
// receiver that does not read.
func (c *conn) discard() { _ = c.tcp.Close() } // nothing can be done about a failed close

// noPendingData reports whether the connection is open and all bytes that arrived on it
// were read. Unsolicited bytes make it unusable: they would be taken for the next response.
// An incomplete TLS record may be a session ticket, so it only counts as pending if
// completeRecord is set, which a caller does when it needs the connection.
//
// What it reads is lost. It must not be called while a request is under way.
func (c *conn) noPendingData(completeRecord bool) bool {
	if session, ok := c.Conn.(*tlsConn); ok {
		return session.noPendingData(completeRecord)
	}
	var one [1]byte
	_, err := readNow(c.tcp, one[:])
	return errors.Is(err, errNothing)
}

// dial connects to the target by the deadline, and adds to times. On failure it returns the phase that failed.
func (c *Client) dial(ctx context.Context, deadline time.Time, t target, times *webhook.Times) (*conn, phase, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	if t.url.Scheme == "https" {
		return c.dialTLS(ctx, t, times)
	}
	made, err := c.connect(ctx, t, times)
	if err != nil {
		return nil, phaseDial, err
	}
	return &conn{Conn: made.Conn, tcp: made.tcp, created: time.Now()}, phaseDial, nil
}

// connect opens a connection to the target, directly or through the proxy.
//
// A name that resolves to a denied address looks to the tenant exactly like a name that
// does not exist. Otherwise any tenant could discover the names of a private network. Both
// cases take the same time at least, because a name server's response time would tell them
// apart. For the same reason all of that time counts as a look-up.
func (c *Client) connect(ctx context.Context, t target, times *webhook.Times) (*pipe, error) {
	start, before := time.Now(), *times
	made, err := c.lookUpAndDial(ctx, t, times)
	if !t.named || err == nil {
		return made, err
	}
	refusal, refused := errors.AsType[*DeniedError](err)
	if refused {
		c.denials.log(c.config.Logger, t, refusal)
	}
	missing, ok := errors.AsType[*net.DNSError](err)
	if !refused && (!ok || !missing.IsNotFound) {
		return nil, err
	}
	select {
	case <-time.After(time.Until(start.Add(c.minNotFoundTime))):
	case <-ctx.Done():
	}
	*times = before
	addSince(&times.Names, start)
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
}

// minNotFoundTime is the least time until a name is reported as not found. It is longer
// than a query to a nearby name server, and than familyGrace.
const minNotFoundTime = 100 * time.Millisecond

// lookUpAndDial opens a connection to one of the target's addresses, directly or through the
// proxy.
func (c *Client) lookUpAndDial(ctx context.Context, t target, times *webhook.Times) (*pipe, error) {
	if c.sendsNames(t) {
		defer addSince(&times.Connecting, time.Now())
		return c.tunnel(ctx, net.JoinHostPort(serverName(t.host), t.port()))
	}
	start := time.Now()
	addrs, err := c.addresses(ctx, t)
	if t.named {
		addSince(&times.Names, start)
	}
	if err != nil {
		return nil, err
	}
	defer addSince(&times.Connecting, time.Now())
	if c.proxied(t) {
		return race(ctx, addrs, c.failed, c.tunnelTo)
	}
	control := c.config.Guard.control(t.exempt)
	return race(ctx, addrs, c.failed, func(ctx context.Context, addr netip.AddrPort) (*pipe, error) {
		dialer := net.Dialer{
			KeepAlive:      -1, // no connection lives idle long enough to need probes
			ControlContext: control,
		}
		plain, err := dialer.DialContext(ctx, "tcp", addr.String())
		if err != nil {
			return nil, fmt.Errorf("dial: %w", err)
		}
		tcp, err := asTCPConn(plain)
		if err != nil {
			return nil, err
		}
		return &pipe{Conn: tcp, tcp: tcp}, nil
	})
}

// proxied reports whether the target is reached through the proxy.
func (c *Client) proxied(t target) bool {
	return c.config.Proxy != nil && !t.exempt.IsValid() && !c.config.NoProxy.has(t.host, t.port())
}

// sendsNames reports whether the proxy gets the target's name, and looks it up.
func (c *Client) sendsNames(t target) bool { return c.config.ProxyNames && t.named && c.proxied(t) }

// maxAddresses bounds the addresses of a name that are tried.
const maxAddresses = 8

// addresses returns the target's addresses that the guard allows, in the order in which they
// are tried. When none is allowed, the error is a *DeniedError, as it is for a dial.
func (c *Client) addresses(ctx context.Context, t target) ([]netip.AddrPort, error) {
	port, err := portOf(t.url)
	if err != nil {
		return nil, err
	}
	if literal, err := netip.ParseAddr(t.host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(literal, port)}, nil // the guard has checked it
	}
	found, err := c.names.lookup(ctx, t.tenant, t.host)
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	var allowed []netip.AddrPort
	var refusal error
	for _, ip := range found {
		addr := netip.AddrPortFrom(ip, port)
		if err := c.config.Guard.CheckAddr(addr); err != nil {
			refusal = err
			continue
		}
		allowed = append(allowed, addr)
	}
	if len(allowed) == 0 {
		return nil, refusal
	}
	if c.proxied(t) { // IPv4 first, because the proxy may have no IPv6
		slices.SortStableFunc(allowed, func(a, b netip.AddrPort) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	}
	c.failed.sortLast(allowed, time.Now())
	return allowed[:min(len(allowed), maxAddresses)], nil
}

// asTCPConn returns the connection as a *net.TCPConn.
func asTCPConn(plain net.Conn) (*net.TCPConn, error) {
	tcp, ok := plain.(*net.TCPConn)
	if !ok {
		_ = plain.Close()
		return nil, fmt.Errorf("dial: %T is not a TCP connection", plain)
	}
	return tcp, nil
}
