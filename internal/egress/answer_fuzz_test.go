package egress

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// readAll reads an answer as exchange does. kept reports that the connection would be kept, and
// size is then where the answer ends.
func readAll(text []byte) (status int, response Response, kept bool, size int) {
	from := bytes.NewReader(text)
	in := &limitedReader{conn: from, left: MaxHeaderBytes}
	br := bufio.NewReaderSize(in, 1<<10)
	head, err := readHead(br)
	if head == nil {
		return 0, Response{}, false, 0
	}
	response = head.response()
	if err != nil {
		return head.status, response, false, 0
	}
	in.left = maxBodyWireBytes
	whole, err := readBody(br, head, &response, MaxStoredBytes)
	return head.status, response, err == nil && whole && head.keeps(), len(text) - from.Len() - br.Buffered()
}

// requireSound checks what holds for every answer: what is kept of it is within its bounds; and a connection is only kept
// if net/http, too, reads the same answer, which ends at the same byte.
func requireSound(t require.TestingT, text []byte) {
	status, response, kept, size := readAll(text)
	require.Less(t, status, 1000)
	require.LessOrEqual(t, len(response.Body), MaxStoredBytes)
	bytesStored, lines := 0, 0
	for name, values := range response.Header {
		bytesStored += fieldSize(name, values)
		lines += len(values)
	}
	require.LessOrEqual(t, bytesStored, maxStoredHeaderBytes+maxTarget+len("Location: \r\n"), "where a redirect leads has room of its own")
	require.LessOrEqual(t, lines, maxStoredLines+1)

	from := bytes.NewReader(text)
	br := bufio.NewReader(from)
	head, err := http.ReadResponse(br, nil)
	for err == nil && head.StatusCode >= 100 && head.StatusCode <= 199 && head.StatusCode != http.StatusSwitchingProtocols {
		head, err = http.ReadResponse(br, nil)
	}
	if err == nil && !strings.ContainsAny(head.Status[:3], "+-") && len(text) <= MaxHeaderBytes {
		require.Equal(t, head.StatusCode, status, "net/http reads a status")
	}
	if !kept {
		return
	}
	require.NoError(t, err, "%q", text)
	defer head.Body.Close()
	body, err := io.ReadAll(head.Body)
	require.NoError(t, err, "%q", text)
	require.False(t, head.Close, "%q", text)
	require.Equal(t, head.StatusCode, status)
	require.True(t, bytes.HasPrefix(body, response.Body), "%q", text)
	require.Equal(t, len(text)-from.Len()-br.Buffered(), size, "%q", text)
}

func FuzzAnswer(f *testing.F) {
	for _, c := range answerCases() {
		if len(c.text) < 1000 {
			f.Add([]byte(c.text))
			f.Add([]byte(c.text + honest))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) { requireSound(t, text) })
}

// The same for answers made of parts that readers of HTTP are known to disagree about.
func TestAnswersMadeOfParts(t *testing.T) {
	t.Parallel()
	starts := []string{
		"HTTP/1.1 200 OK", "HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified", "HTTP/1.1 503 Busy", "HTTP/1.0 200 OK", "http/1.1  200",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", "HTTP/1.1 103 Hints\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK", "HTTP/1.1 101 Switching",
	}
	names := []string{
		"Content-Length", "content-length", "Transfer-Encoding", "transfer-encoding", "Connection", "X-A", "Content-Length ", " Content-Length",
		"Content_Length", "Transfer-Encoding\x00", "Trailer", "Content-Encoding", "",
	}
	values := []string{
		"0", "2", "5", "05", "2, 2", "+2", "-1", "2 ", "\t2", "chunked", "Chunked", "chunked, chunked", "identity", "gzip, chunked",
		"close", "keep-alive", "", "\x0b2", "2\r",
	}
	ends := []string{"\r\n", "\n", "\r\r\n", "\r\n ", "\r\n\t", "\r"}
	bodies := []string{
		"", "ok", "2\r\nok\r\n0\r\n\r\n", "2;x=y\r\nok\r\n0\r\nX: y\r\n\r\n", "2\nok\n0\n\n", "0\r\n\r\n", "2\r\nok\r\n00\r\n\r\n", "\r\n",
		"2\r\nok\r\n0\r\nbad\r\n\r\n",
	}
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		text.WriteString(rapid.SampledFrom(starts).Draw(t, "start") + rapid.SampledFrom(ends[:3]).Draw(t, "end"))
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			text.WriteString(rapid.SampledFrom(names).Draw(t, "name") + rapid.SampledFrom([]string{": ", ":", " : ", ""}).Draw(t, "colon") +
				rapid.SampledFrom(values).Draw(t, "value") + rapid.SampledFrom(ends).Draw(t, "end"))
		}
		text.WriteString(rapid.SampledFrom(ends[:3]).Draw(t, "end") + rapid.SampledFrom(bodies).Draw(t, "body") +
			rapid.SampledFrom([]string{"", honest}).Draw(t, "next"))
		requireSound(t, []byte(text.String()))
	})
}
