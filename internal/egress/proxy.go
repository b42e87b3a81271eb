package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

const (
	// maxTunnels is how many addresses of one name the proxy is asked for.
	maxTunnels = 4
	// maxProxyAnswer bounds the proxy's answer to a CONNECT.
	maxProxyAnswer = 8 << 10
)

// proxyError is why the proxy made no tunnel.
type proxyError struct {
	fault retry.Fault // FaultUnknown is no receiver's: the proxy, or its setting, has to be mended
	cause string
}

func (e *proxyError) Error() string { return e.cause }

// proxyFailed reports whether the proxy itself, and not the receiver, was in the way.
func proxyFailed(err error) bool {
	proxy, ok := errors.AsType[*proxyError](err)
	return ok && proxy.fault == retry.FaultUnknown
}

// tunnel connects to the target through the proxy.
//
// The proxy is told an address that the guard has checked, never the name: were it to
// look the name up itself, a name that changes its answer in between would lead it to
// where no request may go, and no check of ours would see that. What is left to trust
// is that the proxy connects to the address it was given.
func (c *Client) tunnel(ctx context.Context, t target) (*net.TCPConn, error) {
	addrs, err := c.lookup(ctx, t)
	if err != nil {
		return nil, err
	}
	for i, addr := range addrs {
		var tcp *net.TCPConn
		if tcp, err = c.tunnelTo(ctx, addr, len(addrs)-i); err == nil {
			return tcp, nil
		}
		if proxyFailed(err) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// lookup returns the addresses of the target that the guard lets through, IPv4 first:
// whether the proxy has IPv6 is not known here. When there are only others, the error
// is a *DeniedError, as it is for a dial.
func (c *Client) lookup(ctx context.Context, t target) ([]netip.AddrPort, error) {
	port, err := portOf(t.url)
	if err != nil {
		return nil, err
	}
	found, err := c.resolver().LookupNetIP(ctx, "ip", t.host)
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	var allowed []netip.AddrPort
	var refusal error
	for _, ip := range found {
		addr := netip.AddrPortFrom(ip.Unmap(), port) // a dial takes a mapped address for IPv4, too
		if err := c.config.Guard.CheckAddr(addr); err != nil {
			refusal = err
			continue
		}
		allowed = append(allowed, addr)
	}
	if len(allowed) == 0 {
		return nil, refusal
	}
	slices.SortStableFunc(allowed, func(a, b netip.AddrPort) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	return allowed[:min(len(allowed), maxTunnels)], nil
}

func (c *Client) resolver() *net.Resolver {
	if c.config.Resolver != nil {
		return c.config.Resolver
	}
	return net.DefaultResolver
}

// tunnelTo asks the proxy for one address. It leaves time for those after it: they and
// this one are shares in number.
func (c *Client) tunnelTo(ctx context.Context, addr netip.AddrPort, shares int) (*net.TCPConn, error) {
	if deadline, ok := ctx.Deadline(); ok && shares > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(shares))
		defer cancel()
	}
	dialer := net.Dialer{KeepAlive: -1}
	plain, err := dialer.DialContext(ctx, "tcp", c.config.Proxy.Host)
	if err != nil {
		if exhausted(err) {
			return nil, fmt.Errorf("dial: %w", err)
		}
		return nil, &proxyError{retry.FaultUnknown, "the egress proxy cannot be reached"}
	}
	tcp, err := ofTCP(plain)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	err = c.askProxy(tcp, addr)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline may be in force on the connection already
	}
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	return tcp, nil
}

// askProxy makes the CONNECT (RFC 9110, section 9.3.6). A timeout is the receiver's: the
// proxy has accepted the connection and waits for it.
func (c *Client) askProxy(tcp *net.TCPConn, addr netip.AddrPort) error {
	text := "CONNECT " + addr.String() + " HTTP/1.1\r\nHost: " + addr.String() + "\r\nUser-Agent: " + c.userAgent + "\r\n"
	if user := c.config.Proxy.User; user != nil {
		password, _ := user.Password()
		text += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(tcp, text+"\r\n"); err != nil {
		return unanswering(err)
	}
	br := bufio.NewReaderSize(io.LimitReader(tcp, maxProxyAnswer), 1<<10)
	answer, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // none after a CONNECT
	if err != nil {
		return unanswering(err)
	}
	switch status := answer.StatusCode; {
	case status >= 200 && status <= 299 && br.Buffered() == 0:
		return nil
	case status >= 200 && status <= 299: // a receiver over plain http may be quicker than its request
		return &proxyError{retry.FaultProtocol, "an answer before the request"}
	case status == http.StatusGatewayTimeout:
		return &proxyError{retry.FaultTimeoutDial, "the egress proxy could not connect in time"}
	case status == http.StatusForbidden, status >= 500 && status <= 599:
		return &proxyError{retry.FaultConnectRefused, "the egress proxy answered " + strconv.Itoa(status)}
	default: // 407 above all
		return &proxyError{retry.FaultUnknown, "the egress proxy answered " + strconv.Itoa(status)}
	}
}

func unanswering(err error) error {
	if isTimeout(err) {
		return fmt.Errorf("wait for the egress proxy: %w", err)
	}
	return &proxyError{retry.FaultUnknown, "the egress proxy gave no answer"}
}
