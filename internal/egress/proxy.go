package egress

import (
	"bufio"
	"context"
	"crypto/tls"
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

// maxProxyAnswer bounds the proxy's response to a CONNECT, interim ones included.
const maxProxyAnswer = 2 * MaxHeaderBytes

// pipe is what a request, or its TLS session, is written to: the connection to the receiver or
// the tunnel through the proxy.
type pipe struct {
	net.Conn              // tcp, or the TLS session with an https proxy
	tcp      *net.TCPConn // the socket
}

// refusedByProxy is a failure of this side, to which the proxy belongs.
func refusedByProxy(cause string) error {
	return &knownError{own: true, class: retry.FailureProxyRefused, cause: cause}
}

// tunnelTo is tunnel for an address.
func (c *Client) tunnelTo(ctx context.Context, addr netip.AddrPort) (*pipe, error) {
	return c.tunnel(ctx, addr.String())
}

// tunnel connects through the proxy to host:port.
//
// Unless Config.ProxyNames is set, the proxy gets an address that the guard has checked, never
// the name. If the proxy looked the name up itself, the name could resolve to a denied address
// there, and the guard would not see it. The proxy is trusted to connect to the address that it gets.
func (c *Client) tunnel(ctx context.Context, to string) (*pipe, error) {
	dialer := net.Dialer{KeepAlive: -1}
	plain, err := dialer.DialContext(ctx, "tcp", c.config.Proxy.Host)
	if err != nil {
		if exhausted(err) || errors.Is(ctx.Err(), context.Canceled) {
			return nil, fmt.Errorf("dial: %w", err)
		}
		return nil, refusedByProxy("the egress proxy cannot be reached")
	}
	tcp, err := asTCPConn(plain)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	if deadline, ok := ctx.Deadline(); ok {
		_ = tcp.SetDeadline(deadline) // fails on a closed connection only
	}
	made := &pipe{Conn: tcp, tcp: tcp}
	if c.config.Proxy.Scheme == "https" {
		err = c.secureProxy(ctx, made)
	}
	if err == nil {
		err = c.askProxy(made, to)
	}
	if !stop() && err == nil {
		err = ctx.Err() // the AfterFunc may have set the connection's deadline already
	}
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	return made, nil
}

// secureProxy makes a TLS session with an https proxy.
func (c *Client) secureProxy(ctx context.Context, to *pipe) error {
	below := &wire{Conn: to.tcp, tcp: to.tcp}
	session := tls.Client(below, &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: c.config.RootCAs, ServerName: serverName(c.config.Proxy.Hostname()),
		NextProtos: []string{"http/1.1"}, VerifyConnection: limitCertificates,
	})
	if err := session.HandshakeContext(ctx); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return fmt.Errorf("TLS handshake with the egress proxy: %w", err)
		}
		_, cause := classify(phaseTLS, err)
		return refusedByProxy("no TLS session with the egress proxy: " + cause)
	}
	below.silent = 0
	to.Conn = &tlsConn{Conn: session, secure: session, wire: below}
	return nil
}

// askProxy sends the CONNECT (RFC 9110, section 9.3.6). A timeout counts against the
// receiver: the proxy has accepted the connection and waits for the receiver.
//
// The answer is read as tolerantly as that of a receiver: the status line decides. Of a success the head has to be complete, because the
// connection goes on behind it.
//
// Proxies tell by 502, 503 and 504 that they could not connect, and by 403 that their rules do not let
// them: this concerns the host. Any other refusal concerns all hosts.
func (c *Client) askProxy(proxy io.ReadWriter, to string) error {
	text := "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\nUser-Agent: " + c.userAgent + "\r\n"
	if user := c.config.Proxy.User; user != nil {
		password, _ := user.Password()
		text += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(proxy, text+"\r\n"); err != nil {
		return proxyReadError(err)
	}
	br := bufio.NewReaderSize(io.LimitReader(proxy, maxProxyAnswer), 1<<10)
	answer, err := readHead(br)
	if answer == nil || err != nil && answer.status <= 299 {
		return proxyReadError(err)
	}
	cause := "the egress proxy answered " + strconv.Itoa(answer.status)
	switch status := answer.status; {
	case status >= 200 && status <= 299 && br.Buffered() == 0:
		return nil
	case status >= 200 && status <= 299: // over plain http a receiver may send before it has a request
		return &knownError{class: retry.FailureProtocol, cause: "an answer before the request"}
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return &knownError{class: retry.FailureProxyConnectFailed, cause: cause}
	case status == http.StatusForbidden:
		return &knownError{class: retry.FailureProxyRefused, cause: cause}
	default: // mostly 407
		return refusedByProxy(cause)
	}
}

func proxyReadError(err error) error {
	if isTimeout(err) {
		return fmt.Errorf("wait for the egress proxy: %w", err)
	}
	return refusedByProxy("the egress proxy gave no answer, or none in HTTP")
}
