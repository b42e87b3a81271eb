package console_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }

const (
	operatorKey = "an operator key for tests, long enough"
	kek         = "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk="

	eventually = 20 * time.Second
	poll       = 20 * time.Millisecond
)

// bundle is a process that serves the API and the console over a real PostgreSQL, with the tenants acme and
// other. It has no Temporal: deliveries wait.
type bundle struct {
	url      string // of the API and the console
	database string
	keys     map[string]string
	ids      map[string]string // of the keys
}

// settings are those of a process over a database.
func settings(database string, change ...func(*config.Config)) config.Config {
	c := config.Config{
		Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", DatabaseURL: database, OperatorKey: operatorKey, KEKs: config.KEKs{KEK: kek},
		Retention: 720 * time.Hour, DeadLetterRetention: 720 * time.Hour, AuditRetention: 17520 * time.Hour, StartSlots: 1, DBConnections: 37,
		MaxPayload:     256 << 10,
		MaxPerWorkflow: 50, ReconcileEvery: time.Minute, QueueLength: 100, RunningReplays: 50, MaxHeld: 720 * time.Hour,
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// startError is why a process refuses its settings. It does not reach a database.
func startError(t *testing.T, change func(*config.Config)) error {
	t.Helper()
	c := settings("postgres://127.0.0.1:1/none?sslmode=disable", change)
	_, err := app.New(t.Context(), app.Options{Config: c, Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), API: true})
	return err
}

func setup(t *testing.T, change ...func(*config.Config)) *bundle {
	t.Helper()
	c := settings(postgrestest.New(t), change...)
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	a, err := app.New(t.Context(), app.Options{
		Config: c, Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), API: true, Temporal: client.Options{HostPort: closed.Addr().String()},
	})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(a.Stop)

	b := &bundle{url: "http://" + a.APIAddr(), database: c.DatabaseURL, keys: map[string]string{"operator": operatorKey}, ids: map[string]string{}}
	for _, tenant := range []string{"acme", "other"} {
		b.api(t, http.StatusCreated, "PUT", "/v1/tenants/"+tenant, `{}`)
		for _, scope := range []string{"admin", "ingest"} {
			made := b.api(t, http.StatusCreated, "POST", "/v1/tenants/"+tenant+"/keys", `{"scope":"`+scope+`"}`)
			b.keys[tenant+" "+scope], b.ids[tenant+" "+scope] = made["key"].(string), made["id"].(string)
		}
	}
	return b
}

// api makes a request to the API as operator.
func (b *bundle) api(t *testing.T, status int, method, path, body string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+operatorKey)
	w, text := roundTrip(t, http.Client{}, r)
	require.Equal(t, status, w.StatusCode, "%s %s: %s", method, path, text)
	var answer map[string]any
	if strings.Contains(w.Header.Get("Content-Type"), "json") && strings.HasPrefix(text, "{") {
		require.NoError(t, json.Unmarshal([]byte(text), &answer))
	}
	return answer
}

// sql changes one row of the database: what only a worker changes, and there is none.
func (b *bundle) sql(t *testing.T, statement string, arguments ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.database)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	changed, err := conn.Exec(t.Context(), statement, arguments...)
	for isAttached(err) {
		changed, err = conn.Exec(t.Context(), statement, arguments...)
	}
	require.NoError(t, err)
	require.EqualValues(t, 1, changed.RowsAffected(), statement)
}

// isAttached reports whether a row was refused because the partition of its day was just attached.
func isAttached(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "23514" && refused.ConstraintName == ""
}

// tried makes an attempt of a delivery, which took 90 s and began 100 s ago, and puts the delivery into a state: webhook.State. A held delivery
// and a dead letter have the reason; the attempt has the status or, if there is none, the reason.
func (b *bundle) tried(t *testing.T, delivery string, state webhook.State, reason string, status int) {
	t.Helper()
	id, err := webhook.ParseDeliveryID(delivery)
	require.NoError(t, err)
	b.sql(t, `with gone as (delete from outbox where delivery_id = $1 returning *)
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, reason, attempts, run_attempts, due_at,
			give_up_at, completed_at, last_decision, last_reason, last_status, last_latency_us, last_at,
			last_retry_after_ns)
		select delivery_id, event_id, endpoint_id, tenant_id, event_type, created_at, run, 1, $2::smallint, case when $2 in (2, 4) then $3 else '' end, 1, 1,
			case when $2 in (2, 4) then null else now() + interval '1 hour' end, give_up_at, case when $2 = 4 then now() end,
			3, $4::text, $5::integer, 90000000, now() - interval '10 seconds', 0 from gone`,
		[16]byte(id), int(state), reason, cmp.Or(statusReason(status), reason), status)
	b.sql(t, `insert into attempts (delivery_id, run, number, started_at, latency_us, decision, reason, status, retry_after_ns, error, delay_ns,
			delay_source, nominal_ns, truncated, request_headers, response_headers, response_body)
		select id, 1, 1, last_at - interval '90 seconds', 90000000, 3, last_reason, last_status, 0, '', 0, '', 0, false, '{}', '{}', ''
		from deliveries where id = $1`, [16]byte(id))
}

func statusReason(status int) string {
	if status == 0 {
		return ""
	}
	return string(retry.HTTPReason(status))
}

// endpoint creates an endpoint and returns its id.
func (b *bundle) endpoint(t *testing.T, tenant, fields string) string {
	t.Helper()
	made := b.api(t, http.StatusCreated, "POST", "/v1/tenants/"+tenant+"/endpoints", `{"url":"https://receiver.example/hook"`+fields+`}`)
	return made["id"].(string)
}

// event posts an event and returns its id and that of its first delivery.
func (b *bundle) event(t *testing.T, tenant, body string) (id, delivery string) {
	t.Helper()
	made := b.api(t, http.StatusAccepted, "POST", "/v1/tenants/"+tenant+"/events", body)
	if all := made["deliveries"].([]any); len(all) > 0 {
		delivery = all[0].(map[string]any)["id"].(string)
	}
	return made["id"].(string), delivery
}

func roundTrip(t *testing.T, c http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c.Transport = transport
	w, err := c.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Body.Close()) }()
	text, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return w, string(text)
}

// browser keeps cookies and sends what browsers send. It does not follow redirects.
type browser struct {
	b   *bundle
	jar http.CookieJar

	last string            // the page that was shown last, for its form's token
	with map[string]string // further header fields
}

func (b *bundle) browser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &browser{b: b, jar: jar, with: map[string]string{"Sec-Fetch-Site": "same-origin"}}
}

func (u *browser) do(t *testing.T, method, path string, form url.Values) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, u.b.url+path, bytes.NewReader([]byte(form.Encode())))
	require.NoError(t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range u.with {
		r.Header.Set(name, value)
	}
	w, text := roundTrip(t, http.Client{Jar: u.jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, r)
	if strings.Contains(w.Header.Get("Content-Type"), "html") && strings.Contains(text, `name="csrf"`) {
		u.last = text
	}
	return w, text
}

// get shows a page, which must have the status.
func (u *browser) get(t *testing.T, status int, path string) string {
	t.Helper()
	w, text := u.do(t, http.MethodGet, path, nil)
	require.Equal(t, status, w.StatusCode, "%s: %s", path, said(text))
	return text
}

// post sends a form with the token of the last page, as name, value, name, value, ….
func (u *browser) post(t *testing.T, status int, path string, pairs ...string) (*http.Response, string) {
	t.Helper()
	w, text := u.do(t, http.MethodPost, path, u.form(u.last, pairs...))
	require.Equal(t, status, w.StatusCode, "%s: %s", path, said(text))
	return w, text
}

// form is what a browser sends of a page's form, with what was typed.
func (u *browser) form(page string, typed ...string) url.Values {
	form := url.Values{}
	for name, of := range map[string]*regexp.Regexp{"csrf": csrfOf, "once": onceOf} {
		if found := of.FindStringSubmatch(page); found != nil {
			form.Set(name, found[1])
		}
	}
	for i := 0; i+1 < len(typed); i += 2 {
		form.Set(typed[i], typed[i+1])
	}
	return form
}

// said is the main part of a page, for messages.
func said(page string) string {
	if i := strings.Index(page, "<main"); i >= 0 {
		page = page[i:]
	}
	return page[:min(len(page), 2000)]
}

var (
	csrfOf = regexp.MustCompile(`name="csrf" value="([^"]+)"`)
	onceOf = regexp.MustCompile(`name="once" value="([^"]+)"`)
)

// logIn logs in with a key of the bundle and returns where that leads.
func (u *browser) logIn(t *testing.T, key, to string) string {
	t.Helper()
	u.get(t, http.StatusOK, "/console/login")
	w, _ := u.post(t, http.StatusSeeOther, "/console/login", "key", u.b.keys[key], "to", to)
	return w.Header.Get("Location")
}

// loggedIn is a browser with the session of a key.
func (b *bundle) loggedIn(t *testing.T, key string) *browser {
	t.Helper()
	u := b.browser(t)
	u.logIn(t, key, "")
	return u
}

// link makes a portal link and returns its path.
func (b *bundle) link(t *testing.T, tenant, body string) string {
	t.Helper()
	return pathOf(t, b.api(t, http.StatusCreated, "POST", "/v1/tenants/"+tenant+"/console-links", body))
}

// logInLink makes a link that logs in as operator and returns its path.
func (b *bundle) logInLink(t *testing.T) string {
	t.Helper()
	return pathOf(t, b.api(t, http.StatusCreated, "POST", "/v1/console-links", "{}"))
}

func pathOf(t *testing.T, made map[string]any) string {
	t.Helper()
	u, err := url.Parse(made["url"].(string))
	require.NoError(t, err)
	return u.RequestURI()
}

// portal is a browser with the session of a portal link, with further fields of the link.
func (b *bundle) portal(t *testing.T, tenant, scope string, fields ...string) *browser {
	t.Helper()
	path := b.link(t, tenant, `{"scope":"`+scope+`","return_url":"https://app.example/back"`+strings.Join(fields, "")+`}`)
	u := b.browser(t)
	u.get(t, http.StatusOK, path)
	u.post(t, http.StatusSeeOther, path)
	return u
}
