package console_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/console"
)

// follow opens a stream of a page. Lines come until it ends.
func follow(t *testing.T, u *browser, path string) (status int, lines <-chan string, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.b.url+path, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	transport := &http.Transport{}
	w, err := (&http.Client{Jar: u.jar, Transport: transport}).Do(r)
	require.NoError(t, err)
	all := make(chan string, 10_000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(all)
		scanner := bufio.NewScanner(w.Body)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			all <- scanner.Text()
		}
	}()
	return w.StatusCode, all, func() {
		cancel()
		<-done
		_, _ = io.Copy(io.Discard, w.Body)
		_ = w.Body.Close()
		transport.CloseIdleConnections()
	}
}

// await reads lines until one contains the text.
func await(t *testing.T, lines <-chan string, text string) {
	t.Helper()
	late := time.After(eventually)
	for {
		select {
		case line, open := <-lines:
			require.True(t, open, "the stream has ended without %q", text)
			if strings.Contains(line, text) {
				return
			}
		case <-late:
			require.Fail(t, "nothing came", text)
		}
	}
}

func TestLivePartsFollowChangesUntilTheSessionEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "acme admin")
	status, lines, end := follow(t, u, "/console/t/acme/endpoints/"+id)
	defer end()
	require.Equal(t, http.StatusOK, status)
	await(t, lines, "event: live")
	b.api(t, http.StatusOK, "POST", "/v1/tenants/acme/endpoints/"+id+"/pause", "")
	await(t, lines, "aused")
	b.api(t, http.StatusNoContent, "DELETE", "/v1/tenants/acme/keys/"+b.ids["acme admin"], "")
	late := time.After(eventually)
	for {
		select {
		case _, open := <-lines:
			if !open {
				return
			}
		case <-late:
			require.Fail(t, "the stream outlives its session")
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "acme admin")
	for range console.MaxSessionStreams {
		status, _, end := follow(t, u, "/console/t/acme/")
		t.Cleanup(end)
		require.Equal(t, http.StatusOK, status)
	}
	status, _, end := follow(t, u, "/console/t/acme/")
	end()
	require.Equal(t, http.StatusNoContent, status, "the browser does not try again")
	status, _, end = follow(t, b.loggedIn(t, "operator"), "/console/t/acme/")
	end()
	require.Equal(t, http.StatusOK, status)
	status, _, end = follow(t, b.browser(t), "/console/t/acme/")
	end()
	require.Equal(t, http.StatusNoContent, status, "without a session")
	status, _, end = follow(t, b.loggedIn(t, "other admin"), "/console/t/acme/")
	defer end()
	require.Equal(t, http.StatusOK, status)
}
