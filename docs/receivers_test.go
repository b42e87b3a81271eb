// Package docs holds the documentation. Its tests run what it shows.
package docs_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/programtest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	oldSecret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret  = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	privateKey = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	publicKey  = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	payload    = `{"order": 17, "note": "\u00e4 / 😀"}`
)

// tests makes single requests, signed and sent as deliveries are.
func tests(t *testing.T) *activities.Tests {
	t.Helper()
	client := egress.New(egress.Config{Version: "test", Guard: egress.NewGuard(egress.GuardConfig{
		AllowHTTP: true, AnyPort: true, AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})})
	t.Cleanup(client.Close)
	return activities.NewTests(client)
}

func target(url string, format webhook.PayloadFormat, secrets ...string) *webhook.Target {
	return &webhook.Target{Secrets: secrets, Endpoint: webhook.Endpoint{
		ID: webhook.NewEndpointID(), URL: url, Timeout: webhook.MaxTimeout, RetryPolicy: retry.Default(),
		Signature: webhook.SignatureV1, PayloadFormat: format,
	}}
}

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("receivers.md")
	require.NoError(t, err)
	return string(text)
}

// between is what a page says between two marks.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, from)
	require.True(t, found, from)
	part, _, found := strings.Cut(rest, to)
	require.True(t, found, to)
	return part
}

// The headers that are listed are those that arrive, spelled so.
func TestReceiversHeaders(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	arrived := make(chan []string, 1)
	go func() { // not net/http's server, which changes the spelling
		defer close(arrived)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var names []string
		lines := bufio.NewScanner(conn)
		for lines.Scan(); lines.Scan() && lines.Text() != ""; {
			name, _, _ := strings.Cut(lines.Text(), ":")
			names = append(names, name)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		arrived <- names
	}()
	url := "http://" + listener.Addr().String()
	_, err = tests(t).Send(t.Context(), target(url, webhook.PayloadRaw, oldSecret), "order.paid", []byte(payload))
	require.NoError(t, err)
	var listed []string
	table := between(t, page(t), "<!-- headers:", "<!-- end of headers -->")
	for _, found := range regexp.MustCompile("(?m)^\\| `([A-Za-z-]+)`").FindAllStringSubmatch(table, -1) {
		listed = append(listed, found[1])
	}
	require.ElementsMatch(t, <-arrived, listed)
}

// language is how a program of the page is started.
type language struct {
	file    string // its name on the page
	ed25519 bool
	program string // what runs it
	in      string // Debian's package of that
	command func(t *testing.T, program, file string) []string
}

func languages() []language {
	return []language{
		{"receiver.go", true, "go", "golang", func(t *testing.T, program, file string) []string {
			t.Helper()
			binary := filepath.Join(t.TempDir(), "receiver")
			build := exec.CommandContext(t.Context(), program, "build", "-o", binary, file)
			build.Dir = filepath.Dir(file)
			out, err := build.CombinedOutput()
			require.NoError(t, err, string(out))
			return []string{binary}
		}},
		{"receiver.mts", true, "node", "nodejs", func(t *testing.T, program, file string) []string {
			t.Helper()
			plain := strings.TrimSuffix(file, ".mts") + ".mjs" // as the page says, for every version of Node.js
			require.NoError(t, os.Rename(file, plain))
			return []string{program, plain}
		}},
		{"receiver.py", false, "python3", "python3", func(_ *testing.T, program, file string) []string { return []string{program, file} }},
	}
}

// receiver is a program of the page, running.
type receiver struct {
	url   string
	lines *bufio.Scanner // what it prints
}

// run starts a program with some secrets.
func (l language) run(t *testing.T, secrets ...string) *receiver {
	t.Helper()
	runner := programtest.Find(t, l.program, l.in)
	_, program, _ := strings.Cut(between(t, page(t), "<!-- program: "+l.file+" -->\n```", "\n```\n"), "\n") // the first line names the language
	file := filepath.Join(t.TempDir(), l.file)
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	command := l.command(t, runner, file)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "PORT=0", "WEBHOOK_SECRETS="+strings.Join(secrets, " "))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(complaints.String())
		}
	})
	r := &receiver{lines: bufio.NewScanner(out)}
	r.url = "http://" + strings.TrimPrefix(r.next(t), "listening on ")
	return r
}

// next is the next line that the program prints.
func (r *receiver) next(t *testing.T) string {
	t.Helper()
	line := make(chan string, 1)
	go func() {
		if r.lines.Scan() {
			line <- r.lines.Text()
		}
		close(line)
	}()
	select {
	case text, ok := <-line:
		require.True(t, ok, "the program has ended")
		return text
	case <-time.After(time.Minute):
		require.Fail(t, "the program prints nothing")
		return ""
	}
}

// Each program takes what Everpost sends, once, and nothing else.
func TestReceiversPrograms(t *testing.T) {
	t.Parallel()
	for _, l := range languages() {
		t.Run(l.file, func(t *testing.T) {
			t.Parallel()
			keys := []string{oldSecret}
			if l.ed25519 {
				keys = append(keys, publicKey)
			}
			r, send := l.run(t, keys...), tests(t)
			sent := func(format webhook.PayloadFormat, secrets ...string) webhook.Attempt {
				made, err := send.Send(t.Context(), target(r.url, format, secrets...), "order.paid", []byte(payload))
				require.NoError(t, err)
				return made
			}
			accepted := [][]string{{oldSecret}, {newSecret, oldSecret}, {oldSecret, newSecret}} // while a secret is being rotated
			if l.ed25519 {
				accepted = append(accepted, []string{privateKey}, []string{privateKey, newSecret})
			}
			for _, secrets := range accepted {
				made := sent(webhook.PayloadEnvelope, secrets...)
				require.Equal(t, retry.Delivered, made.Outcome.Decision, made.Error)
				require.Equal(t, http.StatusNoContent, made.Outcome.Status)
				require.Contains(t, r.next(t), "order.paid "+made.RequestHeaders[signature.HeaderID]+" ")
			}
			made := sent(webhook.PayloadRaw, oldSecret)
			require.Equal(t, retry.Delivered, made.Outcome.Decision)
			require.Contains(t, r.next(t), made.RequestHeaders[signature.HeaderID])
			for _, secrets := range [][]string{{newSecret}, {newSecret, newSecret}} {
				made := sent(webhook.PayloadEnvelope, secrets...)
				require.Equal(t, []any{retry.Permanent, http.StatusUnauthorized}, []any{made.Outcome.Decision, made.Outcome.Status})
			}
			r.refuses(t)
		})
	}
}

// refuses makes requests that are not quite as Everpost makes them.
func (r *receiver) refuses(t *testing.T) {
	t.Helper()
	secret, err := signature.ParseSecret(oldSecret)
	require.NoError(t, err)
	body := []byte(`{"type":"forged","timestamp":"2026-01-31T09:30:00.000000Z","data":1}`)
	try := func(id string, at time.Time, signed, sent []byte, change func(http.Header)) (int, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, bytes.NewReader(sent))
		require.NoError(t, err)
		request.Header.Set(signature.HeaderID, id)
		request.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
		request.Header.Set(signature.HeaderSignature, signature.Sign(id, at, signed, secret))
		if change != nil {
			change(request.Header)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, answer.Body.Close()
	}
	do := func(id string, at time.Time, signed, sent []byte, change func(http.Header)) int {
		status, err := try(id, at, signed, sent, change)
		require.NoError(t, err)
		return status
	}
	now := time.Now()
	other := slices.Clone(body)
	other[len(other)-2] = '2'
	for name, got := range map[string]int{
		"another body":           do("evt_1", now, body, other, nil),
		"white space":            do("evt_1", now, body, append(slices.Clone(body), ' '), nil),
		"recorded":               do("evt_1", now.Add(-6*time.Minute), body, body, nil),
		"of tomorrow":            do("evt_1", now.Add(6*time.Minute), body, body, nil),
		"another time":           do("evt_1", now, body, body, func(h http.Header) { h.Set("webhook-timestamp", strconv.FormatInt(now.Unix()-1, 10)) }),
		"no time":                do("evt_1", now, body, body, func(h http.Header) { h.Del("webhook-timestamp") }),
		"a time that is none":    do("evt_1", now, body, body, func(h http.Header) { h.Set("webhook-timestamp", "soon") }),
		"a time of other digits": do("evt_1", now, body, body, func(h http.Header) { h.Set("webhook-timestamp", "²") }),
		"a time without end":     do("evt_1", now, body, body, func(h http.Header) { h.Set("webhook-timestamp", strings.Repeat("9", 5000)) }),
		"another id":             do("evt_1", now, body, body, func(h http.Header) { h.Set("webhook-id", "evt_2") }),
		"no signature":           do("evt_1", now, body, body, func(h http.Header) { h.Del("webhook-signature") }),
		"an empty one":           do("evt_1", now, body, body, func(h http.Header) { h.Set("webhook-signature", "v1,") }),
		"not base64":             do("evt_1", now, body, body, func(h http.Header) { h.Set("webhook-signature", "v1,ü v1a,ü v2,x ,") }),
		"another scheme": do("evt_1", now, body, body, func(h http.Header) {
			h.Set("webhook-signature", strings.Replace(h.Get("webhook-signature"), "v1,", "v1a,", 1))
		}),
	} {
		require.Equal(t, http.StatusUnauthorized, got, name)
	}
	// A program that refuses a body without reading it may close the connection while it is still being sent.
	if status, err := try("evt_1", now, body, bytes.Repeat([]byte("1"), 1<<20+1), nil); err == nil {
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
	}
	answer, err := http.Get(r.url)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Contains(t, []int{http.StatusMethodNotAllowed, http.StatusNotImplemented}, answer.StatusCode)

	// None of those was handled, and what comes twice is handled once.
	for _, id := range []string{"evt_twice", "evt_twice", "evt_last"} {
		require.Equal(t, http.StatusNoContent, do(id, now, body, body, nil), id)
	}
	for _, id := range []string{"evt_twice", "evt_last"} {
		require.Equal(t, fmt.Sprintf("forged %s %d bytes", id, len(body)), r.next(t))
	}
}
