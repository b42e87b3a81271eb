package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/everpost/everpost/internal/receivertest"
)

// history is all events of the latest run of a workflow.
func history(ctx context.Context, t *testing.T, c client.Client, id string) []*historypb.HistoryEvent {
	t.Helper()
	var all []*historypb.HistoryEvent
	events := c.GetWorkflowHistory(ctx, id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		all = append(all, event)
	}
	return all
}

// What workflows keep is encrypted while that is switched on. A delivery that began before goes on, the key can be rotated
// while it waits, and the Web UI gets what is encrypted from the codec endpoint, for an operator's key.
func TestEncryptedHistories(t *testing.T) {
	t.Parallel()
	in := ownInstance(t, nil)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"retry_policy": patiently()})
	waiting := func() delivery {
		t.Helper()
		r.Script("/hook", receivertest.Step{Status: http.StatusServiceUnavailable})
		_, d := b.postOne("order.paid", `{}`)
		return b.waitState(d.ID, "retrying")
	}
	plain := waiting()
	const first, second = "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk=", "7Z0J3Qh4V0m5oS9yXnq2b8tKcRrW1uEfAaLlDdGgHhM="
	reopen := func(env settings) {
		t.Helper()
		require.NoError(t, in.stop())
		in.env = in.env.With(env)
		in.restart(t)
	}
	reopen(settings{"EVERPOST_ENCRYPT_HISTORIES": "true", "EVERPOST_KEK": first})
	sealed := waiting()
	reopen(settings{"EVERPOST_KEK": second, "EVERPOST_KEK_OLD": first})
	for _, d := range []delivery{plain, sealed} {
		b.command(http.StatusAccepted, d.ID, "retry", nil)
		b.waitState(d.ID, "delivered")
	}

	ctx := contextFor(t, patience)
	events := history(ctx, t, in.temporal(t), sealed.WorkflowID)
	input := events[0].GetWorkflowExecutionStartedEventAttributes().GetInput()
	require.Equal(t, "binary/encrypted", string(input.GetPayloads()[0].GetMetadata()["encoding"]))
	for _, event := range events {
		require.NotContains(t, string(must(protojson.Marshal(event))), `"json/plain"`)
	}

	ask := func(method, path, origin, key string, body []byte) (*http.Response, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, method, in.addr["admin"]+path, bytes.NewReader(body))
		require.NoError(t, err)
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		if key != "" {
			request.SetBasicAuth("", key)
		}
		got, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { _ = got.Body.Close() }()
		said, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		return got, string(said)
	}
	var admin struct {
		Secret string `json:"key"`
	}
	b.ask(http.StatusCreated, http.MethodPost, "/keys", fieldsOf{"name": "an admin", "scope": "admin"}, &admin)
	ui := in.addr["ui"]
	payloads := must(protojson.Marshal(input))
	for _, test := range []struct {
		method, path, origin, key string
		want                      int
	}{
		{http.MethodPost, "/codec/decode", ui, in.key, http.StatusOK},
		{http.MethodPost, "/codec/decode", "", in.key, http.StatusOK},
		{http.MethodPost, "/codec/decode", ui, "", http.StatusUnauthorized},
		{http.MethodPost, "/codec/decode", ui, admin.Secret, http.StatusForbidden},
		{http.MethodPost, "/codec/decode", "https://evil.example", in.key, http.StatusForbidden},
		{http.MethodOptions, "/codec/decode", ui, "", http.StatusNoContent},
		{http.MethodOptions, "/codec/decode", "https://evil.example", "", http.StatusForbidden},
		{http.MethodGet, "/codec/", "", in.key, http.StatusOK},
		{http.MethodGet, "/codec/", "", "", http.StatusUnauthorized},
	} {
		got, said := ask(test.method, test.path, test.origin, test.key, payloads)
		require.Equal(t, test.want, got.StatusCode, "%+v: %s", test, said)
		if test.origin == ui {
			require.Equal(t, ui, got.Header.Get("Access-Control-Allow-Origin"))
			require.Equal(t, "true", got.Header.Get("Access-Control-Allow-Credentials"))
		} else {
			require.Empty(t, got.Header.Get("Access-Control-Allow-Origin"))
		}
	}
	_, said := ask(http.MethodPost, "/codec/decode", ui, in.key, payloads)
	var decoded struct {
		Payloads []*commonpb.Payload `json:"payloads"`
	}
	require.NoError(t, json.Unmarshal([]byte(said), &decoded))
	require.Contains(t, string(decoded.Payloads[0].GetData()), sealed.ID)
	_, said = ask(http.MethodPost, "/codec/decode", ui, in.key, bytes.Repeat([]byte{' '}, 5<<20))
	require.Contains(t, said, "request body too large")
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}
