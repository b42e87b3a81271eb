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
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// maxProxyAnswer bounds the proxy's response to a CONNECT.
const maxProxyAnswer = 8 << 10

// tunnel connects to an address through the proxy.
//
// The proxy gets an address that the guard has checked, never the name. If the proxy looked
// the name up itself, the name could resolve to a denied address there, and the guard would
// not see it. The proxy is trusted to connect to the address that it gets.
func (c *Client) tunnel(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{KeepAlive: -1}
	plain, err := dialer.DialContext(ctx, "tcp", c.config.Proxy.Host)
	if err != nil {
		if exhausted(err) || errors.Is(ctx.Err(), context.Canceled) {
			return nil, fmt.Errorf("dial: %w", err)
		}
		return nil, &knownError{own: true, class: retry.FailureUnknown, cause: "the egress proxy cannot be reached"}
	}
	tcp, err := asTCPConn(plain)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	if deadline, ok := ctx.Deadline(); ok {
		_ = tcp.SetDeadline(deadline) // fails on a closed connection only
	}
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
