package e2e_test

import (
	"errors"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/mailer"
	"github.com/everpost/everpost/internal/notify"
	"github.com/everpost/everpost/internal/receivertest"
)

// plainText is the text of a mail with its transfer encoding undone.
func (m receivedMail) plainText(t *testing.T) string {
	t.Helper()
	text, err := io.ReadAll(quotedprintable.NewReader(strings.NewReader(m.raw)))
	require.NoError(t, err)
	return string(text)
}

// linkTo is the path of the first link in a mail that leads below a path.
func (m receivedMail) linkTo(t *testing.T, path string) string {
	t.Helper()
	found := regexp.MustCompile(`https://hooks\.example(` + path + `[A-Za-z0-9_-]+)`).FindStringSubmatch(m.plainText(t))
	require.NotNil(t, found, m.raw)
	return found[1]
}

// page opens a page of the installation without a key.
func (b *bundle) page(status int, method, path, body string) string {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.in.addr["api"]+path, strings.NewReader(body))
	require.NoError(b.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	pages := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience} // they are not in the API's document
	a, err := pages.Do(r)
	require.NoError(b.t, err)
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	require.NoError(b.t, err)
	require.Equal(b.t, status, a.StatusCode, string(text))
	require.Equal(b.t, "no-referrer", a.Header.Get("Referrer-Policy"))
	return string(text)
}

func (b *bundle) channels() []client.NotificationChannel {
	b.t.Helper()
	var shown client.Notifications
	b.ask(http.StatusOK, http.MethodGet, "/notifications", nil, &shown)
	return shown.Channels
}

// An endpoint becomes disabled: the confirmed address gets one mail, the chat one message, and who unsubscribes gets no more. A mail server that
// refuses for now loses nothing.
func TestNotifications(t *testing.T) {
	t.Parallel()
	server := newMailServer(t, nil)
	in := ownInstance(t, settings{
		"EVERPOST_SMTP_URL":  "smtp://" + url.UserPassword(mailUser, mailPassword).String() + "@" + server.address,
		"EVERPOST_SMTP_FROM": "hooks@everpost.example", "EVERPOST_CONSOLE_URL": "https://hooks.example", "EVERPOST_CA_FILE": server.caFile,
	})
	b, r, chat := newBundle(t, in, in.client(), "acme"), newReceiver(t), newChatStub(t)
	first := b.endpoint(r, "/first", fieldsOf{"event_types": []string{"a.first"}, "description": "first\r\nBcc: x@evil.example <!channel>"})
	second := b.endpoint(r, "/second", fieldsOf{"event_types": []string{"a.second"}})
	r.Script("/first", receivertest.Step{Status: http.StatusGone})
	r.Script("/second", receivertest.Step{Status: http.StatusGone})

	b.ask(http.StatusOK, http.MethodPut, "/notifications", fieldsOf{"portal_url": "https://app.example/webhooks", "channels": []fieldsOf{
		{"kind": "email", "target": "ops@example.com", "on": []string{"disabled", "recovered"}},
		{"kind": "email", "target": "victim@example.com", "on": []string{"disabled"}},
		{"kind": "slack", "target": chat.url + "/slack/CanaryURLToken", "on": []string{"disabled"}},
	}}, nil)
	ctx := contextFor(t, patience)
	eventually(ctx, t, func() string {
		if len(server.to("ops@example.com")) == 1 && len(server.to("victim@example.com")) == 1 {
			return ""
		}
		return "the addresses are not asked for confirmation"
	})
	asked := server.to("ops@example.com")[0]
	require.Empty(t, asked.header.Get("List-Unsubscribe"))
	require.NotContains(t, asked.raw, "acme", "it holds no text of a tenant")
	confirm := asked.linkTo(t, notify.ConfirmPath)
	require.Contains(t, b.page(http.StatusOK, http.MethodGet, confirm, ""), "Confirm")
	require.Equal(t, "unconfirmed", b.channels()[0].State, "a scanner of mails has opened the link")
	require.Contains(t, b.page(http.StatusOK, http.MethodPost, confirm, ""), "Confirmed")
	require.Equal(t, "active", b.channels()[0].State)
	b.page(http.StatusNotFound, http.MethodPost, confirm[:len(confirm)-4]+"AAAA", "")
	b.page(http.StatusNotFound, http.MethodGet, notify.ConfirmPath+"x", "")

	b.post("a.first", `{}`)
	eventually(ctx, t, func() string {
		if len(server.to("ops@example.com")) == 2 && len(chat.bodies()) == 1 {
			return ""
		}
		return "nobody is told that the endpoint is disabled"
	})
	told := server.to("ops@example.com")[1]
	require.Equal(t, "A webhook endpoint was disabled: 127.0.0.1", told.header.Get("Subject"))
	require.Equal(t, "auto-generated", told.header.Get("Auto-Submitted"))
	require.Equal(t, "List-Unsubscribe=One-Click", told.header.Get("List-Unsubscribe-Post"))
	require.Equal(t, "<hooks@everpost.example>", told.header.Get("From"))
	require.Empty(t, told.header.Get("Bcc"))
	text := told.plainText(t)
	for _, part := range []string{
		"the receiver answered 410: it accepts no more events", first.ID, "https://app.example/webhooks", "Description: first Bcc: x@evil.example <!channel>",
	} {
		require.Contains(t, text, part)
	}
	message := chat.bodies()[0]
	require.Contains(t, message, `"text":"A webhook endpoint was disabled\n`)
	require.Contains(t, message, `&lt;!channel&gt;`)
	require.NotContains(t, in.tail(0), "CanaryURLToken")
	require.NotContains(t, string(b.ask(http.StatusOK, http.MethodGet, "/deliveries", nil, nil).body), "CanaryURLToken")

	unsubscribe := told.linkTo(t, notify.UnsubscribePath)
	require.Contains(t, told.header.Get("List-Unsubscribe"), unsubscribe)
	require.Contains(t, b.page(http.StatusOK, http.MethodGet, unsubscribe, ""), "Unsubscribe")
	require.Equal(t, "active", b.channels()[0].State)
	b.page(http.StatusOK, http.MethodPost, unsubscribe, "List-Unsubscribe=One-Click")
	require.Equal(t, "unsubscribed", b.channels()[0].State)

	b.post("a.second", `{}`)
	eventually(ctx, t, func() string {
		if len(chat.bodies()) == 2 {
			return ""
		}
		return "the chat is not told of the second endpoint"
	})
	require.Contains(t, chat.bodies()[1], second.ID)
	require.Len(t, server.to("ops@example.com"), 2, "who has unsubscribed gets no more")
	require.Len(t, server.to("victim@example.com"), 1, "who has not confirmed gets nothing")
}

// chatStub is the webhook of a chat.
type chatStub struct {
	url string

	mu  sync.Mutex
	got []string
}

func newChatStub(t *testing.T) *chatStub {
	t.Helper()
	c := &chatStub{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.got = append(c.got, string(body))
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// bodies are the messages so far.
func (c *chatStub) bodies() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// What a mail server does with a mail, and what becomes of the mail then.
func TestMailServers(t *testing.T) {
	t.Parallel()
	refuse := func(code int) error {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: "secret text of the server"}
	}
	for name, c := range map[string]struct {
		server func(*smtp.Server)
		mail   func(*mailServer)
		config func(*mailer.Config)
		fate   mailer.Fate
		why    string // "": the mail is sent
	}{
		"sent": {},
		"5xx":  {mail: func(m *mailServer) { m.answer(refuse(550)) }, fate: mailer.Refused, why: "the mail server refuses the recipient with 550 5.1.1"},
		"4xx": {
			mail: func(m *mailServer) { m.answer(refuse(450)) }, fate: mailer.Deferred, why: "the mail server refuses the recipient for now, with 450 4.1.1",
		},
		"a wrong password": {config: func(c *mailer.Config) { c.Password = "wrong" }, why: "the mail server does not accept the user and the password"},
		"no log-in":        {config: func(c *mailer.Config) { c.User = "" }, why: "the mail server does not accept the sender: it answered with 502 5.7.0"},
		"no STARTTLS":      {server: func(s *smtp.Server) { s.TLSConfig = nil }, why: "the mail server offers no STARTTLS"},
		"an unknown certificate": {
			config: func(c *mailer.Config) { c.RootCAs = nil }, why: "the certificate of the mail server cannot be verified",
		},
		"away": {config: func(c *mailer.Config) { c.Port = 1 }, why: "the mail server cannot be reached, or refuses us"},
		"hangs": {mail: func(m *mailServer) {
			m.hang = make(chan struct{})
		}, why: "the connection to the mail server has failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMailServer(t, c.server)
			if c.mail != nil {
				c.mail(m)
			}
			if m.hang != nil {
				t.Cleanup(func() { close(m.hang) })
			}
			host, port, err := net.SplitHostPort(m.address)
			require.NoError(t, err)
			number, err := strconv.Atoi(port)
			require.NoError(t, err)
			config := mailer.Config{
				Host: host, Port: number, User: mailUser, Password: mailPassword, From: "hooks@everpost.example", RootCAs: m.roots, Version: "1",
				StepTime: 5 * time.Second,
			}
			if c.config != nil {
				c.config(&config)
			}
			began := time.Now()
			err = mailer.New(config).Send(t.Context(), "ops@example.com", "id", notify.Mail{Subject: "Größe", Text: "text", HTML: "<p>html</p>"})
			require.Less(t, time.Since(began), mailer.Timeout)
			if c.why == "" {
				require.NoError(t, err)
				require.Len(t, m.to("ops@example.com"), 1)
				require.Equal(t, "<id@everpost.example>", m.to("ops@example.com")[0].header.Get("Message-Id"))
				require.NoError(t, mailer.New(config).Check(t.Context()))
				return
			}
			failed, ok := errors.AsType[*mailer.Error](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.why, failed.Why)
			require.Equal(t, c.fate, failed.Fate)
		})
	}
}
