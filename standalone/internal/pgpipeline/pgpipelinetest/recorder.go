// Package pgpipelinetest shows tests what a client sends to PostgreSQL, and in how many round trips.
package pgpipelinetest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Recorder stands between a client and PostgreSQL and passes on everything, unchanged. It is safe for concurrent use.
type Recorder struct {
	url string

	mu    sync.Mutex
	trips [][]string
}

// New returns a Recorder in front of the PostgreSQL at an address that has its socket's directory in it, as that of
// internal/localpg has. It ends with the test.
func New(t testing.TB, address string) *Recorder {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	query := u.Query()
	socket := ".s.PGSQL." + query.Get("port")
	server := filepath.Join(query.Get("host"), socket)

	dir, err := os.MkdirTemp("", "pgpipeline-test-") //nolint:usetesting // names of sockets are short, those of TempDir are not
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, socket))
	require.NoError(t, err)
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	r := &Recorder{url: u.String()}

	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.serve(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait() // for clients to go
		require.NoError(t, os.RemoveAll(dir))
	})
	return r
}

// URL is the database's address by way of the recorder.
func (r *Recorder) URL() string { return r.url }

// Take returns the statements that were run since it was last called, those of each round trip together. Round trips in
// which statements are only prepared, and pings, are left out.
func (r *Recorder) Take() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	trips := r.trips
	r.trips = nil
	return trips
}

func (r *Recorder) serve(client net.Conn, server string) {
	defer func() { _ = client.Close() }()
	upstream, err := new(net.Dialer).Dial("unix", server)
	if err != nil {
		return
	}
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		_, _ = io.Copy(client, upstream)
		_ = client.Close()
	}()
	_ = r.pass(client, upstream)
	_ = upstream.Close()
	<-answers
}

var errProtocol = errors.New("not PostgreSQL's protocol")

// pass reads one message of the client after the other, see
// https://www.postgresql.org/docs/current/protocol-message-formats.html, and writes each on once it is recorded.
func (r *Recorder) pass(client io.Reader, server io.Writer) error {
	texts := map[string]string{} // of prepared statements, by name
	var trip []string
	for first := true; ; first = false {
		head := make([]byte, 5)
		if first { // the only one without a type
			head = head[:4]
		}
		if _, err := io.ReadFull(client, head); err != nil {
			return err //nolint:wrapcheck // nobody looks at it
		}
		size := int(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
		if size < 0 {
			return errProtocol
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(client, body); err != nil {
			return err //nolint:wrapcheck // nobody looks at it
		}
		if !first {
			switch fields := strings.SplitN(string(body), "\x00", 3); head[0] {
			case 'P': // Parse: name, text
				texts[fields[0]] = fields[1]
			case 'B': // Bind: portal, name
				trip = append(trip, texts[fields[1]])
			case 'Q': // a simple query
				r.add([]string{fields[0]})
			case 'S': // Sync
				r.add(trip)
				trip = nil
			}
		}
		if _, err := server.Write(slices.Concat(head, body)); err != nil {
			return err //nolint:wrapcheck // nobody looks at it
		}
	}
}

func (r *Recorder) add(trip []string) {
	if len(trip) == 0 || trip[0] == "-- ping" || trip[0] == ";" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trips = append(r.trips, trip)
}
