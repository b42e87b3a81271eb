package client_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
)

// An export is complete with its last line, wherever reads cut it.
func TestExport(t *testing.T) {
	t.Parallel()
	const end = `{"kind":"end","data":{"tenant":1}}` + "\n"
	long := strings.Repeat(`{"kind":"event","data":{"payload":"`+strings.Repeat("x", 12<<10)+`"}}`+"\n", 3)
	for text, complete := range map[string]bool{
		end: true, long + end: true, "": false, long: false, long + strings.TrimSuffix(end, "\n"): false, long + end + `{"kind"`: false,
		`{"kind":"event","data":{"payload":"{"kind":"end",` + "\"}}\n": false,
	} {
		sent := text
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			for ; text != ""; text = text[min(len(text), 1000):] {
				_, _ = io.WriteString(w, text[:min(len(text), 1000)])
				w.(http.Flusher).Flush()
			}
		})
		var out strings.Builder
		err := c.Tenant("acme").Export(t.Context(), &out)
		require.Equal(t, sent, out.String())
		if complete {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, client.ErrIncomplete, sent)
	}
}

// A connection that breaks off, a refusal and a full disk are told apart.
func TestExportErrors(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/tenants/busy/export" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, "{}\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	require.ErrorIs(t, c.Tenant("broken").Export(t.Context(), io.Discard), client.ErrIncomplete)
	require.ErrorAs(t, c.Tenant("busy").Export(t.Context(), io.Discard), new(*client.Error))
	full := errors.New("the disk is full")
	require.ErrorIs(t, c.Tenant("broken").Export(t.Context(), writer(func() error { return full })), full)
}

type writer func() error

func (w writer) Write([]byte) (int, error) { return 0, w() }
