package temporalconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/credential"
)

const (
	// keyFresh is how long an API key is used before its file is read again.
	keyFresh = 5 * time.Second
	// maxKeyBytes limits the file; a key of Temporal Cloud has less than 1 KiB.
	maxKeyBytes = 16 << 10
)

// certificateFiles are the certificate and the key of the client, which are read for each connection.
type certificateFiles struct {
	certPath, keyPath string
	log               *slog.Logger

	mu   sync.Mutex
	last *tls.Certificate
}

// read returns the certificate in the files, or the last one while they cannot be used: they are not replaced at the
// same moment.
func (f *certificateFiles) read() (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh, err := tls.LoadX509KeyPair(f.certPath, f.keyPath)
	switch {
	case err == nil:
		f.last = &fresh
	case f.last == nil:
		return nil, err //nolint:wrapcheck // names the file
	default:
		f.log.Warn("the certificate for Temporal cannot be read again; the one from before is used", "file", f.certPath, "error", err)
	}
	return f.last, nil
}

// addAuthorities sets what the server is verified with. Those of a file are read for each connection.
func addAuthorities(c *tls.Config, from envconfig.ClientConfigTLS, logger *slog.Logger) error {
	switch {
	case from.ServerCACertPath != "" && len(from.ServerCACertData) > 0:
		return errors.New(variableCA + ": is set together with TEMPORAL_TLS_SERVER_CA_CERT_DATA; unset one of them")
	case len(from.ServerCACertData) > 0:
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(from.ServerCACertData) {
			return errors.New("TEMPORAL_TLS_SERVER_CA_CERT_DATA: holds no certificate in PEM form")
		}
	case from.ServerCACertPath != "":
		authorities := &authorityFile{path: from.ServerCACertPath, log: logger}
		if _, err := authorities.read(); err != nil {
			return fmt.Errorf("%s: %w", variableCA, err)
		}
		c.InsecureSkipVerify = true // verify does it: RootCAs cannot change once it is in use
		c.VerifyConnection = func(s tls.ConnectionState) error { return authorities.verify(s, c.ServerName) }
	}
	return nil
}

// authorityFile holds the authorities that may have signed the server's certificate.
type authorityFile struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex
	last *x509.CertPool
}

func (f *authorityFile) read() (*x509.CertPool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh, err := config.ReadCertificates(f.path)
	switch {
	case err == nil:
		f.last = fresh
	case f.last == nil:
		return nil, err
	default:
		f.log.Warn("the authorities for Temporal cannot be read again; those from before are used", "file", f.path, "error", err)
	}
	return f.last, nil
}

// verify does what crypto/tls does with RootCAs. The name comes from the settings: that of the connection is empty for
// an IP address.
func (f *authorityFile) verify(s tls.ConnectionState, serverName string) error {
	roots, err := f.read()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, certificate := range s.PeerCertificates[1:] {
		between.AddCert(certificate)
	}
	_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: serverName, Roots: roots, Intermediates: between})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// keyFileReader reads an API key from a file, every keyFresh.
type keyFileReader struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex
	last string
	at   time.Time
}

// read returns the key. While the file cannot be used, it returns the last one.
func (f *keyFileReader) read() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != "" && time.Since(f.at) < keyFresh {
		return f.last, nil
	}
	key, err := readKey(f.path)
	switch {
	case err == nil:
		f.last = key
	case f.last == "":
		return "", err
	default:
		f.log.Warn("the API key for Temporal cannot be read again; the one from before is used", "file", f.path, "error", err)
	}
	f.at = time.Now()
	return f.last, nil
}

// readKey reads a key, of which an error says nothing.
func readKey(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > maxKeyBytes {
		return "", fmt.Errorf("%s has more than %d bytes", path, maxKeyBytes)
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "", err
	}
	key := credential.Trim(string(text))
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s must hold the key alone, in one line", path)
	}
	return key, nil
}
