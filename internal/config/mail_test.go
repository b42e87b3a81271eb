package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSMTP(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "smtp")
	require.NoError(t, os.WriteFile(file, []byte("smtps://a:b%40c@mail.example\n"), 0o600))
	for text, want := range map[string]*SMTP{
		"":                                     nil,
		"smtp://user:pass@mail.example":        {Host: "mail.example", Port: 587, User: "user", Password: "pass"},
		"smtp://mail.example:25":               {Host: "mail.example", Port: 25},
		"smtps://u:p@[fd00::1]:1465":           {Host: "fd00::1", Port: 1465, Implicit: true, User: "u", Password: "p"},
		"smtp://relay:1025?starttls=off":       {Host: "relay", Port: 1025, Unencrypted: true},
		"smtp://a:b@127.0.0.1:25?starttls=off": {Host: "127.0.0.1", Port: 25, Unencrypted: true, User: "a", Password: "b"},
	} {
		m := Mail{SMTPURL: text}
		got, err := m.SMTP()
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	m := Mail{SMTPURLFile: file}
	got, err := m.SMTP()
	require.NoError(t, err)
	require.Equal(t, &SMTP{Host: "mail.example", Port: 465, Implicit: true, User: "a", Password: "b@c"}, got)
}

func TestInvalidMailSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		m    Mail
		url  string // of the console
		want string
	}{
		"no console": {
			Mail{SMTPURL: "smtp://x", SMTPFrom: "a@b.example"}, "",
			"EVERPOST_SMTP_URL: needs EVERPOST_CONSOLE_URL: links in mails to confirm and to unsubscribe lead there",
		},
		"no sender": {
			Mail{SMTPURL: "smtp://x"}, "https://c.example",
			"EVERPOST_SMTP_FROM: must be a mail address without a name, such as hooks@example.com",
		},
		"a named sender": {
			Mail{SMTPURL: "smtp://x", SMTPFrom: "A <a@b.example>"}, "https://c.example",
			"EVERPOST_SMTP_FROM: must be a mail address without a name, such as hooks@example.com",
		},
		"only a sender": {Mail{SMTPFrom: "a@b.example"}, "", "EVERPOST_SMTP_FROM: is set without EVERPOST_SMTP_URL"},
		"both": {
			Mail{SMTPURL: "smtp://x", SMTPURLFile: "y", SMTPFrom: "a@b.example"}, "https://c.example",
			"EVERPOST_SMTP_URL: is set together with EVERPOST_SMTP_URL_FILE; set one of them",
		},
		"another scheme": {Mail{SMTPURL: "http://secret@x", SMTPFrom: "a@b.example"}, "https://c.example", "EVERPOST_SMTP_URL: " + errSMTP.Error()},
		"a parameter":    {Mail{SMTPURL: "smtp://x?tls=off", SMTPFrom: "a@b.example"}, "https://c.example", "EVERPOST_SMTP_URL: " + errSMTP.Error()},
		"a password in plain": {
			Mail{SMTPURL: "smtp://a:secret@x?starttls=off", SMTPFrom: "a@b.example"}, "https://c.example",
			"EVERPOST_SMTP_URL: sends no password without encryption: leave out ?starttls=off",
		},
	} {
		var bad refusals
		c.m.validate(c.url, &bad)
		require.EqualError(t, bad.err(), c.want, name)
	}
	var bad refusals
	good := Mail{SMTPURL: "smtp://a:b@x", SMTPFrom: "a@b.example"}
	good.validate("https://c.example", &bad)
	require.NoError(t, bad.err())
}
