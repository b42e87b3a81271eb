package egress

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/programtest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// startApache starts Apache with TLS as it is by default, in front of a receiver. It asks for a client certificate of the authority
// below /cert/ only. It returns its URL.
func startApache(t *testing.T, ca *authority, receiver string) string {
	t.Helper()
	program := programtest.Find(t, "apache2", "apache2-bin")
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	pair := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour)).Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	var config strings.Builder
	for _, module := range []string{"mpm_event", "authz_core", "ssl", "proxy", "proxy_http"} {
		fmt.Fprintf(&config, "LoadModule %s_module /usr/lib/apache2/modules/mod_%s.so\n", module, module)
	}
	fmt.Fprintf(&config, `
ServerRoot %[1]s
ServerName 127.0.0.1
DefaultRuntimeDir %[1]s
PidFile %[1]s/pid
ErrorLog /proc/self/fd/2
Listen %[2]s
SSLEngine on
SSLCertificateFile %[3]s
SSLCertificateKeyFile %[4]s
SSLCACertificateFile %[5]s
<Location /cert/>
SSLVerifyClient require
</Location>
ProxyPass / %[6]s/
`, dir, address, write("server.pem", block("CERTIFICATE", pair.Certificate[0])), write("server.key", block("PRIVATE KEY", key)),
		write("ca.pem", block("CERTIFICATE", ca.cert.Raw)), receiver)
	file := write("apache.conf", []byte(config.String()))
	require.NoError(t, listener.Close())
	var log output
	command := exec.CommandContext(t.Context(), program, "-D", "FOREGROUND", "-f", file)
	command.Stdout, command.Stderr = &log, &log
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // its children end with it, unlike with a kill
	command.WaitDelay = 10 * time.Second
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Wait() }) // the test's context has ended
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, 20*time.Second, 10*time.Millisecond, log.String)
	return "https://" + address
}

// output collects what a program writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Apache in its default protocols asks for a client certificate once it knows the path: in TLS 1.3 it answers 403, and the client
// says why; in TLS 1.2 it renegotiates.
func TestApacheAsksForACertificatePerPath(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	receiver := receivertest.New(t)
	url := startApache(t, ca, receiver.URL())
	c := setup(t, Config{RootCAs: ca.pool})
	certificate := ca.client(t, "shop", time.Now().Add(time.Hour))
	send := func(version int64, path string, certificate webhook.ClientCertificate, body string) Response {
		return c.Send(t.Context(), Request{
			EndpointID: "ep_1", Version: version, URL: url + path, Certificate: certificate, Body: []byte(body), Timeout: patience,
		})
	}
	open := send(1, "/open", certificate, "{}")
	requireFailure(t, open, retry.FailureNone, 200)
	require.False(t, open.CertificateUnasked)
	refused := send(1, "/cert/1", certificate, "{}")
	requireFailure(t, refused, retry.FailureNone, 403)
	require.True(t, refused.CertificateUnasked)
	require.False(t, send(2, "/cert/1", webhook.ClientCertificate{}, "{}").CertificateUnasked, "there is none to ask for")
	require.Equal(t, 1, receiver.Count())

	certificate.MaxTLS = webhook.MaxTLS12
	requireFailure(t, send(3, "/open", certificate, "{}"), retry.FailureNone, 200) // its connection is kept, and renegotiated by the next one
	require.Equal(t, 1, c.pool.len())
	for _, body := range []string{"{}", "[]", strings.Repeat("x", 100_000)} {
		accepted := send(3, "/cert/2", certificate, body)
		requireFailure(t, accepted, retry.FailureNone, 200)
		require.False(t, accepted.CertificateUnasked)
	}
	require.Equal(t, 5, receiver.Count())
	require.Equal(t, 1, c.pool.len(), "a connection that was renegotiated is kept")

	// Of another authority: the refusal names the certificate.
	other := newAuthority(t).client(t, "mallory", time.Now().Add(time.Hour))
	other.MaxTLS = webhook.MaxTLS12
	r := send(4, "/cert/2", other, "{}")
	requireFailure(t, r, retry.FailureTLS, 0)
	require.Contains(t, r.Err, webhook.TLSCertificateRefused)
	require.Equal(t, 5, receiver.Count())
}
