package config

import (
	"errors"
	"net/mail"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Mail has the settings of the mail server for notifications.
type Mail struct {
	// SMTPURL is the mail server, with the password; SMTPURLFile a file with it instead.
	SMTPURL     string `credential:"key" env:"EVERPOST_SMTP_URL" help:"Mail server for notifications: 'smtp://user:password@host:587' with STARTTLS, or 'smtps://…:465'. '?starttls=off' at the end sends unencrypted, without a password. The same for every process." name:"smtp-url" placeholder:"URL" section:"notifications" see:"notifications.md#the-mail-server" unset:"no mail"`
	SMTPURLFile string `env:"EVERPOST_SMTP_URL_FILE" help:"File with that URL instead." name:"smtp-url-file" placeholder:"FILE" section:"notifications"`

	// SMTPFrom is the sender of the mails.
	SMTPFrom string `env:"EVERPOST_SMTP_FROM" help:"Sender of the mails, as 'hooks@example.com'. Required with a mail server." name:"smtp-from" placeholder:"ADDRESS" section:"notifications"`
}

// SMTP is a mail server.
type SMTP struct {
	Host string
	Port int
	// Implicit: TLS from the first byte. Otherwise STARTTLS, unless Unencrypted.
	Implicit, Unencrypted bool

	User, Password string // "" for none
	From           string
}

// Ports of mail servers: RFC 8314, section 3.3, and RFC 6409, section 3.1.
const (
	portSubmissions = 465
	portSubmission  = 587

	maxSMTPURLFile = 4 << 10
)

// AnySMTP reports whether mail is sent.
func (m *Mail) AnySMTP() bool { return m.SMTPURL != "" || m.SMTPURLFile != "" }

// SMTP returns the mail server; nil without one. An error never contains the URL.
func (m *Mail) SMTP() (*SMTP, error) {
	text := m.SMTPURL
	if m.SMTPURLFile != "" {
		read, err := readAtMost(m.SMTPURLFile, maxSMTPURLFile)
		if err != nil {
			return nil, err
		}
		text = strings.TrimSpace(string(read))
		if text == "" {
			return nil, errors.New("is empty")
		}
	}
	if text == "" {
		return nil, nil //nolint:nilnil // nil stands for no mail
	}
	return parseSMTP(text, m.SMTPFrom)
}

var errSMTP = errors.New("must be smtp://[user:password@]host[:port] or smtps://…, with ?starttls=off at the end or without")

func parseSMTP(text, from string) (*SMTP, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" || u.Opaque != "" {
		return nil, errSMTP
	}
	s := &SMTP{Host: u.Hostname(), Port: portSubmission, User: u.User.Username(), From: from}
	s.Password, _ = u.User.Password()
	switch u.Scheme {
	case "smtp":
	case "smtps":
		s.Port, s.Implicit = portSubmissions, true
	default:
		return nil, errSMTP
	}
	switch u.RawQuery {
	case "":
	case "starttls=off":
		s.Unencrypted = true
	default:
		return nil, errSMTP
	}
	if u.Port() != "" {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || port == 0 {
			return nil, errSMTP
		}
		s.Port = int(port)
	}
	if s.Unencrypted && (s.Implicit || s.Password != "" && !isLoopback(s.Host)) {
		return nil, errors.New("sends no password without encryption: leave out ?starttls=off")
	}
	return s, nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// validate adds errors about the mail server. consoleURL is where its mails lead.
func (m *Mail) validate(consoleURL string, bad *refusals) {
	if m.SMTPURL != "" && m.SMTPURLFile != "" {
		bad.addf("EVERPOST_SMTP_URL", "is set together with EVERPOST_SMTP_URL_FILE; set one of them")
		return
	}
	if !m.AnySMTP() {
		if m.SMTPFrom != "" {
			bad.addf("EVERPOST_SMTP_FROM", "is set without EVERPOST_SMTP_URL")
		}
		return
	}
	variable := "EVERPOST_SMTP_URL"
	if m.SMTPURLFile != "" {
		variable = "EVERPOST_SMTP_URL_FILE"
	}
	if _, err := m.SMTP(); err != nil {
		bad.addf(variable, "%s", err)
	}
	if consoleURL == "" {
		bad.addf(variable, "needs EVERPOST_CONSOLE_URL: links in mails to confirm and to unsubscribe lead there")
	}
	if from, err := mail.ParseAddress(m.SMTPFrom); err != nil || from.Address != m.SMTPFrom {
		bad.addf("EVERPOST_SMTP_FROM", "must be a mail address without a name, such as hooks@example.com")
	}
}
