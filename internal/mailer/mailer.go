// Package mailer sends mails by SMTP, one at a time.
package mailer

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wneessen/go-mail"

	"github.com/everpost/everpost/internal/notify"
)

// stepTime bounds each of the three steps of a mail: the connection with its log-in, the mail itself, and the good-bye. A server that answers byte
// by byte gets no more. Some look at a mail for long before they accept it: one that was accepted too late would be sent twice.
const stepTime = time.Minute

// Timeout is how long sending one mail takes at most.
const Timeout = 3 * stepTime

// Config is a mail server. Host, Port and From are required.
type Config struct {
	Host string
	Port int
	// Implicit: TLS from the first byte. Otherwise STARTTLS, which the server has to offer, unless Unencrypted.
	Implicit, Unencrypted bool

	User, Password string // "" for none
	From           string
	RootCAs        *x509.CertPool // to verify the server; nil for the system's
	Version        string

	StepTime time.Duration // of a step; defaults to 1 min
}

// Mailer sends mails. It is safe for concurrent use.
type Mailer struct{ c Config }

// New makes a Mailer. It does not connect.
func New(c Config) *Mailer {
	c.StepTime = cmp.Or(c.StepTime, stepTime)
	return &Mailer{c}
}

// Fate is what became of a mail that was not sent.
type Fate uint8

// The fates.
const (
	Unavailable Fate = iota // the server cannot be used: not reached, or it refuses us or the sender
	Deferred                // the server wants this mail later
	Refused                 // the server refuses this mail for good, because of its recipient or its content
)

// Error is why a mail was not sent. Its text holds no address, no password and no text of the server.
type Error struct {
	Fate Fate
	Why  string
}

// Error implements error.
func (e *Error) Error() string { return e.Why }

// Send sends a mail to an address. id is the same for the same mail when it is sent again. The error is an *Error.
func (m *Mailer) Send(ctx context.Context, to, id string, text notify.Mail) error {
	message, err := m.message(to, id, text)
	if err != nil {
		return &Error{Refused, "the mail cannot be written: its address is not valid"}
	}
	client, err := m.client()
	if err != nil {
		return &Error{Unavailable, "the settings of the mail server cannot be used"}
	}
	if err := client.DialWithContext(ctx); err != nil {
		return &Error{Unavailable, dialFailure(err)}
	}
	defer func() { _ = client.Close() }()                                  // the server has answered by then
	if err := client.Send(message); err != nil && !message.IsDelivered() { // what comes after the mail may fail
		return failure(err)
	}
	return nil
}

// Check connects to the server, logs in, and sends nothing.
func (m *Mailer) Check(ctx context.Context) error {
	client, err := m.client()
	if err != nil {
		return &Error{Unavailable, "the settings of the mail server cannot be used"}
	}
	if err := client.DialWithContext(ctx); err != nil {
		return &Error{Unavailable, dialFailure(err)}
	}
	_ = client.Close() // nothing was sent
	return nil
}

func (m *Mailer) client() (*mail.Client, error) {
	options := []mail.Option{
		mail.WithPort(m.c.Port), mail.WithTimeout(m.c.StepTime), mail.WithoutNoop(),
		mail.WithTLSConfig(&tls.Config{ServerName: m.c.Host, RootCAs: m.c.RootCAs, MinVersion: tls.VersionTLS12}),
	}
	switch {
	case m.c.Implicit:
		options = append(options, mail.WithSSL())
	case m.c.Unencrypted:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	}
	if m.c.User != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(m.c.User), mail.WithPassword(m.c.Password))
	}
	client, err := mail.NewClient(m.c.Host, options...)
	if err != nil {
		return nil, fmt.Errorf("the client of the mail server: %w", err)
	}
	return client, nil
}

// message is the mail with its header. What is in a header is encoded by the library, so no text begins another one.
func (m *Mailer) message(to, id string, text notify.Mail) (*mail.Msg, error) {
	message := mail.NewMsg()
	if err := message.From(m.c.From); err != nil {
		return nil, fmt.Errorf("the sender: %w", err)
	}
	if err := message.To(to); err != nil {
		return nil, fmt.Errorf("the recipient: %w", err)
	}
	message.Subject(text.Subject)
	message.SetDate()
	message.SetMessageIDWithValue(id + "@" + m.c.From[strings.LastIndexByte(m.c.From, '@')+1:])
	message.SetUserAgent("Everpost/" + m.c.Version)
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834, section 5
	if text.UnsubscribeURL != "" {                           // RFC 8058, section 3.1
		message.SetGenHeader(mail.HeaderListUnsubscribe, "<"+text.UnsubscribeURL+">")
		message.SetGenHeader(mail.HeaderListUnsubscribePost, "List-Unsubscribe=One-Click")
	}
	message.SetBodyString(mail.TypeTextPlain, text.Text)
	message.AddAlternativeString(mail.TypeTextHTML, text.HTML)
	return message, nil
}

// dialFailure is why the server cannot be used, as a class.
func dialFailure(err error) string {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return "the certificate of the mail server cannot be verified"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "the mail server did not answer in time"
	case strings.Contains(err.Error(), "STARTTLS"):
		return "the mail server offers no STARTTLS"
	case strings.Contains(strings.ToLower(err.Error()), "auth"):
		return "the mail server does not accept the user and the password"
	}
	return "the mail server cannot be reached, or refuses us"
}

func isTimeout(err error) bool {
	slow, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && slow.Timeout()
}

// failure says what became of a mail that the server did not take.
func failure(err error) *Error {
	known, ok := errors.AsType[*mail.SendError](err)
	if !ok {
		return &Error{Unavailable, "the connection to the mail server has failed"}
	}
	code := known.ErrorCode()
	answer := fmt.Sprintf("with %d", code)
	if enhanced := known.EnhancedStatusCode(); enhanced != "" {
		answer += " " + enhanced
	}
	what := ""
	switch known.Reason { //nolint:exhaustive // the others are failures of the connection, or of the mail before it
	case mail.ErrSMTPRcptTo:
		what = "the recipient"
	case mail.ErrSMTPData, mail.ErrSMTPDataClose:
		what = "the mail"
	case mail.ErrSMTPMailFrom:
		return &Error{Unavailable, "the mail server does not accept the sender: it answered " + answer}
	default:
	}
	switch {
	case what != "" && code >= 500 && code < 600:
		return &Error{Refused, "the mail server refuses " + what + " " + answer}
	case what != "" && code >= 400 && code < 500:
		return &Error{Deferred, "the mail server refuses " + what + " for now, " + answer}
	}
	return &Error{Unavailable, "the connection to the mail server has failed"}
}
