package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// Every body is read unchanged, for any size and segmentation, with known and unknown length.
func TestBodiesAreReadWhole(t *testing.T) {
	t.Parallel()
	connection := http.NewResponseController(httptest.NewRecorder())
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(1, 1000), rapid.IntRange(bodyStep-2, bodyStep+2), rapid.IntRange(3*bodyStep-2, 3*bodyStep+2)).Draw(t, "size")
		text := make([]byte, size)
		for i := range text {
			text[i] = byte(i * 31 / 7)
		}
		var source io.Reader = bytes.NewReader(text)
		switch rapid.IntRange(0, 3).Draw(t, "pieces") {
		case 0:
			source = iotest.HalfReader(source)
		case 1:
			source = iotest.DataErrReader(source)
		case 2:
			source = iotest.DataErrReader(iotest.HalfReader(source))
		}
		length := rapid.SampledFrom([]int64{int64(size), -1}).Draw(t, "length")
		budget := newBodyBudget(webhook.DefaultMaxPayload)
		reservation := &bodyReservation{budget: budget, tenant: "acme"}
		got, err := (&bodyReader{source: source, length: length, reservation: reservation, pace: usualPace(), connection: connection}).read()
		require.NoError(t, err)
		require.True(t, bytes.Equal(text, got))
		require.Equal(t, len(got), cap(got), "the buffer has the body's size")
		require.GreaterOrEqual(t, budget.held(), size)
		reservation.release()
		require.Zero(t, budget.held())
	})
}

func TestATruncatedBodyIsRefused(t *testing.T) {
	t.Parallel()
	connection := http.NewResponseController(httptest.NewRecorder())
	for _, size := range []int{0, 1, 500, bodyStep, bodyStep + 1, 2 * bodyStep} {
		for _, length := range []int{501, bodyStep + 2, 2*bodyStep + 1} {
			if size >= length {
				continue
			}
			reservation := &bodyReservation{budget: newBodyBudget(webhook.DefaultMaxPayload)}
			_, err := (&bodyReader{
				source: bytes.NewReader(make([]byte, size)), length: int64(length), reservation: reservation, pace: usualPace(), connection: connection,
			}).read()
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d of %d", size, length)
		}
	}
}

// served is a bundle's API behind a real listener.
type served struct {
	*bundle

	address string
}

func serveAPI(t *testing.T, pace bodyPace) *served {
	t.Helper()
	b := setup(t)
	b.server.bodies.pace = pace
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := b.server.HTTPServer(b.server.Handler())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return &served{b, l.Addr().String()}
}

// tenant creates a tenant with an ingest key.
func (s *served) tenant(id string) (key string) {
	k := webhook.Key{ID: webhook.NewKeyID(), TenantID: id, Scope: webhook.ScopeIngest, CreatedAt: testNow()}
	key, k.SHA256 = NewKey(k.ID)
	defer s.lock()()
	s.tenants[id] = webhook.Tenant{ID: id}
	s.memory.keys = append(s.memory.keys, k)
	return key
}

// send opens a connection and sends the head of a POST and a part of its body. A length of -1 uses
// chunked encoding.
func (s *served) send(t require.TestingT, path, key string, length int, body []byte) net.Conn {
	c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", s.address)
	require.NoError(t, err)
	head := "POST " + path + " HTTP/1.1\r\nHost: everpost\r\nContent-Type: application/json\r\n"
	if key != "" {
		head += "Authorization: Bearer " + key + "\r\n"
	}
	if length >= 0 {
		_, _ = io.WriteString(c, head+"Content-Length: "+strconv.Itoa(length)+"\r\n\r\n")
		_, _ = c.Write(body) // an error: the server has refused the request
		return c
	}
	_, _ = io.WriteString(c, head+"Transfer-Encoding: chunked\r\n\r\n")
	for piece := range slices.Chunk(body, 10_000) {
		_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n", len(piece), piece)
	}
	return c
}

// status waits for the response on a connection.
func status(t require.TestingT, c net.Conn) (int, *http.Response) {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	return r.StatusCode, r
}

// Of twenty unfinished batches of one key, two reach the tenant's limit and the others are refused
// immediately. The heap holds the reserved memory and no more.
func TestUnfinishedBatchesHoldABoundedAmountOfHeap(t *testing.T) { //nolint:paralleltest // it measures the whole heap
	s := serveAPI(t, bodyPace{grace: time.Minute, rate: bodyRate, pause: time.Minute, limit: time.Minute})
	body := bytes.Repeat([]byte(" "), minBatchBytes-1)
	before := heap()
	var connections []net.Conn
	for i, length := range []int{minBatchBytes, -1} {
		connections = append(connections, s.send(t, batchPath, s.keys["ingest"], length, body))
		require.Eventually(t, func() bool { return s.server.BodyBytes() == (i+1)*minBatchBytes }, 20*time.Second, time.Millisecond)
	}
	var mu sync.Mutex
	var senders sync.WaitGroup
	for i := range 18 {
		senders.Go(func() {
			c := s.send(t, batchPath, s.keys["ingest"], []int{minBatchBytes, -1}[i%2], body)
			code, r := status(t, c)
			require.Equal(t, http.StatusTooManyRequests, code)
			require.Equal(t, "1", r.Header.Get("Retry-After"))
			mu.Lock()
			defer mu.Unlock()
			connections = append(connections, c)
		})
	}
	senders.Wait()
	require.Equal(t, s.server.bodies.budget.tenantMax, s.server.BodyBytes())
	grown := int(heap()) - int(before)
	t.Logf("the heap has grown by %d KiB", grown>>10)
	require.Less(t, grown, s.server.bodies.budget.tenantMax+4<<20)
	runtime.KeepAlive(body)
	for _, c := range connections {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { return s.server.BodyBytes() == 0 }, 20*time.Second, time.Millisecond)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // the second run frees what a pool holds
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Eight tenants reach the limit for large bodies, each with unfinished batches that arrive slowly.
// The events of a ninth tenant get their 202 without delay.
func TestSlowBatchesDoNotDelayOtherTenants(t *testing.T) {
	t.Parallel()
	s := serveAPI(t, bodyPace{grace: time.Minute, rate: bodyRate, pause: time.Minute, limit: time.Minute}) // the usual pace would end them
	piece := bytes.Repeat([]byte(" "), 100_000)
	stop := make(chan struct{})
	var dripping sync.WaitGroup
	for i := range 8 {
		tenant := "dripping" + strconv.Itoa(i)
		key := s.tenant(tenant)
		for range 60 {
			c := s.send(t, "/v1/tenants/"+tenant+"/events/batch", key, []int{minBatchBytes, -1}[i%2], piece)
			dripping.Go(func() {
				defer c.Close()
				for tick := time.NewTicker(100 * time.Millisecond); ; { // more often, the two cores would be busy with that
					select {
					case <-stop:
						tick.Stop()
						return
					case <-tick.C:
						_, _ = io.WriteString(c, " ")
					}
				}
			})
		}
	}
	defer dripping.Wait()
	defer close(stop)
	const most = minProcessBodies / 4 * 3
	require.Eventually(t, func() bool { return s.server.BodyBytes() == most }, 10*time.Second, time.Millisecond)

	key := s.tenant("ninth")
	event := `{"type":"order.paid","payload":"` + strings.Repeat("x", 200_000) + `"}`
	var took []time.Duration
	for range 21 {
		start := time.Now()
		c := s.send(t, "/v1/tenants/ninth/events", key, len(event), []byte(event))
		code, _ := status(t, c)
		took = append(took, time.Since(start))
		require.Equal(t, http.StatusAccepted, code)
		require.NoError(t, c.Close())
	}
	slices.Sort(took)
	t.Logf("answered in %s, at most %s", took[len(took)/2], took[len(took)-1])
	require.Less(t, took[len(took)/4], 500*time.Millisecond,
		"were it blocked by the slow bodies, every answer would wait for them; a busy machine delays some")
	c := s.send(t, "/v1/tenants/ninth/events/batch", key, minBatchBytes, piece)
	code, r := status(t, c)
	require.Equal(t, http.StatusServiceUnavailable, code, "there is no room for another large one")
	require.Equal(t, "1", r.Header.Get("Retry-After"))
	require.NoError(t, c.Close())
}

// A body that is unfinished after the grace period must have kept to the minimum rate. One that is
// complete by then may have arrived at any rate.
func TestSlowBodiesAreEnded(t *testing.T) {
	t.Parallel()
	event := []byte(`{"type":"order.paid","payload":"` + strings.Repeat("x", 1000) + `"}`)
	path := "/v1/tenants/acme/events"
	slow := bodyPace{grace: 200 * time.Millisecond, rate: 1 << 30, pause: time.Minute, limit: time.Minute}
	fits := bodyPace{grace: 20 * time.Second, rate: 1 << 30, pause: time.Minute, limit: time.Minute}
	keepsUp := bodyPace{grace: time.Millisecond, rate: 10, pause: time.Minute, limit: time.Minute}
	endless := bodyPace{grace: time.Millisecond, rate: 1, pause: time.Minute, limit: 200 * time.Millisecond}
	stops := bodyPace{grace: time.Millisecond, rate: 10, pause: 200 * time.Millisecond, limit: time.Minute}
	for name, c := range map[string]struct {
		pace   bodyPace
		length int
		first  int // bytes that are sent at once
		rest   int // bytes that follow, one every few milliseconds
		want   int
	}{
		"too slow":           {slow, len(event), 40, 0, http.StatusRequestTimeout},
		"too slow in chunks": {slow, -1, 40, 0, http.StatusRequestTimeout},
		"drips":              {slow, len(event), 40, 400, http.StatusRequestTimeout},
		"stops at its end":   {stops, len(event), len(event) - 1, 0, http.StatusRequestTimeout},
		"nothing comes":      {slow, len(event), 0, 0, http.StatusRequestTimeout},
		"slow and small":     {fits, len(event), len(event) - 20, 20, http.StatusAccepted},
		"keeps up":           {keepsUp, len(event), len(event) - 20, 20, http.StatusAccepted},
		"takes too long":     {endless, len(event), len(event) - 1, 0, http.StatusRequestTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveAPI(t, c.pace)
			connection := s.send(t, path, s.keys["ingest"], c.length, event[:c.first])
			defer connection.Close()
			dripped := make(chan struct{})
			go func() {
				defer close(dripped)
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for i := range c.rest {
					<-tick.C
					if _, err := connection.Write(event[c.first+i : c.first+i+1]); err != nil {
						return
					}
				}
			}()
			code, r := status(t, connection)
			require.Equal(t, c.want, code)
			require.Equal(t, code == http.StatusRequestTimeout, r.Close)
			require.NoError(t, connection.Close())
			<-dripped
			require.Eventually(t, func() bool { return s.server.BodyBytes() == 0 }, 10*time.Second, time.Millisecond)
		})
	}
}

// A handler may run past the body's deadline: the deadline ends with the body.
func TestTheDeadlineOfABodyDoesNotCutItsHandler(t *testing.T) {
	t.Parallel()
	s := serveAPI(t, bodyPace{grace: 100 * time.Millisecond, rate: bodyRate, pause: time.Minute, limit: bodyTime})
	s.test = func(ctx context.Context, _ string, _ []byte) (webhook.Attempt, error) {
		select {
		case <-ctx.Done():
			return webhook.Attempt{}, ctx.Err()
		case <-time.After(400 * time.Millisecond):
			return webhook.Attempt{StartedAt: testNow()}, nil
		}
	}
	c := s.send(t, "/v1/tenants/acme/endpoints/"+s.endpoint(t)+"/test", s.keys["admin"], 2, []byte(`{}`))
	code, _ := status(t, c)
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, c.Close())
}

// A request without a valid key gets no reservation, and its body is not read.
func TestUnauthenticatedBodiesReserveNothing(t *testing.T) {
	t.Parallel()
	s := serveAPI(t, bodyPace{grace: 100 * time.Millisecond, rate: bodyRate, pause: time.Minute, limit: bodyTime})
	for _, key := range []string{"", "nonsense", s.tenant("acme")[:80]} {
		for _, length := range []int{1000, 100_000, minBatchBytes, -1} {
			for _, path := range []string{batchPath, "/elsewhere"} {
				c := s.send(t, path, key, length, []byte(" "))
				code, _ := status(t, c)
				require.Equal(t, map[bool]int{true: http.StatusUnauthorized, false: http.StatusNotFound}[path == batchPath], code)
				require.Zero(t, s.server.BodyBytes())
				require.NoError(t, c.Close())
			}
		}
	}
}

// The reservation is released however a request ends: answered, refused, disconnected, too slow, or
// with a panic.
func TestReservationsAreAlwaysReleased(t *testing.T) {
	t.Parallel()
	s := serveAPI(t, bodyPace{grace: 300 * time.Millisecond, rate: bodyRate, pause: time.Minute, limit: bodyTime})
	broken := func(with any) func() {
		return func() {
			defer s.lock()()
			s.panicWith = with
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var running sync.WaitGroup
	for i := range 300 {
		size := []int{0, 10, 5000, bodyStep, 3 * bodyStep, 300 << 10}[random.IntN(6)]
		body := []byte(`{"type":"order.paid","payload":"` + strings.Repeat("x", min(size, 200<<10)) + `"}`)
		length := []int{len(body), -1}[random.IntN(2)]
		sent := []int{len(body), random.IntN(len(body))}[random.IntN(2)]
		end := []byte{}
		if length < 0 && sent == len(body) {
			end = []byte("0\r\n\r\n")
		}
		leaves := random.IntN(3) == 0
		switch random.IntN(10) {
		case 0:
			broken("a panic")()
		case 1:
			broken(nil)()
		}
		key := s.keys[[]string{"ingest", "admin", "operator"}[random.IntN(3)]]
		running.Go(func() {
			c := s.send(t, "/v1/tenants/acme/events", key, length, body[:sent])
			defer c.Close()
			_, _ = c.Write(end)
			if leaves {
				return
			}
			code, _ := status(t, c)
			require.Contains(t, []int{202, 400, 408, 429, 500}, code, i)
		})
	}
	running.Wait()
	require.Eventually(t, func() bool { return s.server.BodyBytes() == 0 }, 10*time.Second, time.Millisecond)
	require.Zero(t, s.server.bodies.budget.large)
	require.Empty(t, s.server.bodies.budget.byTenant)
}

// Refused bodies are counted by cause, and the responses match the OpenAPI document.
func TestRefusedBodiesAreCounted(t *testing.T) {
	t.Parallel()
	const event = `{"type":"a","payload":1}`
	for cause, want := range map[string]int{
		BodyOverTenant: http.StatusTooManyRequests, BodyOverProcess: http.StatusServiceUnavailable, BodyTooSlow: http.StatusRequestTimeout,
	} {
		counted := refusals{}
		b := setup(t, func(c *Config) { c.Metrics = counted })
		budget := b.server.bodies.budget
		option := func(*http.Request) {}
		switch cause {
		case BodyOverTenant:
			require.NoError(t, (&bodyReservation{budget: budget, tenant: "acme"}).reserve(budget.tenantMax, false))
		case BodyOverProcess:
			require.NoError(t, (&bodyReservation{budget: budget}).reserve(budget.max, false))
		case BodyTooSlow:
			option = func(r *http.Request) { r.Body = io.NopCloser(iotest.ErrReader(os.ErrDeadlineExceeded)) }
		}
		a := b.ok(t, want, "ingest", "POST", "/v1/tenants/acme/events", event, option)
		require.Equal(t, refusals{"body " + cause: 1}, counted)
		require.Equal(t, "close", a.Header.Get("Connection"), "the rest of the body is not read")
		b.ok(t, http.StatusOK, "ingest", "GET", "/v1/tenants/acme/events", "")
		if cause == BodyOverTenant {
			b.ok(t, http.StatusCreated, "operator", "POST", "/v1/tenants/acme/keys", `{"scope":"ingest"}`) // an operator's key has no tenant limit
		}
	}
}

// The memory of an event does not belong to the step or batch in which it arrived.
func TestAPayloadKeepsNoMoreThanItsBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	b.ok(t, http.StatusAccepted, "ingest", "POST", "/v1/tenants/acme/events", `{"type":"a","payload":1}`, unsized)
	require.Less(t, cap(b.events[0].Payload), 1000)
}
