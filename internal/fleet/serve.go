package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/rpc"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// What processes ask each other, by net/rpc over TLS.
const (
	serviceName    = "Fleet"
	methodAcquire  = serviceName + ".Acquire"
	methodEnd      = serviceName + ".End"
	methodForget   = serviceName + ".Forget"
	methodForward  = serviceName + ".Forward"
	methodTransfer = serviceName + ".HandOver" // processes of earlier builds know it by this name
	methodHealth   = serviceName + ".Health"
	methodPing     = serviceName + ".Ping"

	handshakeTimeout = 5 * time.Second
)

// AcquireArgs asks for a permit. Number is the asking process's for it.
type AcquireArgs struct {
	Number  uint64
	Request admission.Request
}

// AcquireReply is a permit, a wait or a hold, as an admission.Decision.
type AcquireReply struct {
	NotOwner  bool // ask another process
	Permitted bool
	Timeout   time.Duration // of the request
	Epoch     int64         // of the owner
	Wait      time.Duration
	Reason    string
	Forecast  Forecast
}

// EndArgs ends a permit.
type EndArgs struct {
	Number   uint64
	Endpoint webhook.EndpointID
	Sent     bool
	Result   admission.Result // of the request, if Sent
}

// EndReply answers EndArgs.
type EndReply struct {
	NotOwner bool
	Forecast Forecast
}

// ForgetArgs gives back a reservation.
type ForgetArgs struct {
	Endpoint webhook.EndpointID
	Delivery webhook.DeliveryID
}

// HealthArgs asks for the health of an endpoint.
type HealthArgs struct{ Endpoint webhook.EndpointID }

// HealthReply answers HealthArgs.
type HealthReply struct {
	NotOwner bool
	Observed webhook.Observation
}

// TransferArgs asks for what a process has under way in some lanes, and for their states if it was their owner. The epochs are those of the
// process that asks, which is their new owner.
type TransferArgs struct{ Lanes map[int]int64 }

// accept serves other processes until the listener is closed.
func (f *Fleet) accept() {
	config := f.serverTLS()
	for {
		conn, err := f.listener.Accept()
		switch {
		case err == nil:
			leave, ok := f.strangers.admit(conn)
			if !ok {
				_ = conn.Close()
				continue
			}
			f.work.Go(func() {
				defer leave()
				f.serve(conn, config, leave)
			})
		case errors.Is(err, net.ErrClosed):
			return
		default:
			f.log.WarnContext(f.life, "a process could not be accepted", "error", err)
			if !pause(f.life, retryPause) {
				return
			}
		}
	}
}

// serve serves one connection until it ends. It calls authenticated when the other side is.
func (f *Fleet) serve(raw net.Conn, config *tls.Config, authenticated func()) {
	ctx, cancel := context.WithCancel(f.life)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	conn := tls.Server(raw, config)
	defer func() { _ = conn.Close() }()
	within, end := context.WithTimeout(ctx, handshakeTimeout)
	defer end()
	if err := conn.HandshakeContext(within); err != nil {
		return // the other side gets the error, too
	}
	id, ownsLanes, known := f.processOf(conn.ConnectionState())
	if !known {
		return
	}
	authenticated()
	var methods any = &apiService{f}
	if ownsLanes {
		methods = &service{apiService{f}, ctx, id}
	}
	server := rpc.NewServer()
	if err := server.RegisterName(serviceName, methods); err != nil {
		f.log.ErrorContext(ctx, "other processes cannot be served", "error", err)
		return
	}
	server.ServeConn(watchedConn{timedConn{conn}, cancel}) // net/rpc waits for the calls under way, which cancel ends
	f.loseGrantsOf(id)
}

// apiService is what every process may call: an API takes no lanes, and needs no permits.
type apiService struct{ fleet *Fleet }

// Ping answers.
func (s *apiService) Ping(struct{}, *struct{}) error { return nil }

// Health says how an endpoint fares.
func (s *apiService) Health(args *HealthArgs, reply *HealthReply) error {
	if _, own := s.fleet.owner(args.Endpoint); !own {
		reply.NotOwner = true
		return nil
	}
	reply.Observed = s.fleet.health(args.Endpoint)
	return nil
}

// service is what a process that may own lanes may call.
type service struct {
	apiService

	ctx     context.Context //nolint:containedctx // of the connection: net/rpc has none for a call
	process string
}

// Acquire asks for a permit.
func (s *service) Acquire(args *AcquireArgs, reply *AcquireReply) error {
	f, r := s.fleet, args.Request
	decision, epoch, ok := f.decide(s.ctx, r, false)
	if !ok {
		reply.NotOwner = true
		return nil
	}
	reply.Forecast = f.ownForecast(r.Endpoint)
	if decision.Permit == nil {
		reply.Wait, reply.Reason = decision.Wait, decision.Reason
		return nil
	}
	if !f.grant(grantID{s.process, args.Number}, r.Endpoint, epoch, decision.Permit) {
		decision.Permit.Cancel()
		reply.NotOwner = true
		return nil
	}
	reply.Permitted, reply.Timeout, reply.Epoch = true, decision.Permit.Timeout(), epoch
	return nil
}

// grant notes that a process has a permit, and returns false if the lane was lost meanwhile.
func (f *Fleet) grant(id grantID, endpoint webhook.EndpointID, epoch int64, permit *admission.Permit) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	number := webhook.LaneOf(endpoint)
	l := &f.lanes[number]
	if !l.own || l.epoch != epoch || !f.holds() {
		return false
	}
	if _, ended := f.granted[id]; ended {
		delete(f.granted, id)
		return false
	}
	f.granted[id] = &grantedPermit{permit, number, time.Now().Add(maxAge(permit.Timeout()))}
	return true
}

// End ends a permit.
func (s *service) End(args *EndArgs, reply *EndReply) error {
	f := s.fleet
	if _, own := f.owner(args.Endpoint); !own {
		reply.NotOwner = true
		return nil
	}
	var result *admission.Result
	if args.Sent {
		result = &args.Result
	}
	f.endGrant(grantID{s.process, args.Number}, webhook.LaneOf(args.Endpoint), result)
	reply.Forecast = f.ownForecast(args.Endpoint)
	return nil
}

// Forget gives back a reservation.
func (s *service) Forget(args *ForgetArgs, _ *struct{}) error {
	s.fleet.controller.Forget(args.Endpoint, args.Delivery)
	return nil
}

// HandOver transfers lanes that the other process has taken: it lists what this process has under way in them.
func (s *service) HandOver(args *TransferArgs, reply *LaneTransfer) error {
	*reply = s.fleet.transferLanes(args.Lanes, s.process)
	return nil
}

// ownForecast is the forecast of an endpoint in a lane of this process.
func (f *Fleet) ownForecast(id webhook.EndpointID) Forecast {
	known := f.controller.Forecast(id)
	return Forecast{Wait: known.Wait, Unhealthy: known.Unhealthy, Slow: f.controller.LikelySlow(id)}
}
