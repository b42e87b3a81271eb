package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"
)

// mailServer is a real SMTP server on this machine, with STARTTLS and a log-in.
type mailServer struct {
	address string
	caFile  string // with its certificate
	roots   *x509.CertPool

	mu      sync.Mutex
	mails   []receivedMail
	tried   int
	refuses error         // each recipient; nil: none
	hang    chan struct{} // a mail waits until it is closed; nil: none does
}

type receivedMail struct {
	to, raw string
	header  mail.Header
}

const mailUser, mailPassword = "hooks", "a password: with @ and /"

// newMailServer starts a server. change changes it before.
func newMailServer(t *testing.T, change func(*smtp.Server)) *mailServer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	m := &mailServer{caFile: filepath.Join(t.TempDir(), "ca.pem"), roots: x509.NewCertPool()}
	require.NoError(t, os.WriteFile(m.caFile, text, 0o644))
	require.True(t, m.roots.AppendCertsFromPEM(text))

	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &mailSession{server: m}, nil }))
	server.Domain, server.ErrorLog = "mail.example", nothingLogged{}
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	if change != nil {
		change(server)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m.address = l.Addr().String()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // until Close
	}()
	t.Cleanup(func() {
		_ = server.Close()
		_ = l.Close() // Serve may not have begun, and then the server does not know it
		<-ended
	})
	return m
}

type nothingLogged struct{}

func (nothingLogged) Printf(string, ...any) {}
func (nothingLogged) Println(...any)        {}

// answer makes the server refuse recipients with an error from now on; nil: none.
func (m *mailServer) answer(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuses = err
}

// to returns the mails to an address so far.
func (m *mailServer) to(address string) []receivedMail {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.mails), func(r receivedMail) bool { return r.to != address })
}

// mailSession is one connection.
type mailSession struct {
	server *mailServer
	in, to string
}

func (*mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != mailUser || password != mailPassword {
			return smtp.ErrAuthFailed
		}
		s.in = user
		return nil
	}), nil
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error {
	if s.in == "" {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.to = to
	s.server.tried++
	return s.server.refuses
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.server.mu.Lock()
	hang := s.server.hang
	s.server.mu.Unlock()
	if hang != nil {
		<-hang
		return errors.New("too late")
	}
	parsed, err := mail.ReadMessage(strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.mails = append(s.server.mails, receivedMail{s.to, string(text), parsed.Header})
	return nil
}

func (*mailSession) Reset()        {}
func (*mailSession) Logout() error { return nil }
