package egress

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"

	"github.com/everpost/everpost/internal/programtest"
)

// answerCase is an answer, and what is understood of it.
type answerCase struct {
	text   string
	status int    // 0: it is no answer
	body   string // as it is stored
	kept   bool   // the connection may be kept
	err    string // the class of Response.Err; "" for none
	loose  bool   // curl takes more than the grammar allows
}

// answerCases are answers as real servers, proxies and scripts write them, well formed and not.
func answerCases() map[string]answerCase {
	const (
		start   = "HTTP/1.1 200 OK\r\n"
		length  = "Content-Length: 2\r\n"
		end     = "\r\n"
		chunks  = "Transfer-Encoding: chunked\r\n"
		chunked = "2\r\nok\r\n0\r\n\r\n"
	)
	kept := func(text string) answerCase { return answerCase{text: text, status: 200, body: "ok", kept: true} }
	read := func(text string) answerCase { return answerCase{text: text, status: 200, body: "ok"} }
	raw := func(text string) answerCase { return answerCase{text: text, status: 200, body: chunked} }
	none := func(text string) answerCase { return answerCase{text: text, err: "protocol_error"} }
	return map[string]answerCase{
		"length":              kept(start + length + end + "ok"),
		"chunks":              kept(start + chunks + end + chunked),
		"chunks, trailers":    kept(start + chunks + end + "2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"),
		"chunks, upper case":  kept(start + "TRANSFER-ENCODING: CHUNKED\r\n" + end + chunked),
		"line feeds alone":    kept("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
		"no reason":           kept("HTTP/1.1 200\r\n" + length + end + "ok"),
		"no reason, a blank":  kept("HTTP/1.1 200 \r\n" + length + end + "ok"),
		"lower case":          read("http/1.1 200 ok\r\n" + length + end + "ok"),
		"two blanks":          read("HTTP/1.1  200 OK\r\n" + length + end + "ok"),
		"tabs":                read("HTTP/1.1\t200\tOK\r\n" + length + end + "ok"),
		"reason in UTF-8":     kept("HTTP/1.1 200 Très bien\r\n" + length + end + "ok"),
		"NUL in the reason":   kept("HTTP/1.1 200 O\x00K\r\n" + length + end + "ok"),
		"value in UTF-8":      kept(start + "X-Place: Köln\r\n" + length + end + "ok"),
		"after 100":           kept("HTTP/1.1 100 Continue\r\n\r\n" + start + length + end + "ok"),
		"after 102, 103":      kept("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + start + length + end + "ok"),
		"after 100 with junk": read("HTTP/1.1 100 Continue\r\njunk\r\n\r\n" + start + length + end + "ok"),
		"204":                 {text: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, kept: true},
		"204 and length 0":    {text: "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", status: 204, kept: true},
		"204 and length 2":    {text: "HTTP/1.1 204 No Content\r\n" + length + end, status: 204},
		"204 and chunks":      {text: "HTTP/1.1 204 No Content\r\n" + chunks + end, status: 204},
		"empty":               {text: start + "Content-Length: 0\r\n\r\n", status: 200, kept: true},
		"many leading zeros":  kept(start + "Content-Length: 0000000000002\r\n" + end + "ok"),

		"HTTP/1.0":          read("HTTP/1.0 200 OK\r\n" + length + end + "ok"),
		"HTTP/1.0 kept":     read("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + length + end + "ok"),
		"HTTP/1":            read("HTTP/1 200 OK\r\n" + length + end + "ok"),
		"HTTP/2":            read("HTTP/2 200\r\n" + length + end + "ok"),
		"HTTP/2.0":          read("HTTP/2.0 200 OK\r\n" + length + end + "ok"),
		"HTTP/1.7":          read("HTTP/1.7 200 OK\r\n" + length + end + "ok"),
		"Connection: close": read(start + "Connection: keep-alive, Close\r\n" + length + end + "ok"),
		"until the end":     read(start + end + "ok"),
		"two line ends":     read("HTTP/1.1 200 OK\r\r\nContent-Length: 2\r\r\n\r\r\nok"),
		"CR in the reason":  read("HTTP/1.1 200\rOK\r\nX: a\rb\r\n" + length + end + "ok"),

		// Framing that is given twice, wrong, or contradictory.
		"length as a list":         read(start + "Content-Length: 2, 2\r\n" + end + "ok"),
		"length twice":             read(start + length + length + end + "ok"),
		"two lengths":              read(start + "Content-Length: 1\r\n" + length + end + "ok"),
		"two lengths, 0 first":     read(start + "Content-Length: 0\r\n" + length + end + "ok"),
		"negative length":          read(start + "Content-Length: -2\r\n" + end + "ok"),
		"length with a sign":       read(start + "Content-Length: +2\r\n" + end + "ok"),
		"no length in the length":  read(start + "Content-Length:\r\n" + end + "ok"),
		"length in words":          read(start + "Content-Length: two\r\n" + end + "ok"),
		"length in hex":            read(start + "Content-Length: 0x2\r\n" + end + "ok"),
		"length beyond 64 bits":    read(start + "Content-Length: 99999999999999999999\r\n" + end + "ok"),
		"length with a semicolon":  read(start + "Content-Length: 2;\r\n" + end + "ok"),
		"length with a fraction":   read(start + "Content-Length: 2.0\r\n" + end + "ok"),
		"length with blanks":       read(start + "Content-Length: 2 2\r\n" + end + "ok"),
		"blank before the colon":   read(start + "Content-Length : 2\r\n" + end + "ok"),
		"folded length":            read(start + "Content-Length:\r\n 2\r\n" + end + "ok"),
		"length before a blank":    read(start + " Content-Length: 2\r\n" + end + "ok"),
		"length in a bad line too": read(start + length + "Content-Length\x00: 7\r\n" + end + "ok"),
		"chunks twice":             raw(start + chunks + chunks + end + chunked),
		"chunks as a list":         raw(start + "Transfer-Encoding: chunked, chunked\r\n" + end + chunked),
		"chunks and length":        raw(start + chunks + length + end + chunked),
		"length and chunks":        raw(start + length + chunks + end + chunked),
		"chunks of HTTP/1.0":       raw("HTTP/1.0 200 OK\r\n" + chunks + end + chunked),
		"chunks with a blank":      raw(start + "Transfer-Encoding : chunked\r\n" + end + chunked),
		"chunks, quoted":           raw(start + "Transfer-Encoding: \"chunked\"\r\n" + end + chunked),
		"gzip, chunked":            raw(start + "Transfer-Encoding: gzip, chunked\r\n" + end + chunked),
		"identity":                 read(start + "Transfer-Encoding: identity\r\n" + end + "ok"),
		"identity and length":      read(start + "Transfer-Encoding: identity\r\n" + length + end + "ok"),
		"xchunked":                 read(start + "Transfer-Encoding: xchunked\r\n" + end + "ok"),
		"no encoding":              read(start + "Transfer-Encoding:\r\n" + end + "ok"),
		"length in a trailer":      read(start + chunks + end + "2\r\nok\r\n0\r\n" + length + "\r\n"),

		// Lines that cannot be parsed.
		"no colon":               read(start + length + "preload\r\n" + end + "ok"),
		"no colon, no length":    read(start + "preload\r\n" + end + "ok"),
		"escape in a value":      read(start + "X-A: b\x1b[0m\r\n" + length + end + "ok"),
		"NUL in a value":         read(start + "X-A: b\x00c\r\n" + length + end + "ok"),
		"blank before a colon":   read(start + "X-A : b\r\n" + length + end + "ok"),
		"blank in a name":        read(start + "X A: b\r\n" + length + end + "ok"),
		"no name":                read(start + ": b\r\n" + length + end + "ok"),
		"a warning of PHP":       read(start + "<br />\n<b>Warning</b>:  Undefined\n" + length + end + "ok"),
		"name in UTF-8":          read(start + "Xü: b\r\n" + length + end + "ok"),
		"name in brackets":       read(start + "X[a]: b\r\n" + length + end + "ok"),
		"folded":                 read(start + "X: b\r\n c\r\n\td\r\n" + length + end + "ok"),
		"folded first":           read(start + " X: b\r\n" + length + end + "ok"),
		"another status line":    read(start + start + length + end + "ok"),
		"a very long line":       read(start + "X-Long: " + strings.Repeat("y", 50_000) + "\r\n" + length + end + "ok"),
		"very many lines":        kept(start + strings.Repeat("x:\r\n", 10_000) + length + end + "ok"),
		"bad line in a trailer":  read(start + chunks + end + "2\r\nok\r\n0\r\njunk\r\n\r\n"),
		"410 and a bad line":     {text: "HTTP/1.1 410 Gone\r\npreload\r\n\r\n", status: 410},
		"503 and a bad line":     {text: "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\npreload\r\n\r\n", status: 503},
		"status beyond the list": {text: "HTTP/1.1 999 Odd\r\n" + length + end + "ok", status: 999, body: "ok", kept: true},

		// Heads that are not complete.
		"ends after the status":    {text: start, status: 200, err: "headers_incomplete"},
		"ends in a line":           {text: start + "Content-Le", status: 200, err: "headers_incomplete"},
		"ends after a line":        {text: start + length, status: 200, err: "headers_incomplete"},
		"too many headers":         {text: start + strings.Repeat("X: y\r\n", MaxHeaderBytes/6), status: 200, err: "headers_incomplete"},
		"a header without an end":  {text: start + strings.Repeat("X", MaxHeaderBytes), status: 200, err: "headers_incomplete"},
		"ends in the body":         {text: start + "Content-Length: 9\r\n\r\nok", status: 200, body: "ok", err: "unexpected_eof"},
		"ends in a chunk":          {text: start + chunks + end + "9\r\nok", status: 200, body: "ok", err: "unexpected_eof"},
		"ends before the trailers": {text: start + chunks + end + "2\r\nok\r\n0\r\n", status: 200, body: "ok", err: "unexpected_eof"},
		"bad chunk":                {text: start + chunks + end + "zz\r\n", status: 200, err: "protocol_error"},

		// No answers.
		"no line feed":             {text: "HTTP/1.1 200 OK", err: "unexpected_eof"},
		"nothing":                  {text: "", err: "unexpected_eof"},
		"1xx alone":                {text: "HTTP/1.1 103 Early Hints\r\n\r\n", err: "unexpected_eof"},
		"1xx without an end":       {text: "HTTP/1.1 103 Early Hints\r\nLink: ", err: "unexpected_eof"},
		"an empty line before":     none("\r\n" + start + length + end + "ok"),
		"a blank before":           none(" " + start + length + end + "ok"),
		"a line before":            none("X: y\r\n" + start + length + end + "ok"),
		"an empty line after 100":  none("HTTP/1.1 100 Continue\r\n\r\n\r\n" + start + length + end + "ok"),
		"four digits":              none("HTTP/1.1 2000 OK\r\n" + length + end + "ok"),
		"two digits":               none("HTTP/1.1 20 OK\r\n" + length + end + "ok"),
		"no digits":                none("HTTP/1.1 OK\r\n" + length + end + "ok"),
		"a sign":                   none("HTTP/1.1 +20 OK\r\n" + length + end + "ok"),
		"no blank after the code":  {text: "HTTP/1.1 200OK\r\n" + length + end + "ok", err: "protocol_error", loose: true},
		"no blank before the code": none("HTTP/1.1200 OK\r\n" + length + end + "ok"),
		"two digits of a version":  none("HTTP/1.10 200 OK\r\n" + length + end + "ok"),
		"no version":               none("HTTP/ 200 OK\r\n" + length + end + "ok"),
		"no slash":                 none("HTTP 200 OK\r\n" + length + end + "ok"),
		"no minor version":         none("HTTP/1. 200 OK\r\n" + length + end + "ok"),
		"ICY":                      none("ICY 200 OK\r\n" + length + end + "ok"),
		"SSH":                      none("SSH-2.0-OpenSSH_9.2\r\n"),
		"HTTP/0.9":                 none("<html>ok</html>\r\n"),
		"endless status line":      none("HTTP/1.1 200 " + strings.Repeat("x", MaxHeaderBytes)),
	}
}

// What a receiver's answer means is decided by its status line; what surrounds it decides what is
// stored, and whether the connection is kept. What is no answer of this request never becomes
// that of the next: the second request gets the honest answer, over either connection.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range answerCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int32
			url := "http://" + rawServer(t, func(conn *net.TCPConn, number int) {
				connections.Store(int32(number))
				br := bufio.NewReader(conn)
				if number == 1 && readRequest(br) {
					_, _ = io.WriteString(conn, c.text)
					if !c.kept {
						return
					}
				}
				for readRequest(br) {
					_, _ = io.WriteString(conn, honest)
				}
			})
			client := setup(t, Config{})
			request := Request{EndpointID: "ep_1", URL: url, Timeout: patience}
			r := client.Send(t.Context(), request)
			class, _, _ := strings.Cut(r.Err, ":")
			require.Equal(t, c.status, r.Answer.Status, r.Err)
			require.Equal(t, c.err, class, r.Err)
			require.Equal(t, c.body, string(r.Body))
			require.Equal(t, c.kept, client.pool.len() == 1)
			r = client.Send(t.Context(), request)
			requireFailure(t, r, retry.FailureNone, 200)
			require.Equal(t, "honest", string(r.Body))
			require.Equal(t, c.kept, connections.Load() == 1)
		})
	}
}

// The same answers of receivers that leave the connection open: nothing waits for more than the
// request's time, and a body whose end is in doubt for much less.
func TestAnswersOnOpenConnections(t *testing.T) {
	t.Parallel()
	for name, c := range answerCases() {
		waits := c.err == "unexpected_eof" || c.err == "headers_incomplete" || name == "until the end" // for what never comes
		if waits || c.kept {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := setup(t, Config{})
			r := client.Send(t.Context(), Request{EndpointID: "ep_1", URL: "http://" + rawServer(t, afterReading(func(conn *net.TCPConn) {
				_, _ = io.WriteString(conn, c.text)
				hold(conn)
			})), Timeout: patience})
			class, _, _ := strings.Cut(r.Err, ":")
			require.Equal(t, c.status, r.Answer.Status, r.Err)
			require.Equal(t, c.err, class, r.Err)
			require.Equal(t, c.body, string(r.Body))
			require.Less(t, r.Latency, patience/2)
			require.Zero(t, client.pool.len())
		})
	}
}

// What curl takes as an answer is an answer, with the same status.
func TestAnswersAsCurlReadsThem(t *testing.T) {
	t.Parallel()
	curl := programtest.Find(t, "curl", "curl")
	for name, c := range answerCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := "http://" + rawServer(t, afterReading(func(conn *net.TCPConn) { _, _ = io.WriteString(conn, c.text) }))
			// It fails after some of the statuses: for a body that it cannot read.
			out, _ := exec.CommandContext(t.Context(), curl, "-q", "--noproxy", "*", "-s", "-o", os.DevNull, "-w", "%{http_code}", "-m", "10",
				"-H", "Expect:", "-d", "{}", url).Output()
			status, err := strconv.Atoi(string(out))
			require.NoError(t, err, "curl's output: %q", out)
			if status < 200 || c.loose { // none, or an interim answer after which it gives up
				return
			}
			require.Equal(t, c.status, status)
		})
	}
}

// Lines that can be read count, whatever surrounds them, and lines that cannot are not stored.
func TestFieldsOfIrregularAnswers(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{}).Send(t.Context(), Request{URL: "http://" + answering(t, "HTTP/1.1 429 Slow down\r\njunk\r\n"+
		"Date: Fri, 07 Nov 2014 23:37:00 GMT\r\n"+strings.Repeat("X-Many: v\r\n", 300)+"X-Bad: a\x1b[0m\r\nX-Long: "+strings.Repeat("l", 9000)+"\r\n"+
		"Set-Cookie: session=s3cr3t\r\nX-Folded: a\r\n b\r\nRetry-After: 17\r\nX-RateLimit-Remaining: 0\r\nx-ratelimit-reset: 30\r\nRetry-After: 99\r\n")})
	requireFailure(t, r, retry.FailureHeadersIncomplete, 429)
	require.Equal(t, "headers_incomplete: the connection was closed before the answer was complete", r.Err)
	require.Equal(t, "17", r.Answer.RetryAfter)
	require.Equal(t, "Fri, 07 Nov 2014 23:37:00 GMT", r.Answer.Date)
	require.Equal(t, "0", r.Answer.RateLimitRemaining)
	require.Equal(t, "30", r.Answer.RateLimitReset)
	require.Len(t, r.Header["X-Many"], maxStoredLines-1, "the first lines are stored")
	require.NotContains(t, r.Header, "X-Bad")
	require.NotContains(t, r.Header, "X-Long")
	require.NotContains(t, r.Header, "Set-Cookie")

	r = setup(t, Config{}).Send(t.Context(), Request{URL: "http://" + answering(t, "HTTP/1.1 200 OK\r\nX-Folded: a\r\n  b\r\n\tc\r\n"+
		"X-Bad: \x00\r\nContent-Length: 0\r\n\r\n")})
	requireFailure(t, r, retry.FailureNone, 200)
	require.Equal(t, map[string][]string{"X-Folded": {"a b c"}, "Content-Length": {"0"}}, r.Header)
}

// A status counts although the rest of the head does not come, and nothing of it is waited for
// beyond the request's time.
func TestHeadThatHangs(t *testing.T) {
	t.Parallel()
	for text, status := range map[string]int{
		"HTTP/1.1 200 OK\r\n":                           200,
		"HTTP/1.1 200 OK\r\nX: y\r\nX-":                 200,
		"HTTP/1.1 410 Gone\n":                           410,
		"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n":       503,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204\r\n": 204,
	} {
		r := hanging(text)(t)
		requireFailure(t, r, retry.FailureHeadersIncomplete, status)
		require.Equal(t, "headers_incomplete: the deadline passed", r.Err)
		if status == 503 {
			require.Equal(t, "7", r.Answer.RetryAfter)
		}
	}
	for _, text := range []string{"HTTP/1.1 200 OK", "HTTP/1.1 100 Continue\r\n", "H"} {
		requireFailure(t, hanging(text)(t), retry.FailureTimeoutHeaders, 0)
	}
}

// A body whose end is in doubt is stored as it came, up to its bound.
func TestBodyInDoubt(t *testing.T) {
	t.Parallel()
	const start = "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n"
	for _, size := range []int{0, 2, MaxStoredBytes, MaxStoredBytes + 1, MaxBodyBytes + 1, 10 << 20} {
		r := setup(t, Config{}).Send(t.Context(), Request{URL: "http://" + answering(t, start+strings.Repeat("b", size)), Timeout: patience})
		requireFailure(t, r, retry.FailureNone, 200)
		require.Len(t, r.Body, min(size, MaxStoredBytes))
		require.Equal(t, size > MaxStoredBytes, r.Truncated)
	}
	r := over(patience, afterReading(func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, start+"ok")
		drip(conn, "x", rawTime/5)
	}))(t)
	requireFailure(t, r, retry.FailureNone, 200)
	require.Regexp(t, "^okx*$", string(r.Body))
	require.True(t, r.Truncated, "it may have gone on")
	require.Less(t, r.Latency, 10*rawTime)
}
