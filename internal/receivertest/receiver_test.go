package receivertest_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/receivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bundle struct {
	*receivertest.Receiver
	client *http.Client
}

func setup(t *testing.T) *bundle {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &bundle{Receiver: receivertest.New(t), client: &http.Client{Transport: transport}}
}

func (b *bundle) post(ctx context.Context, path, id, body string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL()+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("webhook-id", id)
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func TestRecordsWhatArrives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status, _, err := b.post(t.Context(), "/hook?x=1", "evt_1", `{"a":1}`)
	require.NoError(t, err)
	require.Equal(t, 200, status)

	requests := b.Requests()
	require.Len(t, requests, 1)
	require.Equal(t, 1, requests[0].Number)
	require.Equal(t, "POST", requests[0].Method)
	require.Equal(t, "/hook?x=1", requests[0].Path)
	require.Equal(t, "evt_1", requests[0].WebhookID())
	require.Equal(t, `{"a":1}`, string(requests[0].Body))
	require.WithinDuration(t, time.Now(), requests[0].ReceivedAt, time.Minute)
}

func TestScripts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Script("/hook", receivertest.Step{Status: 503, Header: map[string]string{"Retry-After": "1"}, Body: "busy"}, receivertest.Step{Status: 404})
	b.Script("evt_special", receivertest.Step{Status: 410})
	b.Default(receivertest.Step{Status: 202})
	for i, c := range []struct {
		path, id string
		status   int
		body     string
	}{
		{"/hook?ignored", "evt_1", 503, "busy"},
		{"/hook", "evt_special", 410, ""},
		{"/hook", "evt_special", 404, ""},
		{"/hook", "evt_1", 202, ""},
		{"/other", "evt_1", 202, ""},
	} {
		status, body, err := b.post(t.Context(), c.path, c.id, "")
		require.NoError(t, err, "request %d", i)
		require.Equal(t, c.status, status, "request %d", i)
		require.Equal(t, c.body, body, "request %d", i)
	}
	require.Equal(t, 5, b.Count())
}

func TestMisbehaviour(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Script("/drop", receivertest.Step{Drop: true})
	b.Script("/raw", receivertest.Step{Raw: "HTTP/1.1 299 Odd\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"})
	b.Script("/hang", receivertest.Step{Hang: true})
	b.Script("/delay", receivertest.Step{Delay: time.Millisecond, Status: 201})

	_, _, err := b.post(t.Context(), "/drop", "", "")
	require.ErrorIs(t, err, io.EOF)
	status, body, err := b.post(t.Context(), "/raw", "", "")
	require.NoError(t, err)
	require.Equal(t, 299, status)
	require.Equal(t, "ok", body)
	status, _, err = b.post(t.Context(), "/delay", "", "")
	require.NoError(t, err)
	require.Equal(t, 201, status)

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, err := b.post(ctx, "/hang", "", "")
		left <- err
	}()
	_, err = b.WaitFor(t.Context(), 4)
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
}

func TestHoldAndRelease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Hold()
	var senders sync.WaitGroup
	for i := range 3 {
		senders.Go(func() {
			status, _, err := b.post(t.Context(), "/", strconv.Itoa(i), "")
			if err != nil || status != 200 {
				t.Errorf("request %d: %d, %v", i, status, err)
			}
		})
	}
	require.NoError(t, b.WaitHeld(t.Context(), 3))
	require.Equal(t, 3, b.Count(), "recorded while held")
	b.Release()
	senders.Wait()
}

func TestStopEndsHeldRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Hold()
	left := make(chan error, 1)
	go func() {
		_, _, err := b.post(t.Context(), "/", "", "")
		left <- err
	}()
	require.NoError(t, b.WaitHeld(t.Context(), 1))
	b.Stop()
	require.Error(t, <-left)
}

func TestRestartKeepsAddressAndRecords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.post(t.Context(), "/", "evt_1", "")
	require.NoError(t, err)
	before := b.URL()
	b.Stop()
	_, _, err = b.post(t.Context(), "/", "evt_2", "")
	require.Error(t, err)
	require.NoError(t, b.Restart())
	require.Equal(t, before, b.URL())
	_, _, err = b.post(t.Context(), "/", "evt_3", "")
	require.NoError(t, err)
	require.Len(t, b.Requests(), 2)
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	go func() {
		for i := range 5 {
			_, _, _ = b.post(t.Context(), "/", "evt_"+strconv.Itoa(i), "")
		}
	}()
	requests, err := b.WaitUntil(t.Context(), func(all []receivertest.Request) bool {
		return len(all) > 3 && all[3].WebhookID() == "evt_3" // the next one may have arrived already
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(requests), 4)
	_, err = b.WaitFor(t.Context(), 5)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = b.WaitFor(ctx, 6)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "wait for 6 requests (5 arrived")
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	webhook, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	now := time.Now()
	signature, err := webhook.Sign("evt_1", now, []byte("{}"))
	require.NoError(t, err)
	request := receivertest.Request{Body: []byte("{}"), Header: http.Header{}}
	request.Header.Set("webhook-id", "evt_1")
	request.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	request.Header.Set("webhook-signature", signature)

	require.NoError(t, request.Verify(secret))
	require.ErrorIs(t, request.Verify("whsec_"+strings.Repeat("A", 32)), standardwebhooks.ErrNoMatchingSignature)
	require.EqualError(t, request.Verify("whsec_?"), "verify request: the secret is not base64")
	request.Body = []byte("{ }")
	require.ErrorIs(t, request.Verify(secret), standardwebhooks.ErrNoMatchingSignature)
}

func TestKeepBoundsTheRecord(t *testing.T) {
	t.Parallel()
	var seen []int
	b := setup(t)
	b.Receiver = receivertest.NewWith(t, receivertest.Options{
		Keep:      2,
		OnRequest: func(r receivertest.Request, _ receivertest.Step) { seen = append(seen, r.Number) },
	})
	for range 4 {
		_, _, err := b.post(t.Context(), "/", "", "")
		require.NoError(t, err)
	}
	require.Equal(t, 4, b.Count())
	require.Len(t, b.Requests(), 2)
	require.Equal(t, 3, b.Requests()[0].Number)
	require.Equal(t, []int{1, 2, 3, 4}, seen)
}
