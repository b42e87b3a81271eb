package client

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An export is complete with its last line, wherever reads cut it.
func TestExport(t *testing.T) {
	t.Parallel()
	const end = `{"kind":"end","data":{"tenant":1}}` + "\n"
	long := strings.Repeat(`{"kind":"event","data":{"payload":"`+strings.Repeat("x", 3*longestEnd)+`"}}`+"\n", 3)
	for text, complete := range map[string]bool{
		end: true, long + end: true, "": false, long: false, long + strings.TrimSuffix(end, "\n"): false, long + end + `{"kind"`: false,
		`{"kind":"event","data":{"payload":"` + endLine + "\"}}\n": false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for ; text != ""; text = text[min(len(text), 1000):] {
				_, _ = io.WriteString(w, text[:min(len(text), 1000)])
				w.(http.Flusher).Flush()
			}
		}))
		sent := text
		c := New(server.URL, "", "")
		var out strings.Builder
		err := c.Export(t.Context(), Request{Method: http.MethodGet}, &out)
		c.Close()
		server.Close()
		require.Equal(t, sent, out.String())
		if complete {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, ErrIncomplete, sent)
	}
}

// A connection that breaks off, a refusal and a full disk are told apart.
func TestExportErrors(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/busy" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, "{}\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	c := New(server.URL, "", "")
	defer c.Close()
	require.ErrorIs(t, c.Export(t.Context(), Request{Method: http.MethodGet, Path: []string{"broken"}}, io.Discard), ErrIncomplete)
	require.ErrorAs(t, c.Export(t.Context(), Request{Method: http.MethodGet, Path: []string{"busy"}}, io.Discard), new(*APIError))
	full := errors.New("the disk is full")
	require.ErrorIs(t, c.Export(t.Context(), Request{Method: http.MethodGet, Path: []string{"broken"}}, writer(func() error { return full })), full)
}

type writer func() error

func (w writer) Write([]byte) (int, error) { return 0, w() }
