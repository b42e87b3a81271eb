package fleet

import (
	"net/rpc"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxForwardedEvents and maxForwardedBytes bound what one message forwards. A single event may be larger.
	maxForwardedEvents = 100
	maxForwardedBytes  = 1 << 20
	// maxForwardingBytes bounds the payloads that wait to be forwarded to a process.
	maxForwardingBytes = 16 << 20
	// forwardPatience is how long a message may be under way until nothing waits behind it: this process then starts those deliveries.
	forwardPatience = 250 * time.Millisecond
	// forwardedTime is for how long after the end of its last successful renewal a process takes what is forwarded to it: it could
	// not record what it sends without PostgreSQL.
	forwardedTime = 2500 * time.Millisecond
)

// ForwardArgs are deliveries that the calling process has stored, for the owner of their endpoints' lanes.
type ForwardArgs struct{ Events []webhook.Accepted }

// ForwardReply lists the deliveries that the called process does not start. If it stops, it starts none any more.
type ForwardReply struct {
	Refused []webhook.DeliveryID
	Stops   bool
}

// waitingForward is an event that waits to be forwarded to a process.
type waitingForward struct {
	event webhook.Accepted
	done  func(webhook.Start, webhook.ForwardResult)
}

// size is what its payload and its headers have, in bytes.
func (w *waitingForward) size() int {
	return len(w.event.Payload) + webhook.HeaderSize(w.event.Headers)
}

// Forward forwards the deliveries of an event that this process has stored to the owners of their endpoints' lanes, which start them. It
// does not block. done is called once for each delivery. A delivery that an owner may have is not refused; if it is lost with the owner,
// the relay starts it.
func (f *Fleet) Forward(event webhook.Accepted, done func(webhook.Start, webhook.ForwardResult)) {
	all := map[*peer][]webhook.Start{}
	for _, start := range event.Deliveries {
		if p, own := f.owner(start.EndpointID); !own && p != nil && f.life.Err() == nil {
			all[p] = append(all[p], start)
		} else {
			done(start, webhook.ForwardRefused)
		}
	}
	for p, starts := range all {
		p.forward(waitingForward{webhook.Accepted{
			Deliveries: starts, Payload: event.Payload, SHA256: event.SHA256, Headers: event.Headers,
		}, done})
	}
}

// forward queues an event, unless the process is slow or stops. The process must have answered before: a connection that it refuses looks like one
// that it accepts.
func (p *peer) forward(waiting waitingForward) {
	p.mu.Lock()
	room := p.answers && !p.stops && p.forwardBytes+waiting.size() <= maxForwardingBytes &&
		(!p.forwarding || time.Since(p.sentAt) < forwardPatience)
	start := room && !p.forwarding
	if start {
		p.forwarding, p.sentAt = true, time.Now()
	}
	if room {
		p.forwards = append(p.forwards, waiting)
		p.forwardBytes += waiting.size()
	}
	p.mu.Unlock()
	switch {
	case !room:
		waiting.finish(webhook.ForwardRefused, nil)
	case start:
		p.fleet.work.Go(p.runForwards)
	}
}

// runForwards forwards what waits, one message at a time. What comes meanwhile is in the next one.
func (p *peer) runForwards() {
	for {
		batch, client := p.nextForwards()
		if len(batch) == 0 {
			return
		}
		result, refused := p.send(client, batch)
		for i := range batch {
			batch[i].finish(result, refused)
		}
		clear(batch) // p.forwards shares its memory
	}
}

// send sends one message. refused are the deliveries to which the result does not apply, because the process refused them.
func (p *peer) send(client *rpc.Client, batch []waitingForward) (result webhook.ForwardResult, refused map[webhook.DeliveryID]bool) {
	if client == nil {
		return webhook.ForwardRefused, nil
	}
	args, reply := &ForwardArgs{}, &ForwardReply{}
	for i := range batch {
		args.Events = append(args.Events, batch[i].event)
	}
	slow := time.AfterFunc(forwardPatience, p.refuseWaiting)
	call := <-client.Go(methodForward, args, reply, make(chan *rpc.Call, 1)).Done
	slow.Stop()
	switch {
	case answered(call.Error): // an older version has no such method
		return webhook.ForwardRefused, nil
	case call.Error != nil: // it may have arrived, also if net/rpc says that the connection was shut down
		p.drop(client)
		if p.fleet.life.Err() == nil {
			p.fleet.log.WarnContext(p.fleet.life, "a process did not answer; what was forwarded to it is started within 10 s, if it has not done so",
				"process", p.process.ID, "address", p.process.Address, "events", len(batch), "error", call.Error)
		}
		return webhook.ForwardUnanswered, nil
	}
	if reply.Stops {
		p.mu.Lock()
		p.stops = true
		p.mu.Unlock()
	}
	refused = map[webhook.DeliveryID]bool{}
	for _, id := range reply.Refused {
		refused[id] = true
	}
	return webhook.ForwardAccepted, refused
}

// nextForwards takes the next message's events, and the connection for it; nil if there is none that has answered, or the process stops.
func (p *peer) nextForwards() (batch []waitingForward, client *rpc.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes := 0, 0
	for n < len(p.forwards) && n < maxForwardedEvents && (n == 0 || bytes+p.forwards[n].size() <= maxForwardedBytes) {
		bytes += p.forwards[n].size()
		n++
	}
	batch, p.forwards = p.forwards[:n:n], p.forwards[n:]
	p.forwardBytes -= bytes
	p.forwarding, p.sentAt = n > 0, time.Now()
	if p.answers && !p.stops {
		client = p.client
	}
	return batch, client
}

// refuseWaiting refuses what waits behind a message that has been under way for long.
func (p *peer) refuseWaiting() {
	p.mu.Lock()
	if time.Since(p.sentAt) < forwardPatience { // it is another message
		p.mu.Unlock()
		return
	}
	waiting := p.forwards
	p.forwards, p.forwardBytes = nil, 0
	p.mu.Unlock()
	for i := range waiting {
		waiting[i].finish(webhook.ForwardRefused, nil)
	}
}

// finish reports what became of an event's deliveries.
func (w *waitingForward) finish(result webhook.ForwardResult, refused map[webhook.DeliveryID]bool) {
	for _, start := range w.event.Deliveries {
		if refused[start.DeliveryID] {
			w.done(start, webhook.ForwardRefused)
		} else {
			w.done(start, result)
		}
	}
}

// reachesStore reports whether this process has reached PostgreSQL lately.
func reachesStore(f *Fleet) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.renewalEnded) < forwardedTime
}

// Forward starts deliveries that another process has stored.
func (s *apiService) Forward(args *ForwardArgs, reply *ForwardReply) error {
	f := s.server.fleet
	storeReachable := reachesStore(f)
	for _, event := range args.Events {
		own := event.Deliveries[:0:0]
		for _, start := range event.Deliveries {
			if _, owned := f.owner(start.EndpointID); owned && storeReachable {
				own = append(own, start)
			} else {
				reply.Refused = append(reply.Refused, start.DeliveryID)
			}
		}
		event.Deliveries = own
		refused, stops := s.server.starts.Forwarded(event)
		reply.Refused, reply.Stops = append(reply.Refused, refused...), reply.Stops || stops
	}
	return nil
}
