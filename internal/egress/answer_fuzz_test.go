package egress

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever a receiver answers, what is kept of it is within its bounds, and of a status that there is.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 503 Later\r\nRetry-After: 10\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 \r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 101 Switching\r\n\r\n\x00\xff", "HTTP/1.0 99999 \r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: \xff\x00\r\n\r\n", "SSH-2.0-OpenSSH\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		in := &limitedReader{conn: bytes.NewReader(text), left: MaxHeaderBytes}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://receiver/hook", http.NoBody)
		require.NoError(t, err)
		head, err := readHead(bufio.NewReaderSize(in, 1<<10), in, req)
		if err != nil {
			return
		}
		response := answered(head)
		require.Less(t, response.Answer.Status, 1000)
		in.left = maxBodyWireBytes
		_, _ = readBody(head, &response)
		require.LessOrEqual(t, len(response.Body), MaxStoredBytes)
		size := 0
		for name, values := range storableHeader(head.Header) {
			size += fieldSize(name, values)
		}
		require.LessOrEqual(t, size, maxStoredHeaderBytes)
	})
}
