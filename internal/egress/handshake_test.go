package egress

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

// readRecord returns the first record on a connection, and the connection with the record put back.
func readRecord(conn net.Conn) (int, net.Conn) {
	var header [5]byte
	_, _ = io.ReadFull(conn, header[:])
	record := make([]byte, int(header[3])<<8|int(header[4]))
	_, _ = io.ReadFull(conn, record)
	return len(record), &putBack{Conn: conn, Reader: io.MultiReader(bytes.NewReader(header[:]), bytes.NewReader(record), conn)}
}

type putBack struct {
	net.Conn
	io.Reader
}

func (p *putBack) Read(b []byte) (int, error) { return p.Reader.Read(b) }

// smallOnly serves TLS behind a device that treats large hellos in a way of its own. It counts both.
func smallOnly(t *testing.T, ca *authority, refuse func(*net.TCPConn)) (url string, large, small *atomic.Int32) {
	t.Helper()
	large, small = new(atomic.Int32), new(atomic.Int32)
	config := ca.config(t, "127.0.0.1", time.Now().Add(time.Hour))
	return "https://" + rawServer(t, func(conn *net.TCPConn, _ int) {
		n, whole := readRecord(conn)
		if n > 1200 {
			large.Add(1)
			refuse(conn)
			return
		}
		small.Add(1)
		answerTLS(whole, config, "200 OK")
	}), large, small
}

// A connection that is closed during the hello is tried once without ML-KEM, and the endpoint's next ones begin so.
func TestSmallHello(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for name, refuse := range map[string]func(*net.TCPConn){
		"FIN": func(*net.TCPConn) {},
		"RST": func(conn *net.TCPConn) { _ = conn.SetLinger(0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, large, small := smallOnly(t, ca, refuse)
			c := setup(t, Config{RootCAs: ca.pool})
			for range 3 {
				requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: url, Timeout: patience}), retry.FailureNone, 200)
			}
			require.Equal(t, []int32{1, 3}, []int32{large.Load(), small.Load()})
			requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_2", URL: url, Timeout: patience}), retry.FailureNone, 200)
			require.Equal(t, []int32{2, 4}, []int32{large.Load(), small.Load()}, "another endpoint learns for itself")
		})
	}
}

// Where large hellos are lost, the first attempt has no time left for a small one, and the next begins with it.
func TestLostHello(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	url, large, small := smallOnly(t, ca, func(conn *net.TCPConn) { hold(conn) })
	c := setup(t, Config{RootCAs: ca.pool})
	r := c.Send(t.Context(), Request{EndpointID: "ep_1", URL: url, Timeout: short})
	requireFailure(t, r, retry.FailureTimeoutTLS, 0)
	for range 2 {
		requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: url, Timeout: patience}), retry.FailureNone, 200)
	}
	require.Equal(t, []int32{1, 2}, []int32{large.Load(), small.Load()})
}

// A small hello that does not help either is forgotten, and tried again only after a large one.
func TestSmallHelloThatDoesNotHelp(t *testing.T) {
	t.Parallel()
	sizes := make(chan bool, 8)
	url := "https://" + rawServer(t, func(conn *net.TCPConn, _ int) {
		n, _ := readRecord(conn)
		sizes <- n > 1200
	})
	c := setup(t, Config{})
	for range 2 {
		r := c.Send(t.Context(), Request{EndpointID: "ep_1", URL: url, Timeout: patience})
		requireFailure(t, r, retry.FailureUnexpectedEOF, 0)
	}
	for i := range 4 {
		require.Equal(t, i%2 == 0, <-sizes, i)
	}
	require.Empty(t, sizes)
}

// The same after a large hello that was lost.
func TestSmallHelloAfterALostOneThatDoesNotHelp(t *testing.T) {
	t.Parallel()
	sizes := make(chan bool, 8)
	url := "https://" + rawServer(t, func(conn *net.TCPConn, _ int) {
		n, _ := readRecord(conn)
		sizes <- n > 1200
		if len(sizes) == 1 {
			hold(conn)
		}
	})
	c := setup(t, Config{})
	for i, want := range []retry.Failure{retry.FailureTimeoutTLS, retry.FailureUnexpectedEOF, retry.FailureUnexpectedEOF} {
		timeout := patience
		if i == 0 {
			timeout = short
		}
		requireFailure(t, c.Send(t.Context(), Request{EndpointID: "ep_1", URL: url, Timeout: timeout}), want, 0)
	}
	for i := range 4 {
		require.Equal(t, i%2 == 0, <-sizes, i)
	}
	require.Empty(t, sizes)
}
