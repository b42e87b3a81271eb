package fleet

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"net"
	"net/rpc"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// receivedEvents are what processes were forwarded, by their ids.
type receivedEvents struct {
	mu     sync.Mutex
	events map[string][]webhook.Accepted
}

func (r *receivedEvents) add(to string, event webhook.Accepted) []webhook.DeliveryID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[to] = append(r.events[to], event)
	return nil
}

func (r *receivedEvents) of(to string) []webhook.Accepted {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events[to])
}

// outcomes collects what became of forwarded deliveries.
type outcomes struct {
	mu  sync.Mutex
	all map[webhook.DeliveryID]webhook.ForwardResult
}

func (o *outcomes) done(t *testing.T) func(webhook.Start, webhook.ForwardResult) {
	t.Helper()
	return func(start webhook.Start, result webhook.ForwardResult) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if _, twice := o.all[start.DeliveryID]; twice {
			t.Error("done was called twice")
		}
		o.all[start.DeliveryID] = result
	}
}

// wait waits until all n deliveries have an outcome.
func (o *outcomes) wait(t *testing.T, n int) map[webhook.DeliveryID]webhook.ForwardResult {
	t.Helper()
	var all map[webhook.DeliveryID]webhook.ForwardResult
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		all = maps.Clone(o.all)
		return len(all) == n
	}, 10*time.Second, 5*time.Millisecond)
	return all
}

func newOutcomes() *outcomes { return &outcomes{all: map[webhook.DeliveryID]webhook.ForwardResult{}} }

func startTo(endpoint webhook.EndpointID) webhook.Start {
	event := webhook.NewEventID()
	return webhook.Start{
		Ref: webhook.Ref{DeliveryID: webhook.DeliveryIDOf(event, endpoint), EventID: event, EndpointID: endpoint, TenantID: "acme", EventType: "order.paid"},
		Run: 1, CreatedAt: time.Now().UTC().Truncate(time.Microsecond), ReceivedAt: time.Now(), GiveUpAt: time.Now().UTC().Add(time.Hour).Round(0),
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}

func eventTo(endpoints ...webhook.EndpointID) webhook.Accepted {
	payload := []byte(`{"id":1}`)
	event := webhook.Accepted{
		Event: webhook.Event{ID: webhook.NewEventID()}, Payload: payload, SHA256: sha256.Sum256(payload), Headers: map[string]string{"X-Region": "eu"},
	}
	for _, endpoint := range endpoints {
		event.Deliveries = append(event.Deliveries, startTo(endpoint))
	}
	return event
}

// joinAPI starts a process that owns no lanes, and waits until it is connected to the others.
func (s *table) joinAPI(t *testing.T, others ...*Fleet) *Fleet {
	t.Helper()
	f, err := New(Config{Store: seenBy{s, "api"}, ID: "api", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, f.Start(t.Context()))
	t.Cleanup(func() { f.Stop(context.WithoutCancel(t.Context())) })
	waitConnected(t, f, len(others))
	return f
}

// waitConnected waits until a process can forward to n others.
func waitConnected(t *testing.T, f *Fleet, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		connected := 0
		for _, p := range f.otherProcesses() {
			p.mu.Lock()
			if p.answers {
				connected++
			}
			p.mu.Unlock()
		}
		return connected == n
	}, 10*time.Second, 5*time.Millisecond)
}

func TestForward(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	received := &receivedEvents{events: map[string][]webhook.Accepted{}}
	s.setForwarded(received.add)
	api := s.joinAPI(t, a, b)
	require.Equal(t, 2, api.Processes())
	require.Equal(t, 2, a.Processes(), "an API shares no limits")

	event := eventTo(endpointOf(t, s, a), endpointOf(t, s, b), endpointOf(t, s, b))
	out := newOutcomes()
	api.Forward(event, out.done(t))
	for _, result := range out.wait(t, 3) {
		require.Equal(t, webhook.ForwardAccepted, result)
	}
	for i := range event.Deliveries {
		event.Deliveries[i].ReceivedAt = event.Deliveries[i].ReceivedAt.Round(0).UTC() // it means nothing in another process
	}
	for id, deliveries := range map[string][]webhook.Start{"a": event.Deliveries[:1], "b": event.Deliveries[1:]} {
		got := received.of(id)
		require.Len(t, got, 1)
		for i := range got[0].Deliveries {
			got[0].Deliveries[i].ReceivedAt = got[0].Deliveries[i].ReceivedAt.UTC()
		}
		require.Equal(t, webhook.Accepted{Deliveries: deliveries, Payload: event.Payload, SHA256: event.SHA256, Headers: event.Headers}, got[0])
	}
}

// What comes while a message is under way is in the next one. It is bounded.
func TestForwardsAreBounded(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	received := &receivedEvents{events: map[string][]webhook.Accepted{}}
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	s.setForwarded(func(to string, event webhook.Accepted) []webhook.DeliveryID {
		select {
		case begun <- struct{}{}:
		default:
		}
		<-goOn
		return received.add(to, event)
	})
	answer := sync.OnceFunc(func() { close(goOn) })
	defer answer()
	api := s.joinAPI(t, a, b)
	endpoint := endpointOf(t, s, a)
	large := func() webhook.Accepted {
		event := eventTo(endpoint)
		event.Payload, event.Headers = make([]byte, webhook.DefaultMaxPayload), nil
		return event
	}
	first, out := newOutcomes(), newOutcomes()
	api.Forward(large(), first.done(t))
	await(t, begun)
	p, _ := api.owner(endpoint)
	p.mu.Lock()
	p.sentAt = time.Now().Add(time.Hour) // however slow this test is
	p.mu.Unlock()
	fit := maxForwardingBytes / webhook.DefaultMaxPayload
	for range fit + 3 {
		api.Forward(large(), out.done(t))
	}
	refused := out.wait(t, 3)
	for _, result := range refused {
		require.Equal(t, webhook.ForwardRefused, result, "there is no room for these")
	}
	batch, client := p.nextForwards()
	require.Len(t, batch, maxForwardedBytes/webhook.DefaultMaxPayload)
	require.NotNil(t, client)
	for i := range batch {
		batch[i].finish(webhook.ForwardAccepted, nil)
	}
	answer()
	accepted := len(first.wait(t, 1))
	for _, result := range out.wait(t, fit+3) {
		if result == webhook.ForwardAccepted { // all, unless a message takes longer than forwardPatience
			accepted++
		}
	}
	require.Len(t, received.of("a"), accepted-len(batch))
}

func TestForwardsThatAreRefused(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	api := s.joinAPI(t, a, b)
	event := eventTo(endpointOf(t, s, a), endpointOf(t, s, a))
	yes, no := event.Deliveries[0].DeliveryID, event.Deliveries[1].DeliveryID
	s.setForwarded(func(string, webhook.Accepted) []webhook.DeliveryID { return []webhook.DeliveryID{no} })
	out := newOutcomes()
	api.Forward(event, out.done(t))
	require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{yes: webhook.ForwardAccepted, no: webhook.ForwardRefused}, out.wait(t, 2),
		"the owner does not start it")

	s.setForwarded(func(string, webhook.Accepted) []webhook.DeliveryID { return nil })
	reply := &ForwardReply{}
	require.NoError(t, (&apiService{NewServer(b, nil, startsOf{s, "b"})}).Forward(&ForwardArgs{[]webhook.Accepted{event}}, reply))
	require.ElementsMatch(t, []webhook.DeliveryID{yes, no}, reply.Refused, "it is not the owner")

	refusedAtOnce := func(why string) {
		t.Helper()
		out := newOutcomes()
		api.Forward(event, out.done(t))
		require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{yes: webhook.ForwardRefused, no: webhook.ForwardRefused}, out.all, why)
	}
	p, _ := api.owner(event.Deliveries[0].EndpointID)
	require.NotNil(t, p)
	p.mu.Lock()
	p.answers = false
	p.mu.Unlock()
	refusedAtOnce("a connection that has not answered may be refused")
	api.mu.Lock()
	api.lanes[webhook.LaneOf(event.Deliveries[0].EndpointID)].owner = ""
	api.mu.Unlock()
	refusedAtOnce("the lane has no owner")
	api.end()
	refusedAtOnce("this process stops")
}

// What a process that stops has refused once is not forwarded to it again: its connection may be closed before it answers.
func TestForwardToAProcessThatStops(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	api := s.joinAPI(t, a, b)
	messages := 0
	s.setForwarded(func(_ string, event webhook.Accepted) (refused []webhook.DeliveryID) {
		messages++
		for _, start := range event.Deliveries {
			refused = append(refused, start.DeliveryID)
		}
		return refused
	})
	endpoint := endpointOf(t, s, a)
	for i, stops := range []bool{false, true, true} {
		s.stops.Store(stops)
		event, out := eventTo(endpoint), newOutcomes()
		api.Forward(event, out.done(t))
		require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{event.Deliveries[0].DeliveryID: webhook.ForwardRefused}, out.wait(t, 1))
		require.Equal(t, min(i+1, 2), messages)
	}
}

// await waits for what begun says.
func await(t *testing.T, begun <-chan struct{}) {
	t.Helper()
	select {
	case <-begun:
	case <-time.After(10 * time.Second):
		t.Fatal("the message has not arrived")
	}
}

// hangForwarded makes the first message hang: begun says that it has arrived, goOn answers it.
func (s *table) hangForwarded() (begun, goOn chan struct{}) {
	begun, goOn = make(chan struct{}), make(chan struct{})
	s.setForwarded(func(string, webhook.Accepted) []webhook.DeliveryID {
		close(begun)
		<-goOn
		return nil
	})
	return begun, goOn
}

// A delivery that the owner may have is not started by another process as well.
func TestForwardsWithoutAnswer(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	api := s.joinAPI(t, a, b)
	begun, goOn := s.hangForwarded()
	defer close(goOn)
	event, waiting := eventTo(endpointOf(t, s, a)), eventTo(endpointOf(t, s, a))
	out, later := newOutcomes(), newOutcomes()
	api.Forward(event, out.done(t))
	await(t, begun)
	api.Forward(waiting, later.done(t))
	p, _ := api.owner(event.Deliveries[0].EndpointID)
	client, err := p.connection()
	require.NoError(t, err)
	p.drop(client)
	require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{event.Deliveries[0].DeliveryID: webhook.ForwardUnanswered}, out.wait(t, 1))
	require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{waiting.Deliveries[0].DeliveryID: webhook.ForwardRefused}, later.wait(t, 1), "not sent")
}

// A process of another version may have no such method: then nothing is started there.
func TestForwardToAnotherVersion(t *testing.T) {
	t.Parallel()
	s := newTable()
	api := s.joinAPI(t)
	here, there := net.Pipe()
	t.Cleanup(func() { _ = here.Close() })
	go rpc.NewServer().ServeConn(there)
	p := &peer{fleet: api, client: rpc.NewClient(here), answers: true}
	event, out := eventTo(webhook.NewEndpointID()), newOutcomes()
	p.forward(waitingForward{event, out.done(t)})
	require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{event.Deliveries[0].DeliveryID: webhook.ForwardRefused}, out.wait(t, 1))
}

// While a process is slow to take a message, nothing more waits for it.
func TestForwardToASlowProcess(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	api := s.joinAPI(t, a, b)
	begun, goOn := s.hangForwarded()
	answer := sync.OnceFunc(func() { close(goOn) })
	defer answer()
	endpoint := endpointOf(t, s, a)
	first, second, late := eventTo(endpoint), eventTo(endpoint), eventTo(endpoint)
	under, waiting, after := newOutcomes(), newOutcomes(), newOutcomes()
	api.Forward(first, under.done(t))
	await(t, begun)
	api.Forward(second, waiting.done(t))
	require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{second.Deliveries[0].DeliveryID: webhook.ForwardRefused}, waiting.wait(t, 1))
	p, _ := api.owner(endpoint)
	p.mu.Lock()
	p.sentAt = p.sentAt.Add(-forwardPatience) // the second may have come too late
	p.mu.Unlock()
	api.Forward(late, after.done(t))
	require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{late.Deliveries[0].DeliveryID: webhook.ForwardRefused}, after.wait(t, 1))
	answer()
	require.Equal(t, webhook.ForwardAccepted, under.wait(t, 1)[first.Deliveries[0].DeliveryID])
}

// Processes that own lanes forward to each other, too.
func TestForwardAmongOwners(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	received := &receivedEvents{events: map[string][]webhook.Accepted{}}
	s.setForwarded(received.add)
	waitConnected(t, a, 1)
	event, out := eventTo(endpointOf(t, s, a), endpointOf(t, s, b)), newOutcomes()
	a.Forward(event, out.done(t))
	require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{
		event.Deliveries[0].DeliveryID: webhook.ForwardRefused, event.Deliveries[1].DeliveryID: webhook.ForwardAccepted,
	}, out.wait(t, 2), "it starts its own")
	require.Len(t, received.of("b"), 1)
	require.Empty(t, received.of("a"))
}

// A process that has not reached PostgreSQL lately could not record what it sends.
func TestForwardToAProcessWithoutPostgres(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	s.setForwarded(func(string, webhook.Accepted) []webhook.DeliveryID { return nil })
	api := s.joinAPI(t, a, b)
	s.cutOff("a")
	require.Eventually(t, func() bool { // a renewal may be under way
		a.mu.Lock()
		a.renewalEnded = a.renewalEnded.Add(-forwardedTime)
		a.mu.Unlock()
		return !reachesStore(a)
	}, 10*time.Second, time.Millisecond)
	event, out := eventTo(endpointOf(t, s, a)), newOutcomes()
	_, own := a.owner(event.Deliveries[0].EndpointID)
	require.True(t, own, "its lease holds")
	api.Forward(event, out.done(t))
	require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{event.Deliveries[0].DeliveryID: webhook.ForwardRefused}, out.wait(t, 1))
}

// What would be forwarded to a process that has ended is started at once by the one that has stored it.
func TestForwardToAProcessThatHasEnded(t *testing.T) {
	t.Parallel()
	s := newTable()
	api := s.joinAPI(t)
	here, there := net.Pipe()
	p := &peer{fleet: api}
	p.mu.Lock()
	p.client, p.answers = p.newClient(here), true
	p.mu.Unlock()
	require.NoError(t, there.Close())
	require.Eventually(t, func() bool { return !p.hasAnswered() }, 10*time.Second, time.Millisecond)
	event, out := eventTo(webhook.NewEndpointID()), newOutcomes()
	p.forward(waitingForward{event, out.done(t)})
	require.Equal(t, map[webhook.DeliveryID]webhook.ForwardResult{event.Deliveries[0].DeliveryID: webhook.ForwardRefused}, out.all)
}

// A process that owns no lanes cannot take them from others, or ask for permits.
func TestWhatAnAPIMayCall(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	api := s.joinAPI(t, a, b)
	endpoint := endpointOf(t, s, a)
	p, _ := api.owner(endpoint)
	require.NoError(t, p.call(t.Context(), methodPing, struct{}{}, new(struct{})))
	require.NoError(t, p.call(t.Context(), methodHealth, &HealthArgs{endpoint}, &HealthReply{}))
	before, err := p.connection()
	require.NoError(t, err)
	for method, args := range map[string]any{
		methodTransfer: &TransferArgs{map[int]int64{webhook.LaneOf(endpoint): 1 << 62}}, methodAcquire: &AcquireArgs{Request: request(endpoint, 1)},
		methodEnd: &EndArgs{Endpoint: endpoint}, methodForget: &ForgetArgs{Endpoint: endpoint},
	} {
		err := p.call(t.Context(), method, args, new(struct{}))
		require.ErrorContains(t, err, "can't find method", method)
	}
	_, own := a.owner(endpoint)
	require.True(t, own)
	after, err := p.connection()
	require.NoError(t, err)
	require.Same(t, before, after, "a call that is refused does not end the others on its connection")
}
