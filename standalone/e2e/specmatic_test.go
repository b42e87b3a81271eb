package e2e_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/openapitest"
)

// The tool makes requests of one operation for as long as it is let: until there are this
// many answers, or this time is over.
const (
	specmaticAnswers = 500
	specmaticTime    = 90 * time.Second
)

// A generator of others (tools/contract fetches it) makes requests from the document that the product serves. Its understanding of OpenAPI
// 3.1 has gaps, so this test judges by itself: no answer is a 5xx or violates the document.
func TestSpecmatic(t *testing.T) {
	t.Parallel()
	jar := os.Getenv("EVERPOST_TEST_SPECMATIC")
	if jar == "" {
		t.Skip("EVERPOST_TEST_SPECMATIC does not name specmatic.jar: make contract does")
	}
	in := ownInstance(t, nil)
	b := newBundle(t, in, in.client(), "acme")
	proxy := newFaultCounter(t, in.addr["api"])
	spec := filepath.Join(t.TempDir(), "openapi.yaml")
	require.NoError(t, os.WriteFile(spec, []byte(b.documentWithIDs()), 0o600))

	for _, o := range contract.document.Operations() {
		before := proxy.answers.Load()
		proxy.specmatic(t, jar, spec, in.key, o)
		t.Logf("%s: %d answers", o.ID, proxy.answers.Load()-before)
		require.Greater(t, proxy.answers.Load(), before, "no request was made to %s", o.ID)
		require.Empty(t, proxy.found(), o.ID)
	}
}

// documentWithIDs is the document that is served, in which the ids in paths are those of
// things that are there: made up ones would find nothing.
func (b *bundle) documentWithIDs() string {
	b.t.Helper()
	var e endpoint
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.t.Cleanup(receiver.Close)
	b.ask(http.StatusCreated, http.MethodPost, "/endpoints", fieldsOf{"url": receiver.URL}, &e)
	posted, d := b.postOne("order.paid", `{"order":17}`)
	var key, replay struct {
		ID string `json:"id"`
	}
	b.ask(http.StatusCreated, http.MethodPost, "/keys", fieldsOf{"scope": "ingest"}, &key)
	b.ask(http.StatusAccepted, http.MethodPost, "/replays", fieldsOf{"source": "dead_letters"}, &replay)
	a, err := b.client.call(contextFor(b.t, patience), http.MethodGet, "/openapi.yaml", nil)
	require.NoError(b.t, err)
	document := string(a.body)
	begin, end := strings.Index(document, "\n  parameters:\n"), strings.Index(document, "\n  requestBodies:\n")
	require.True(b.t, 0 < begin && begin < end)
	parameters := document[begin:end]
	for name, id := range map[string]string{
		"TenantID": b.tenant, "KeyID": key.ID, "EndpointID": e.ID, "EventID": posted.ID, "DeliveryID": d.ID, "ReplayID": replay.ID,
	} {
		reference := "{$ref: '#/components/schemas/" + name + "'}"
		require.Contains(b.t, parameters, reference)
		parameters = strings.ReplaceAll(parameters, reference, "{type: string, enum: ["+id+"]}")
	}
	return document[:begin] + parameters + document[end:]
}

// faultCounter passes requests on, holds the answers against the contract, and keeps
// what is wrong with them.
type faultCounter struct {
	url      string
	answers  atomic.Int64
	answered atomic.Value // func(), which counts

	mu     sync.Mutex
	faults []string
}

func newFaultCounter(t *testing.T, target string) *faultCounter {
	t.Helper()
	to, err := url.Parse(target)
	require.NoError(t, err)
	f := &faultCounter{}
	base := &http.Transport{MaxIdleConnsPerHost: 8}
	t.Cleanup(base.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: watched(base),
		ModifyResponse: func(r *http.Response) error {
			if count, ok := f.answered.Load().(func()); ok {
				count()
			}
			if r.StatusCode >= 500 {
				f.fault(r.Request.Method + " " + r.Request.URL.Path + ": " + r.Status)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // the caller is still there
				f.fault(err.Error())
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// specmatic lets the tool make requests of one operation.
func (f *faultCounter) specmatic(t *testing.T, jar, spec, key string, o openapitest.Operation) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), specmaticTime)
	defer cancel()
	enough := f.answers.Load() + specmaticAnswers
	f.answered.Store(func() {
		if f.answers.Add(1) == enough {
			cancel()
		}
	})
	command := exec.CommandContext(ctx, "java", "-Xmx1g", "-jar", jar, "test", spec, "--lenient", "--timeout=20", "--testBaseURL="+f.url,
		"--filter=METHOD='"+o.Method+"' && PATH='"+o.Path+"'")
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "SPECMATIC_GENERATIVE_TESTS=true", "key="+key) // the name of the security scheme
	command.Stdout, command.Stderr = io.Discard, io.Discard                           // gigabytes
	err := command.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed { // its own verdict, or the end of its time
		require.NoError(t, err)
	}
}

func (f *faultCounter) fault(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) < 20 {
		f.faults = append(f.faults, text)
	}
}

func (f *faultCounter) found() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults
}
