package console_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// send opens a connection and sends the head of a form, and nothing of the form.
func (b *bundle) send(t *testing.T, path, cookie string, length int) net.Conn {
	t.Helper()
	host := strings.TrimPrefix(b.url, "http://")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n",
		path, host, cookie, length)
	require.NoError(t, err)
	return conn
}

// The form of a request that may not have the page is not read.
func TestFormsOfStrangersAreNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", "")
	u := b.loggedIn(t, "other admin")
	at, err := url.Parse(b.url + "/console/")
	require.NoError(t, err)
	var other []string
	for _, c := range u.jar.Cookies(at) {
		other = append(other, c.Name+"="+c.Value)
	}
	for cookie, status := range map[string]int{"": http.StatusSeeOther, strings.Join(other, "; "): http.StatusNotFound} {
		conn := b.send(t, "/console/t/acme/endpoints/ep_x/test", cookie, 1<<20)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		w, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, "it waits for the form")
		require.NoError(t, w.Body.Close())
		require.Equal(t, status, w.StatusCode)
	}
}

// Forms that do not come take no place from others.
func TestSlowFormsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 60 {
		b.send(t, []string{"/console/login", "/console/nowhere"}[i%2], "", 100)
	}
	u := b.browser(t)
	for range 5 {
		u.get(t, http.StatusOK, "/console/login")
	}
}
