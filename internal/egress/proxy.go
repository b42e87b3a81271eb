package egress

import (
	"bufio"
	"context"
	"encoding/base64"
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
	// maxTunnels bounds the addresses of one name that are tried through the proxy.
	maxTunnels = 4
	// maxProxyAnswer bounds the proxy's response to a CONNECT.
	maxProxyAnswer = 8 << 10
)

// tunnel connects to the target through the proxy.
//
// The proxy gets an address that the guard has checked, never the name. If the proxy looked
// the name up itself, the name could resolve to a denied address there, and the guard would
// not see it. The proxy is trusted to connect to the address that it gets.
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
		if isOwn(err) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// lookup returns the target's addresses that the guard allows, IPv4 first, because the
// proxy may have no IPv6. When none is allowed, the error is a *DeniedError, as it is for a
// dial.
func (c *Client) lookup(ctx context.Context, t target) ([]netip.AddrPort, error) {
	port, err := portOf(t.url)
	if err != nil {
		return nil, err
	}
	found, err := c.config.Resolver.LookupNetIP(ctx, "ip", t.host)
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	var allowed []netip.AddrPort
	var refusal error
	for _, ip := range found {
		addr := netip.AddrPortFrom(ip.Unmap(), port) // a dial treats a mapped address as IPv4, too
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

// tunnelTo opens a tunnel to one address. It may use 1/shares of the remaining time, so
// that the addresses after it get theirs.
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
		return nil, &knownError{own: true, class: retry.FailureUnknown, cause: "the egress proxy cannot be reached"}
	}
	tcp, err := asTCPConn(plain)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	err = c.askProxy(tcp, addr)
	if !stop() && err == nil {
		err = ctx.Err() // the AfterFunc may have set the connection's deadline already
	}
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	return tcp, nil
}

// askProxy sends the CONNECT (RFC 9110, section 9.3.6). A timeout counts against the
// receiver: the proxy has accepted the connection and waits for the receiver.
func (c *Client) askProxy(tcp *net.TCPConn, addr netip.AddrPort) error {
	text := "CONNECT " + addr.String() + " HTTP/1.1\r\nHost: " + addr.String() + "\r\nUser-Agent: " + c.userAgent + "\r\n"
	if user := c.config.Proxy.User; user != nil {
		password, _ := user.Password()
		text += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(tcp, text+"\r\n"); err != nil {
		return proxyReadError(err)
	}
	br := bufio.NewReaderSize(io.LimitReader(tcp, maxProxyAnswer), 1<<10)
	answer, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // none after a CONNECT
	if err != nil {
		return proxyReadError(err)
	}
	switch status := answer.StatusCode; {
	case status >= 200 && status <= 299 && br.Buffered() == 0:
		return nil
	case status >= 200 && status <= 299: // over plain http a receiver may send before it has a request
		return &knownError{class: retry.FailureProtocol, cause: "an answer before the request"}
	case status == http.StatusGatewayTimeout:
		return &knownError{class: retry.FailureTimeoutDial, cause: "the egress proxy could not connect in time"}
	case status == http.StatusForbidden, status >= 500 && status <= 599:
		return &knownError{class: retry.FailureConnectRefused, cause: "the egress proxy answered " + strconv.Itoa(status)}
	default: // mostly 407
		return &knownError{own: true, class: retry.FailureUnknown, cause: "the egress proxy answered " + strconv.Itoa(status)}
	}
}

func proxyReadError(err error) error {
	if isTimeout(err) {
		return fmt.Errorf("wait for the egress proxy: %w", err)
	}
	return &knownError{own: true, class: retry.FailureUnknown, cause: "the egress proxy gave no answer"}
}
