package cli_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/signature"
)

const (
	secretText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	otherText  = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	privateKey = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	publicKey  = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
)

// listening is a running listen command.
type listening struct {
	*testing.T

	url    string
	client *http.Client
	lines  *bufio.Scanner
	cancel context.CancelFunc
	ended  chan error
}

func listen(t *testing.T, c cli.ListenCommand) *listening {
	t.Helper()
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	l := &listening{t, "", &http.Client{Transport: transport}, bufio.NewScanner(reader), cancel, make(chan error, 1)}
	go func() {
		l.ended <- c.Run(ctx, cli.Process{Stdout: writer, Stderr: stderr})
		_ = writer.Close()
	}()
	t.Cleanup(func() {
		cancel()
		transport.CloseIdleConnections()
		_, _ = io.Copy(io.Discard, reader)
		_ = stderr.Close()
	})
	l.url = strings.TrimPrefix(l.line(), "listening on ")
	return l
}

// line returns the next printed line.
func (l *listening) line() string {
	l.Helper()
	require.True(l, l.lines.Scan(), "it ended")
	return l.lines.Text()
}

// stop ends the command and returns its last line.
func (l *listening) stop() string {
	l.Helper()
	l.cancel()
	last := l.line()
	require.NoError(l, <-l.ended)
	return last
}

// post sends a request with headers in pairs and returns the response and the printed line
// without its time.
func (l *listening) post(body string, headers ...string) (answer *http.Response, line string) {
	l.Helper()
	return l.request(http.MethodPost, body, headers...)
}

func (l *listening) request(method, body string, headers ...string) (answer *http.Response, line string) {
	l.Helper()
	request, err := http.NewRequestWithContext(l.Context(), method, l.url+"/hook", strings.NewReader(body))
	require.NoError(l, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	printed := make(chan string, 1)
	go func() { // before the response: the command blocks until its line is read
		l.lines.Scan()
		printed <- l.lines.Text()
	}()
	answer, err = l.client.Do(request)
	require.NoError(l, err)
	require.NoError(l, answer.Body.Close())
	at, line, _ := strings.Cut(<-printed, "  ")
	_, err = time.Parse("15:04:05.000", at)
	require.NoError(l, err)
	return answer, line
}

// signed returns the headers of a request of Everpost.
func signed(t *testing.T, id string, now time.Time, body string, secrets ...string) []string {
	t.Helper()
	var keys []signature.Secret
	for _, text := range secrets {
		key, err := signature.ParseSecret(text)
		require.NoError(t, err)
		keys = append(keys, key)
	}
	return []string{
		"webhook-id", id, "webhook-timestamp", strconv.FormatInt(now.Unix(), 10), "webhook-signature", signature.Sign(id, now, []byte(body), keys...),
		"everpost-attempt", "2", "everpost-event-type", "order.paid", "everpost-delivery-id", "dlv_1",
	}
}

func TestListenVerifies(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const body = `{"order":17}`
	checking := listen(t, cli.ListenCommand{Secret: []string{secretText, publicKey}})
	foreign, err := standardwebhooks.NewWebhook(secretText)
	require.NoError(t, err)
	foreignSignature, err := foreign.Sign("evt_1", now, []byte(body))
	require.NoError(t, err)
	secret, err := signature.ParseSecret(secretText)
	require.NoError(t, err)
	stamp := strconv.FormatInt(now.Unix(), 10)
	hexed, err := signature.SignHex([]byte(body), secret)
	require.NoError(t, err)
	foreignHeaders := []string{"webhook-id", "evt_1", "webhook-timestamp", stamp, "webhook-signature", foreignSignature}
	for want, headers := range map[string][]string{
		"order.paid  attempt 2  evt_1  signature ok  200":                             signed(t, "evt_1", now, body, secretText),
		"order.paid  attempt 2  evt_2  signature ok  200":                             signed(t, "evt_2", now, body, privateKey),
		"order.paid  attempt 2  evt_3  signature ok  200":                             signed(t, "evt_3", now, body, otherText, secretText),
		"order.paid  attempt 2  evt_4  signature bad (no signature matches)  200":     signed(t, "evt_4", now, body, otherText),
		"order.paid  attempt 2  evt_5  signature bad (no signature matches)  200":     signed(t, "evt_5", now, body+" ", secretText),
		"order.paid  attempt 2  evt_6  signature bad (the timestamp is too old)  200": signed(t, "evt_6", now.Add(-time.Hour), body, secretText),
		"-  attempt -  evt_7  signature bad (no signature matches)  200":              {"X-Idempotency-Key", "evt_7", "X-Webhook-Signature", "sha256=00"},
		"-  attempt -  evt_8  signature ok  200":                                      {"X-Idempotency-Key", "evt_8", "X-Webhook-Signature", hexed},
		"-  attempt -  -  signature bad (a webhook header is missing)  200":           nil,
		"-  attempt -  evt_1  signature ok  200":                                      foreignHeaders,
		"-  attempt -  é  signature bad (a webhook header is missing)  200":           {"webhook-id", "é"},
	} {
		_, line := checking.post(body, headers...)
		require.Equal(t, want, line)
	}
	require.Equal(t, "11 requests: 11 answered 200, signature ok 5, signature bad 6", checking.stop())

	trusting := listen(t, cli.ListenCommand{})
	_, line := trusting.post(body, signed(t, "evt_1", now, body, otherText)...)
	require.Equal(t, "order.paid  attempt 2  evt_1  signature unchecked  200", line)
	require.Equal(t, "1 requests: 1 answered 200, signature unchecked 1", trusting.stop())

	hexOnly := listen(t, cli.ListenCommand{Secret: []string{publicKey}})
	_, line = hexOnly.post(body, "X-Webhook-Signature", hexed)
	require.Equal(t, "-  attempt -  -  signature bad (the hex scheme needs a whsec_ secret)  200", line)
}

// The first requests of each id get the configured response, the others 200.
func TestListenFails(t *testing.T) {
	t.Parallel()
	two := 2
	ids := []string{"evt_1", "evt_2", "evt_1", "evt_1", "evt_2", "evt_2"}
	for name, c := range map[string]struct {
		command cli.ListenCommand
		want    []string // in the order of ids
	}{
		"default":          {cli.ListenCommand{}, []string{"200", "200", "200", "200", "200", "200"}},
		"status":           {cli.ListenCommand{Status: 410}, []string{"410", "410", "410", "410", "410", "410"}},
		"first":            {cli.ListenCommand{First: 1}, []string{"503", "503", "200", "200", "200", "200"}},
		"first and status": {cli.ListenCommand{First: 2, Status: 500}, []string{"500", "500", "500", "200", "500", "200"}},
		"retry after": {cli.ListenCommand{First: 1, Status: 429, RetryAfter: &two}, []string{
			"429, Retry-After 2", "429, Retry-After 2", "200", "200", "200", "200",
		}},
		"always, retry after": {cli.ListenCommand{Status: 503, RetryAfter: new(int)}, []string{
			"503, Retry-After 0", "503, Retry-After 0", "503, Retry-After 0", "503, Retry-After 0", "503, Retry-After 0", "503, Retry-After 0",
		}},
	} {
		l := listen(t, c.command)
		for i, id := range ids {
			answer, line := l.post("{}", "webhook-id", id)
			status, after, _ := strings.Cut(c.want[i], ", Retry-After ")
			require.Equal(t, status, strconv.Itoa(answer.StatusCode), name)
			require.Equal(t, after, answer.Header.Get("Retry-After"), name)
			require.Equal(t, "-  attempt -  "+id+"  signature unchecked  "+c.want[i], line, name)
		}
		require.True(t, strings.HasPrefix(l.stop(), "6 requests: "), name)
	}
}

// Concurrent requests are counted once each.
func TestListenConcurrently(t *testing.T) {
	t.Parallel()
	l := listen(t, cli.ListenCommand{First: 3, Status: 500})
	const senders, ids = 8, 5
	answers := make(chan int, senders*ids)
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for id := range ids {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.url, strings.NewReader("{}"))
				if err != nil {
					continue
				}
				request.Header.Set("webhook-id", strconv.Itoa(id))
				if answer, err := l.client.Do(request); err == nil {
					_ = answer.Body.Close()
					answers <- answer.StatusCode
				}
			}
		})
	}
	for range senders * ids {
		l.line()
	}
	all.Wait()
	close(answers)
	count := map[int]int{}
	for status := range answers {
		count[status]++
	}
	require.Equal(t, map[int]int{500: 3 * ids, 200: (senders - 3) * ids}, count)
	require.Equal(t, "40 requests: 25 answered 200, 15 answered 500, signature unchecked 40", l.stop())
}

// Payloads of unknown senders are printed without terminal control characters and within a
// size limit.
func TestListenPrintsBodies(t *testing.T) {
	t.Parallel()
	l := listen(t, cli.ListenCommand{Body: true})
	_, line := l.post("{\"a\":1,\r\n\t\"b\":\"\x1b[31m\u202e\xff\"}\n", "webhook-id", "evt_1", "everpost-event-type", strings.Repeat("x", 200))
	require.Equal(t, strings.Repeat("x", 128)+"…  attempt -  evt_1  signature unchecked  200", line)
	require.Equal(t, `  {"a":1,`, l.line())
	require.Equal(t, `  \t"b":"\x1b[31m\u202e�"}`, l.line())
	answer, line := l.post(strings.Repeat("x", 8<<20+1))
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode)
	require.Equal(t, "-  attempt -  -  signature unchecked  413", line)
	require.Equal(t, "  ", l.line())
	answer, line = l.request(http.MethodGet, "")
	require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
	require.Equal(t, "POST", answer.Header.Get("Allow"))
	require.Equal(t, "-  attempt -  -  signature unchecked  405  (GET)", line)
}

// A response is delayed. It is not sent after the sender has disconnected, and sent at once
// when the command is stopped.
func TestListenDelays(t *testing.T) {
	t.Parallel()
	slow := listen(t, cli.ListenCommand{Delay: 150 * time.Millisecond})
	begun := time.Now()
	answer, _ := slow.post("{}")
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.GreaterOrEqual(t, time.Since(begun), 150*time.Millisecond)
	slow.stop()

	slower := listen(t, cli.ListenCommand{Delay: time.Hour})
	ctx, leave := context.WithCancel(t.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { leave() }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, slower.url, strings.NewReader("{}"))
	require.NoError(t, err)
	_, err = slower.client.Do(request)
	require.ErrorIs(t, err, context.Canceled)
	require.Regexp(t, `  signature unchecked  no answer: the sender left after \w+`, slower.line())

	// 100 Continue is sent when the request is being handled: cancel it then.
	ctx = httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: slower.cancel})
	request, err = http.NewRequestWithContext(ctx, http.MethodPost, slower.url, strings.NewReader("{}"))
	require.NoError(t, err)
	request.Header.Set("Expect", "100-continue")
	status := make(chan int, 1)
	go func() {
		defer close(status)
		if answer, err := slower.client.Do(request); err == nil {
			_ = answer.Body.Close()
			status <- answer.StatusCode
		}
	}()
	require.Contains(t, slower.line(), "signature unchecked  200")
	require.Equal(t, http.StatusOK, <-status)
	require.Equal(t, "2 requests: 1 not answered, 1 answered 200, signature unchecked 2", slower.line())
	require.NoError(t, <-slower.ended)
}

func TestBadListen(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	for flag, want := range map[string]string{
		"--port=" + strconv.Itoa(port): taken.Addr().String() + " cannot be listened on (bind: address already in use); choose another --port, or 0",
		"--port=65536":                 "--port",
		"--status=99":                  "--status: must be from 200 to 999",
		"--status=101":                 "--status: must be from 200 to 999",
		"--first=-1":                   "--first: must not be negative",
		"--retry-after=-1":             "--retry-after: must not be negative",
		"--delay=-1s":                  "--delay: must not be negative",
		"--secret=whsec_canary":        "--secret: parse whsec_ secret: malformed key",
		"--secret=canary":              "--secret: parse secret: malformed key: must begin with whsec_ or whsk_",
		"--secret=whpk_canary":         "--secret: ",
	} {
		r := call{args: []string{"listen", flag}}.run(t)
		code := 2
		if strings.Contains(want, "already in use") {
			code = 1
		}
		require.Equal(t, code, r.code, flag)
		require.Contains(t, r.stderr, "everpost: "+want, flag)
		require.NotContains(t, r.stderr, "canary")
		require.Empty(t, r.stdout)
	}
}
