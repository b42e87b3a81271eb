package temporalconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"go.temporal.io/sdk/client"
)

// greeting is how long Check waits for the server's first bytes: a server that refuses the client's certificate says so
// only then, one that admits it sends its settings of HTTP/2.
const greeting = 2 * time.Second

// Check connects to the server once, without the SDK, which tries again and again and reports a timeout. It returns why
// there is no connection, with the setting to look at, or nil.
func Check(ctx context.Context, o client.Options) error {
	dialer := &net.Dialer{Timeout: greeting}
	conn, err := dialer.DialContext(ctx, "tcp", o.HostPort)
	if err != nil {
		return fmt.Errorf("%s: %w", variableAddress, err)
	}
	defer func() { _ = conn.Close() }()
	if o.ConnectionOptions.TLS == nil {
		return nil
	}
	config := o.ConnectionOptions.TLS.Clone()
	config.NextProtos = []string{"h2"}
	secured := tls.Client(conn, config)
	within, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	if err := secured.HandshakeContext(within); err != nil {
		return explainTLS(err, config)
	}
	_ = secured.SetReadDeadline(time.Now().Add(greeting))
	if _, err := secured.Read(make([]byte, 1)); err != nil && !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
		return explainTLS(err, config)
	}
	return nil
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// explainTLS names the setting behind an error of a handshake.
func explainTLS(err error, c *tls.Config) error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("%s: the server's certificate is not of an authority that is trusted: %w", variableCA, err)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Errorf("%s: the server's certificate is for another name: %w", variableServerName, err)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return fmt.Errorf("%s: the server's certificate has expired, or is not valid yet: %w", variableAddress, err)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fmt.Errorf("%s: the server does not speak TLS: %w", variableTLS, err)
	}
	if refused, ok := errors.AsType[*net.OpError](err); ok && refused.Op == "remote error" { // an alert of the server
		return explainRefusal(err, c)
	}
	return fmt.Errorf("%s: no connection with TLS: %w", variableTLS, err)
}

// explainRefusal says why the server may have refused the client's certificate.
func explainRefusal(refused error, c *tls.Config) error {
	switch until := validUntil(c); {
	case c.GetClientCertificate == nil:
		return fmt.Errorf("%s: is not set, and the server wants a certificate of the client: %w", variableCert, refused)
	case until.Before(time.Now()):
		return fmt.Errorf("%s: the certificate has expired on %s: %w", variableCert, until.Format(time.RFC3339), refused)
	}
	return fmt.Errorf("%s: the server refuses the certificate: %w", variableCert, refused)
}

// ValidUntil returns when the client's certificate expires; the zero time without one.
func ValidUntil(o client.Options) time.Time {
	if o.ConnectionOptions.TLS == nil {
		return time.Time{}
	}
	return validUntil(o.ConnectionOptions.TLS)
}

func validUntil(c *tls.Config) time.Time {
	if c.GetClientCertificate == nil {
		return time.Time{}
	}
	certificate, err := c.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || certificate.Leaf == nil {
		return time.Time{}
	}
	return certificate.Leaf.NotAfter
}
