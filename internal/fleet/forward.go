package fleet

import (
	"errors"
	"net/rpc"
	"slices"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxForwardedEvents and maxForwardedBytes bound what one message forwards. A single event may be larger.
	maxForwardedEvents = 100
	maxForwardedBytes  = 1 << 20
	// maxForwardingBytes bounds the payloads that wait to be forwarded to a process.
	maxForwardingBytes = 16 << 20
)

// ForwardArgs are deliveries that the calling process has stored, for the owner of their endpoints' lanes.
type ForwardArgs struct{ Events []webhook.Accepted }

// ForwardReply lists the deliveries that the called process does not start.
type ForwardReply struct{ Refused []webhook.DeliveryID }

// forwarding is an event that waits to be forwarded to a process.
type forwarding struct {
	event webhook.Accepted
	done  func(start webhook.Start, refused bool)
}

// Forward forwards the deliveries of an event that this process has stored to the owners of their endpoints' lanes, which start them. It
// does not block. done is called once for each delivery: refused says that no owner has it, and this process is to start it. A delivery
// that an owner may have is not refused; if it is lost with the owner, the relay starts it.
func (f *Fleet) Forward(event webhook.Accepted, done func(start webhook.Start, refused bool)) {
	all := map[*peer][]webhook.Start{}
	for _, start := range event.Deliveries {
		if p, own := f.owner(start.EndpointID); !own && p != nil && f.life.Err() == nil {
			all[p] = append(all[p], start)
		} else {
			done(start, true)
		}
	}
	for p, starts := range all {
		p.forward(forwarding{webhook.Accepted{Deliveries: starts, Payload: event.Payload, SHA256: event.SHA256}, done})
	}
}

// forward queues an event. The process must have answered before: a connection that it refuses looks like one that it accepts.
func (p *peer) forward(one forwarding) {
	p.mu.Lock()
	room := p.answers && p.client != nil && p.forwardBytes+len(one.event.Payload) <= maxForwardingBytes
	start := room && !p.forwarding
	if room {
		p.forwards = append(p.forwards, one)
		p.forwardBytes += len(one.event.Payload)
		p.forwarding = true
	}
	p.mu.Unlock()
	switch {
	case !room:
		one.finish(nil, true)
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
		args, reply := &ForwardArgs{}, &ForwardReply{}
		for _, one := range batch {
			args.Events = append(args.Events, one.event)
		}
		if client == nil { // nothing was sent
			finishAll(batch, nil, true)
			continue
		}
		call := <-client.Go(methodForward, args, reply, make(chan *rpc.Call, 1)).Done
		if call.Error != nil {
			p.drop(client)
		}
		_, refused := errors.AsType[rpc.ServerError](call.Error) // an older version has no such method
		finishAll(batch, reply.Refused, refused)
	}
}

// nextForwards takes the next message's events, and the connection for it.
func (p *peer) nextForwards() (batch []forwarding, client *rpc.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes := 0, 0
	for n < len(p.forwards) && n < maxForwardedEvents && (n == 0 || bytes+len(p.forwards[n].event.Payload) <= maxForwardedBytes) {
		bytes += len(p.forwards[n].event.Payload)
		n++
	}
	batch, p.forwards = p.forwards[:n:n], p.forwards[n:]
	p.forwardBytes -= bytes
	p.forwarding = n > 0
	return batch, p.client
}

func finishAll(batch []forwarding, refused []webhook.DeliveryID, all bool) {
	for _, one := range batch {
		one.finish(refused, all)
	}
}

// finish reports what became of an event's deliveries.
func (f *forwarding) finish(refused []webhook.DeliveryID, all bool) {
	for _, start := range f.event.Deliveries {
		f.done(start, all || slices.Contains(refused, start.DeliveryID))
	}
}

// Forward starts deliveries that another process has stored.
func (s *service) Forward(args *ForwardArgs, reply *ForwardReply) error {
	f := s.fleet
	for _, event := range args.Events {
		own := event.Deliveries[:0:0]
		for _, start := range event.Deliveries {
			if _, is := f.owner(start.EndpointID); is {
				own = append(own, start)
			} else {
				reply.Refused = append(reply.Refused, start.DeliveryID)
			}
		}
		event.Deliveries = own
		reply.Refused = append(reply.Refused, f.onForwarded(event)...)
	}
	return nil
}
