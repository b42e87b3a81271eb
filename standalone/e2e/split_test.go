package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/processtest"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
)

// splitWorkers is how many workers the split installation has.
const splitWorkers = 2

// buildCluster makes everpost-cluster, unless EVERPOST_TEST_CLUSTER_BINARY names one.
func buildCluster(into string) (string, error) {
	if given := os.Getenv("EVERPOST_TEST_CLUSTER_BINARY"); given != "" {
		return given, nil
	}
	out := filepath.Join(into, "everpost-cluster")
	command := exec.Command("go", "build", "-C", filepath.Join("..", ".."), "-buildvcs=false", "-o", out, "./cmd/everpost")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	return out, command.Run()
}

// clusterSettings are those of a process of everpost-cluster that sends to this machine.
func clusterSettings(database, temporal, namespace string) settings {
	return settings{
		"EVERPOST_DATABASE_URL": database, "TEMPORAL_ADDRESS": temporal, "TEMPORAL_NAMESPACE": namespace,
		"EVERPOST_KEK": "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk=", "EVERPOST_OPERATOR_KEY": "the-operator-of-a-cluster-in-a-test",
		"EVERPOST_ADMIN_LISTEN": "127.0.0.1:0",
		"EVERPOST_ALLOW_HTTP":   "true", "EVERPOST_ALLOWED_CIDRS": "127.0.0.0/8", "EVERPOST_EXTRA_PORTS": "any",
	}
}

// split is an installation of several processes of everpost-cluster on one PostgreSQL and one Temporal, the
// shape for more than one machine: APIs and workers, or processes that are both.
type split struct {
	t       *testing.T
	binary  string
	env     settings
	log     *os.File
	url     string // of the database
	apis    []*member
	workers []*member
	all     []*member // each once
	turn    atomic.Uint64
}

// member is one process, which may live several times.
type member struct {
	s       *split
	command string // api, worker or serve
	env     settings
	process *process
	addr    atomic.Pointer[map[string]string]
}

func newSplit(t *testing.T, temporal, namespace string, both bool) *split {
	t.Helper()
	in := ownHome(t) // for its place among those that run at a time, its directory and its log
	database, err := localpg.Start(t.Context(), localpg.Options{Dir: filepath.Join(in.home, "database"), Unsafe: true})
	require.NoError(t, err)
	cluster, err := buildCluster(in.home)
	require.NoError(t, err)
	s := &split{t: t, binary: cluster, log: in.log, url: database.URL(localpg.Database)}
	t.Cleanup(func() {
		for _, m := range s.all {
			if m.process != nil && m.process.Running() {
				if err := m.process.Terminate(); err != nil {
					t.Errorf("stop everpost %s: %v", m.command, err)
				}
			}
		}
		if err := database.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.env = clusterSettings(s.url, temporal, namespace)
	f, err := processtest.Run(contextFor(t, startPatience), s.binary, s.env, "migrate")
	require.NoError(t, err)
	require.Zero(t, f.Code, f.Stderr)
	of := func(command string, env settings) (members []*member) {
		for range splitWorkers {
			members = append(members, &member{s: s, command: command, env: env})
		}
		return members
	}
	listening := settings{"EVERPOST_LISTEN": "127.0.0.1:0"}
	if both {
		s.all = of("serve", s.env.With(listening))
		s.apis, s.workers = s.all, s.all
	} else {
		s.apis, s.workers = of("api", s.env.With(listening)), of("worker", s.env)
		s.all = slices.Concat(s.apis, s.workers)
	}
	for _, m := range s.all {
		m.launch()
	}
	for _, m := range s.all {
		m.waitReady()
	}
	return s
}

func (m *member) start() {
	m.launch()
	m.waitReady()
}

func (m *member) launch() {
	m.s.t.Helper()
	var err error
	m.process, err = processtest.Launch(m.s.binary, m.env, m.s.log, m.command)
	require.NoError(m.s.t, err)
}

func (m *member) waitReady() {
	m.s.t.Helper()
	addr, err := m.process.Ready(contextFor(m.s.t, startPatience))
	require.NoError(m.s.t, err)
	m.addr.Store(&addr)
}

// RoundTrip is a load balancer before the APIs that knows nothing of their health.
func (s *split) RoundTrip(request *http.Request) (*http.Response, error) {
	m := s.apis[s.turn.Add(1)%uint64(len(s.apis))]
	target, err := url.Parse((*m.addr.Load())["api"])
	if err != nil {
		return nil, err
	}
	request = request.Clone(request.Context())
	request.URL.Host = target.Host
	return splitTransport.RoundTrip(request)
}

var splitTransport = &http.Transport{MaxIdleConnsPerHost: 64}

// recorded are the events of which an attempt is on record, with how many.
func (s *split) recorded() map[string]int {
	s.t.Helper()
	ctx := contextFor(s.t, patience)
	conn, err := pgx.Connect(ctx, s.url)
	require.NoError(s.t, err)
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `select d.event_id, count(*) from attempts a join deliveries d on d.id = a.delivery_id group by d.event_id`)
	require.NoError(s.t, err)
	all := map[string]int{}
	var (
		id [16]byte
		n  int
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		all[webhook.EventID(id).String()] = n
		return nil
	})
	require.NoError(s.t, err)
	return all
}

// forwarded is how many deliveries the processes have forwarded to others that took them.
func (s *split) forwarded() int {
	return s.sum(`everpost_deliveries_forwarded_total{result="accepted"} `)
}

// permitsAsked is how often the processes have asked the owner of another lane whether a request may be sent.
func (s *split) permitsAsked() int { return s.sum("everpost_lane_permits_asked_total ") }

// sum is that of a metric of all processes; series is its line up to the value.
func (s *split) sum(series string) (n int) {
	s.t.Helper()
	for _, m := range s.all {
		admin := &apiClient{base: (*m.addr.Load())["admin"], http: http.DefaultClient}
		answer, err := admin.call(contextFor(s.t, patience), http.MethodGet, "/metrics", nil)
		require.NoError(s.t, err)
		for line := range strings.Lines(string(answer.body)) {
			if value, is := strings.CutPrefix(strings.TrimSpace(line), series); is {
				counted, err := strconv.ParseFloat(value, 64)
				require.NoError(s.t, err)
				n += int(counted)
			}
		}
	}
	return n
}

// kill is kill -9 of one process. It returns when that happened, and what was recorded then.
func (m *member) kill() crash {
	m.s.t.Helper()
	require.True(m.s.t, m.process.Running(), "%s has ended by itself", m.command)
	m.process.Kill()
	return crash{at: time.Now(), worker: m.command != "api", recorded: m.s.recorded()}
}

// crash is one kill -9.
type crash struct {
	at       time.Time
	worker   bool
	recorded map[string]int
}

// underWay says that an event had been sent for the first time when the process was killed and
// that the store did not have its outcome. What the dead one had written to its socket
// reaches the receiver a moment later.
func (c crash) underWay(event string, requests []receivertest.Request) bool {
	const inTheSocket = time.Second
	return c.worker && c.recorded[event] == 0 && requests[0].ReceivedAt.Before(c.at.Add(inTheSocket))
}

// burst posts n events of a type at once and returns their ids.
func (b *bundle) burst(kind string, n int) []string {
	b.t.Helper()
	events := make([]fieldsOf, n)
	for i := range events {
		events[i] = fieldsOf{"type": kind, "payload": i, "external_id": fmt.Sprintf("%s-%d-%d", kind, time.Now().UnixNano(), i)}
	}
	var answer batch
	eventually(contextFor(b.t, patience), b.t, func() string { // one of the APIs may just be dead
		got, err := b.client.call(b.t.Context(), http.MethodPost, b.path("/events/batch"), fieldsOf{"events": events})
		if err != nil {
			return err.Error()
		}
		if got.status != http.StatusAccepted {
			return fmt.Sprintf("%d: %s", got.status, got.body)
		}
		require.NoError(b.t, got.into(&answer))
		return ""
	})
	require.Len(b.t, answer.Events, n)
	ids := make([]string, n)
	for i, e := range answer.Events {
		ids[i] = e.ID
	}
	return ids
}

// most is how many requests came within any stretch of the time at most.
func most(requests []receivertest.Request, within time.Duration) int {
	most, from := 0, 0
	for to := range requests {
		for requests[to].ReceivedAt.Sub(requests[from].ReceivedAt) >= within {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// Two APIs and two workers as processes of their own.
func TestSplitInstallation(t *testing.T) {
	t.Parallel()
	testSplit(t, false)
}

// Two processes that are both. Each forwards what the other one admits.
func TestTwoServe(t *testing.T) {
	t.Parallel()
	testSplit(t, true)
}

// requireFewQuestions checks that new deliveries to a receiver that answers are sent by the process that admits them: without a question to another
// one. Retries ask where their workflow runs in another process: it says how many did.
func (s *split) requireFewQuestions(b *bundle) {
	s.t.Helper()
	const (
		calls, each = 10, 20
		retried     = 50
	)
	plain, posted := newReceiver(s.t), 0
	b.endpoint(plain, "/plain", fieldsOf{"event_types": []string{"stream.event"}})
	for s.forwarded() == 0 { // a process that has just begun does not know the owners yet
		b.burst("stream.event", 1)
		posted++
	}
	before, asked, without := s.forwarded(), s.permitsAsked(), 0
	for range calls {
		questions := s.permitsAsked()
		b.burst("stream.event", each)
		posted += each
		_, err := plain.WaitFor(contextFor(s.t, patience), posted)
		require.NoError(s.t, err)
		if s.permitsAsked() == questions {
			without++
		}
	}
	s.t.Logf("%d new deliveries: %d were forwarded, %d questions", calls*each, s.forwarded()-before, s.permitsAsked()-asked)
	require.GreaterOrEqual(s.t, without, calls/2, "calls without a question: on a busy machine, some are forwarded too late")
	asked = s.permitsAsked()

	failing := newReceiver(s.t)
	failing.Default(receivertest.Step{Status: http.StatusServiceUnavailable})
	b.endpoint(failing, "/failing", fieldsOf{
		"event_types": []string{"a.failing"}, "auto_disable": false, "circuit_breaker": fieldsOf{"enabled": false},
		"retry_policy": fieldsOf{"strategy": "fixed", "base": "1s", "jitter": "none", "max_attempts": 3},
	})
	b.burst("a.failing", retried)
	_, err := failing.WaitFor(contextFor(s.t, patience), 3*retried)
	require.NoError(s.t, err)
	s.t.Logf("%d retries: %d questions", 2*retried, s.permitsAsked()-asked)
}

// testSplit kills workers and an API under load, and nothing is lost: what was acknowledged arrives, the store
// says of each delivery what its receiver saw, and only what a dead worker had under way is sent twice. A cap and
// a rate hold over all workers.
func testSplit(t *testing.T, both bool) {
	t.Helper()
	const (
		maxInFlight = 3
		perSecond   = 20
		stretch     = 3 * time.Second
	)
	engine, namespace := sharedTemporal(t), fmt.Sprintf("split-%t-", both)+time.Now().Format("150405.000000")
	makeNamespace(contextFor(t, patience), t, engine, namespace)
	begun := time.Now()
	s := newSplit(t, engine, namespace, both)
	t.Logf("%d processes run after %.1f s", len(s.all), time.Since(begun).Seconds())
	api := &apiClient{
		base: "http://everpost.test", key: s.env["EVERPOST_OPERATOR_KEY"], http: &http.Client{Transport: watched(s), Timeout: 30 * time.Second},
	}
	s.requireFewQuestions(newBundle(t, nil, api, "counted"))
	b := newBundle(t, nil, api, "acme")
	plain, capped, rated := newReceiver(t), newReceiver(t), newReceiver(t)
	plain.Default(receivertest.Step{Delay: 20 * time.Millisecond})
	capped.Default(receivertest.Step{Delay: 50 * time.Millisecond})
	// What a dead worker has claimed is another's after the timeout and 5 s.
	only := func(kind string, further fieldsOf) fieldsOf {
		fields := fieldsOf{"event_types": []string{kind}, "timeout": "2s"}
		maps.Copy(fields, further)
		return fields
	}
	b.endpoint(plain, "/plain", only("stream.event", nil))
	b.endpoint(capped, "/capped", only("a.capped", fieldsOf{"max_in_flight": maxInFlight}))
	b.endpoint(rated, "/rated", only("a.rated", fieldsOf{"rate_limit_per_second": perSecond}))

	var (
		acked   []string
		crashes []crash
	)
	load := b.stream("s")
	again := func() {
		acked = append(append(acked, b.burst("a.capped", 40)...), b.burst("a.rated", 40)...)
		load.waitMore(t, 30)
		_, err := plain.WaitFor(contextFor(t, patience), plain.Count()+20)
		require.NoError(t, err, "it goes on with what is left")
	}
	again()
	crashes = append(crashes, s.workers[0].kill())
	again()
	s.workers[0].start()
	crashes = append(crashes, s.apis[0].kill())
	again()
	s.apis[0].start()
	crashes = append(crashes, s.workers[1].kill())
	again()
	s.workers[1].start()
	again()
	acked = append(acked, load.end(t)...)
	require.Positive(t, s.forwarded())
	underLoad := time.Since(begun)
	_, refused, broken := load.count()
	require.Positive(t, broken, "callers noticed the kill of an API")

	ctx := contextFor(t, longRecovery)
	eventually(ctx, t, func() string {
		for _, d := range b.listDeliveries(url.Values{"state": {"pending", "retrying", "held"}}) {
			return fmt.Sprintf("delivery %s of %s is %s after %d attempts (last error %s)", d.ID, d.EventID, d.State, d.Attempts, text(d.LastError))
		}
		return ""
	})
	arrived, twice, excused := map[string][]receivertest.Request{}, 0, map[int]int{}
	for _, r := range []*receiver{plain, capped, rated} {
		for _, request := range r.Requests() {
			arrived[request.WebhookID()] = append(arrived[request.WebhookID()], request)
		}
	}
	recorded, deliveries := s.recorded(), b.listDeliveries(url.Values{})
	states := map[string]delivery{}
	for _, d := range deliveries {
		states[d.EventID] = d
	}
	require.Len(t, states, len(deliveries))
	for _, id := range acked {
		require.Equal(t, "delivered", states[id].State, "event %s was acknowledged", id)
	}
	require.Len(t, states, len(acked), "a post that is repeated makes no second event")
	for id, d := range states {
		requests := arrived[id]
		require.NotEmpty(t, requests, "event %s is said to be delivered and never arrived", id)
		require.Equal(t, d.Attempts, recorded[id], "event %s", id)
		if len(requests) == 1 && recorded[id] == 1 {
			continue
		}
		twice += len(requests) - 1
		k := slices.IndexFunc(crashes, func(c crash) bool { return c.underWay(id, requests) })
		require.GreaterOrEqual(t, k, 0, "event %s was sent %d times (%d on record), and no worker died meanwhile: %s",
			id, len(requests), recorded[id], times(requests, crashes))
		require.Equal(t, 1, recorded[id], "event %s was sent %d times", id, len(requests))
		excused[k]++
	}
	require.Len(t, arrived, len(states), "what arrived was acknowledged, or its post repeated")

	require.LessOrEqual(t, capped.Most(), maxInFlight)
	seen := most(rated.Requests(), stretch)
	require.LessOrEqual(t, float64(seen), perSecond*(stretch+1400*time.Millisecond).Seconds()+1)
	t.Logf("%d events acknowledged over the kills of two workers and an API; %d posts without an answer, %d refused; "+
		"%d deliveries sent twice, by kill: %v; %d questions to owners; max_in_flight %d seen as %d; %d/s seen as %.1f/s over %s; "+
		"%.0f s under load, %.0f s in all",
		len(acked), broken, refused, twice, excused, s.permitsAsked(), maxInFlight, capped.Most(), perSecond, float64(seen)/stretch.Seconds(), stretch,
		underLoad.Seconds(), time.Since(begun).Seconds())
}

// times tells when requests came, and when processes were killed.
func times(requests []receivertest.Request, crashes []crash) string {
	var b strings.Builder
	for _, r := range requests {
		fmt.Fprintf(&b, "request %s; ", r.ReceivedAt.Format("04:05.000"))
	}
	for _, c := range crashes {
		fmt.Fprintf(&b, "kill %s (worker %t); ", c.at.Format("04:05.000"), c.worker)
	}
	return b.String()
}
